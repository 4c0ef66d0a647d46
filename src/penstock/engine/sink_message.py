"""What a row becomes on its way to Kafka: key, value and headers, each an SQL expression over the row, and its id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote as url_quoted

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, NullType, StringType, StructType, VariantType

from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import FILE, SOURCE
from penstock.engine.stages.decode import literal
from penstock.errors import Terminal
from penstock.plan.model import DeltaSource, SinkPlan, TablePlan
from penstock.spec.sink import ID

_STAR = re.compile(r"(?<=[(,])\s*\*\s*(?=[,)])")
_WHOLE_ROW = "to_json(struct(*))"
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_HASH, _PLACE, _NUMBER = "__hash", "__place", "__number"
_FINGERPRINT = "hex(xxhash64(key IS NULL, key, value IS NULL, value, headers))"


@dataclass(frozen=True)
class Message:
    """The expressions of a record's parts, made once; `records` is asked in every batch."""

    sink: str
    parts: tuple[str, ...]
    place: str | None
    """The place in Kafka of the record that the row came from, where that names one row."""
    file: str

    def records(self, rows: DataFrame) -> DataFrame:
        """key, value and headers, the id first among these. It is the same whenever the row is sent: the place of its
        record; or the file that holds it and what is sent, with a number where a file holds several that are alike:
        those nobody can tell apart, so it does not matter which of them has which number."""
        made = rows.selectExpr(*self.parts, f"{self.place or 'NULL'} AS {_PLACE}", f"{self.file} AS {FILE}")
        hashed = made.selectExpr("*", f"{_FINGERPRINT} AS {_HASH}")
        # Rows that others added to a table have no place. To each its own id, though it may be another the next time.
        number = "monotonically_increasing_id()"
        if self.place is None:
            number = f"row_number() OVER (PARTITION BY {FILE}, {_HASH} ORDER BY {_HASH})"
        numbered = hashed.selectExpr("*", f"CAST({number} AS STRING) AS {_NUMBER}")
        named = f"concat({literal(f'{self.sink}/')}, coalesce({_PLACE}, concat_ws('/', {FILE}, {_HASH}, {_NUMBER})))"
        return numbered.selectExpr("key", "value", f"concat(array({header(ID, named)}), headers) AS headers")


def message(rows: DataFrame, table: TablePlan) -> Message:
    """`rows` has the columns of the source; none of its rows is read. Raises where an expression cannot be part of a
    record."""
    plan, source = table.sink, table.source
    assert isinstance(plan, SinkPlan) and isinstance(source, DeltaSource)
    key = part(rows, table.name, "key", plan.key) if plan.key is not None else "CAST(NULL AS STRING)"
    value = part(rows, table.name, "value", plan.value if plan.value is not None else _WHOLE_ROW)
    named = {name: part(rows, table.name, f"headers: {name}", text) for name, text in plan.headers.items()}
    headers = ", ".join(header(name, text) for name, text in named.items())
    parts = (f"{key} AS key", f"{value} AS value", f"CAST(array({headers}) AS {_HEADERS}) AS headers")
    refuse_other_rows(rows, parts, table.name)
    place = None
    if plan.coordinates is not None:
        place = ", '/', ".join(f"CAST({'.'.join(map(quote, path))} AS STRING)" for path in plan.coordinates)
        place = f"concat({place})"
    # By its path within the table: the lake may move.
    within = literal(f"/{url_quoted(source.uri.rstrip('/').rpartition('/')[2])}/")
    return Message(table.name, parts, place, f"substring_index({FILE}, {within}, -1)")


def part(rows: DataFrame, sink: str, name: str, text: str) -> str:
    columns = [column for column in rows.columns if column not in (FILE, SOURCE)]
    whole = _STAR.sub(lambda _: ", ".join(map(quote, columns)), text)
    kind: DataType = rows.selectExpr(f"({whole}) AS part").schema["part"].dataType
    if isinstance(kind, StringType | BinaryType):
        return f"({whole})"
    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        raise Terminal(
            f"`{name}` gives {kind.simpleString()}; a record of Kafka holds text or bytes",
            where=sink,
            hint=f"write {name}: to_json({text})",
        )
    return "CAST(NULL AS STRING)" if isinstance(kind, NullType) else f"CAST(({whole}) AS STRING)"


def header(name: str, value: str) -> str:
    return f"named_struct('key', {literal(name)}, 'value', CAST({value} AS BINARY))"


def refuse_other_rows(rows: DataFrame, parts: tuple[str, ...], sink: str) -> None:
    """explode, window functions, aggregates and the like make other rows than those of the table."""
    before = rows._jdf.queryExecution().analyzed()
    after = rows.selectExpr(*parts)._jdf.queryExecution().analyzed()
    if after.nodeName() != "Project" or not after.children().head().equals(before):
        raise Terminal(
            "`key`, `value` and `headers` are computed from one row: no explode, no window and no aggregate",
            where=sink,
            hint="make those rows in a table, and send that",
        )
    if not after.deterministic():
        raise Terminal(
            "`key`, `value` or `headers` gives something else each time; a row that is sent again must be the same",
            where=sink,
            hint="compute it in a table, where it is kept, and send that",
        )
