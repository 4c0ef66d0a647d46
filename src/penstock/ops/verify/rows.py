"""The rows of a table at one version, read with `deltalake`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.ops.verify.coordinates import Columns, Coordinates, read_coordinates
from penstock.ops.verify.expected import Key
from penstock.ops.verify.spans import Spans
from penstock.ops.verify.walk import RowsAt
from penstock.ops.verify.widened import is_widened, table_of_files, without_widened

if TYPE_CHECKING:
    from deltalake import DeltaTable


@dataclass(frozen=True)
class Rows:
    """A table whose rows say where they came from."""

    name: str
    uri: str
    columns: Columns
    where: str = "TRUE"


def read_at(
    table: Rows, version: int | None, within: Mapping[Key, Spans], progress: Callable[[float], None] = lambda _: None
) -> Coordinates:
    """Terminal if the rows of that version, None being the newest, cannot be read: a file is gone or broken."""
    try:
        return read_coordinates(open_table(table.uri, version), table.columns, within, progress, table.where)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(
            f"the rows of {'version ' + str(version) if version is not None else table.name} cannot be read: "
            f"{_unreadable(table, version)}{_plain(error)}",
            where=table.name,
            hint=f"`penstock history {table.name}` shows who changed the table",
        ) from None


_MOST_TRIED = 2_000
"""Files that are read one by one to find out which of them cannot be."""


def _unreadable(table: Rows, version: int | None) -> str:
    """`part-0.parquet: `: the files of a local table that cannot be read, as far as they can be told apart."""
    from deltalake import DeltaTable

    from penstock.ops.verify.data_files import DataFile

    try:
        if "://" in table.uri:
            return ""
        whole = DeltaTable(table.uri, version=version)
        files = whole.file_uris()
    except Exception:
        return ""
    bad = []
    for file in files[:_MOST_TRIED]:
        try:
            read_coordinates(table_of_files(whole, [file]), table.columns, {}, lambda _: None, table.where)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            bad.append(DataFile.named(file))
    if not bad or (len(bad) == len(files) and len(files) > 1):  # what fails everywhere is no matter of one file
        return ""
    return f"{', '.join(bad[:5])}{f' and {len(bad) - 5} more files' if len(bad) > 5 else ''}: "


def rows_at(table: Rows) -> RowsAt:
    """None for a version whose files vacuum has taken."""

    def read(version: int) -> Coordinates | None:
        try:
            return read_at(table, version, {})
        except Terminal:
            return None

    return read


def count_at(uri: str, version: int | None, where: str = "TRUE") -> int:
    """Terminal if they cannot be read."""
    return sum(int(one) for (one,) in query(uri, version, f"SELECT count(*) FROM rows WHERE {where}"))


def query(uri: str, version: int | None, sql: str) -> list[tuple[Any, ...]]:
    """Over the rows of a table, which the SQL calls `rows`. Terminal if they cannot be read."""
    from deltalake import QueryBuilder

    try:
        batches = QueryBuilder().register("rows", open_table(uri, version)).execute(sql)
        return [
            row
            for batch in batches
            for row in zip(*(batch.column(i).to_pylist() for i in range(batch.num_columns)), strict=True)
        ]
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(f"the rows of {uri} cannot be read: {_plain(error)}") from None


def open_table(uri: str, version: int | None = None) -> DeltaTable:
    from deltalake import DeltaTable

    from penstock.engine.object_store import storage_options

    table = DeltaTable(uri, version=version, storage_options=storage_options(uri) or None)
    return without_widened(table, uri) if is_widened(table) else table


def _plain(error: BaseException) -> str:
    """deltalake draws its errors as coloured trees over several lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    return " ".join(text.replace("↳", " ").split())[:400]
