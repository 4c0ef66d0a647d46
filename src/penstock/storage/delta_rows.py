"""Rows of a Delta table read with `deltalake`, without a JVM: also if columns were widened or hold years beyond
Python's."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.spark.sql_text import quoted_name, quoted_text
from penstock.spec.lake import is_remote
from penstock.storage.stores import storage_options

if TYPE_CHECKING:
    from deltalake import DeltaTable


# Tables whose columns were widened, which `deltalake` does not read yet.
#
# `verify` only needs columns that never change their type. So it gets a table of these alone: a temporary folder with a
# log of its own, whose files are those of the real table.


_TYPE_WIDENING = "typeWidening"
_DELETION_VECTORS = "deletionVectors"
_TYPE_CHANGES = "delta.typeChanges"
_FIRST_COMMIT = "00000000000000000000.json"


def table_of_files(table: DeltaTable, files: Iterable[str]) -> DeltaTable:
    """A table of these files alone, which are on this machine."""
    from deltalake import DeltaTable as Opened

    partitions = table.metadata().partition_columns
    schema = json.loads(table.schema().to_json())
    schema["fields"] = [
        column for column in schema["fields"] if column["name"] not in partitions and _TYPE_CHANGES not in str(column)
    ]
    with tempfile.TemporaryDirectory(prefix="penstock-verify-") as folder:
        log = Path(folder) / "_delta_log"
        log.mkdir()
        actions = [*_header_actions(schema), *(_add_action(Path(file)) for file in files)]
        (log / _FIRST_COMMIT).write_text("\n".join(map(json.dumps, actions)))
        return Opened(folder)


def _header_actions(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "0",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]


def _add_action(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    action = {"path": file.as_uri(), "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": action}


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    """A widened table is opened without its partition columns and without columns whose type has changed."""
    from deltalake import DeltaTable

    table = DeltaTable(uri, version=version, storage_options=storage_options(uri) or None)
    features = table.protocol().reader_features or ()
    if _TYPE_WIDENING not in features:
        return table
    if is_remote(uri) or _DELETION_VECTORS in features:
        raise Terminal(
            "a column was widened, and such a table cannot be verified on an object store, or with deletion vectors",
            hint="Spark reads it: `spark.read.format('delta')`",
        )
    return table_of_files(table, table.file_uris())


def count_at(uri: str, version: int | None, where: str = "TRUE") -> int:
    """How many rows the files have, not how many the log says: a count alone is answered from the statistics in the
    log, so a column is read as well. Terminal if they cannot be read."""
    column = _cheapest_column(uri, version)
    sql = f"SELECT count(*){f', max(CAST({column} AS VARCHAR))' if column else ''} FROM rows WHERE {where}"
    return sum(int(row[0]) for row in query(uri, version, sql))


_CHEAP = ("boolean", "byte", "short", "integer", "long", "double", "float", "date", "string")


def _cheapest_column(uri: str, version: int | None) -> str | None:
    """A column, or a field of one, that is in every file and cheap to read."""
    with _explained_errors(uri):
        table = open_table(uri, version)
    partitions = table.metadata().partition_columns
    candidates: list[tuple[int, int, str]] = []

    def add(kind: Any, path: str, depth: int = 0) -> None:
        if isinstance(getattr(kind, "fields", None), list):
            for field in kind.fields:
                add(field.type, f"{path}[{quoted_text(field.name)}]", depth + 1)
        elif (name := str(getattr(kind, "type", ""))) in _CHEAP:
            candidates.append((depth, _CHEAP.index(name), path))

    for field in table.schema().fields:
        if field.name not in partitions:
            add(field.type, quoted_name(field.name))
    return min(candidates)[2] if candidates else None


def query(uri: str, version: int | None, sql: str) -> list[tuple[Any, ...]]:
    """Runs SQL over the rows of a table, which it calls `rows`. Terminal if they cannot be read."""
    from deltalake import QueryBuilder

    with _explained_errors(uri):
        batches = QueryBuilder().register("rows", open_table(uri, version)).execute(sql)
        return [
            row
            for batch in batches
            for row in zip(*(batch.column(i).to_pylist() for i in range(batch.num_columns)), strict=True)
        ]


@contextmanager
def _explained_errors(uri: str) -> Iterator[None]:
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(f"the rows of {uri} cannot be read: {_plain(error)}") from None


def _plain(error: BaseException) -> str:
    """The error in one line: deltalake draws its errors as coloured trees over several lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    return " ".join(text.replace("↳", " ").split())[:400]


# Times in the results of `deltalake`. A table can hold years that Python's own types cannot: these become a FarTime.


_DAY = 86_400_000_000
_CYCLE = 146_097
"""Days of 400 years, after which the calendar repeats."""
_DAYS_BEFORE_1970 = 719_162


@dataclass(frozen=True, order=True)
class FarTime:
    """A time outside the years 1 to 9999."""

    micros: int
    """Since 1970, in UTC."""
    zoned: bool = True
    of_day: bool = False
    """A DATE."""

    @property
    def text(self) -> str:
        """ISO 8601, the year with its sign."""
        days, rest = divmod(self.micros, _DAY)
        cycles, day = divmod(days + _DAYS_BEFORE_1970, _CYCLE)
        equivalent = datetime.combine(date.fromordinal(day + 1), datetime.min.time()) + timedelta(microseconds=rest)
        year = equivalent.year + 400 * cycles
        shown = equivalent.isoformat(timespec="microseconds")[4:]
        sign = "-" if year < 0 else "+" if year > 9999 else ""
        return f"{sign}{abs(year):04d}{shown[:6] if self.of_day else shown + 'Z' * self.zoned}"

    def __str__(self) -> str:
        return self.text


Time = datetime | FarTime


def micros_of(value: Time) -> int:
    if isinstance(value, FarTime):
        return value.micros
    return (value.replace(tzinfo=value.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def values_of(column: Any) -> list[Any]:
    """The values of a column of a result; its own to_pylist() raises on a year that Python does not know."""
    from arro3.core import DataType

    kind = column.type
    if DataType.is_date32(kind):
        days = column.cast(DataType.int32()).to_pylist()
        return [None if day is None else _to_time(day * _DAY, None, of_day=True) for day in days]
    if DataType.is_timestamp(kind):
        numbers = column.cast(DataType.timestamp("us", tz=kind.tz)).cast(DataType.int64()).to_pylist()
        return [None if number is None else _to_time(number, kind.tz) for number in numbers]
    return list(column.to_pylist())


def _to_time(micros: int, zone: str | None, *, of_day: bool = False) -> Any:
    try:
        value = datetime(1970, 1, 1, tzinfo=UTC if zone else None) + timedelta(microseconds=micros)
    except OverflowError:
        return FarTime(micros, zoned=bool(zone), of_day=of_day)
    return value.date() if of_day else value
