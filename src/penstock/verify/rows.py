"""The rows of a table at one version, read with `deltalake`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import Terminal
from penstock.storage.delta_rows import _plain, open_table, table_of_files
from penstock.verify.coordinates import read_coordinates

if TYPE_CHECKING:
    from penstock.verify.coordinates import Columns, Coordinates, Key, Spans
    from penstock.verify.ledger_walk import RowsAt


@dataclass(frozen=True)
class CoordinateTable:
    """A table whose rows say where they came from."""

    name: str
    uri: str
    columns: Columns
    where: str = "TRUE"


def read_at(
    table: CoordinateTable,
    version: int | None,
    within: Mapping[Key, Spans],
    progress: Callable[[float], None] = lambda _: None,
) -> Coordinates:
    """The coordinates of the rows of a version, None being the newest; Terminal if they cannot be read: a file is gone
    or broken."""
    try:
        return read_coordinates(open_table(table.uri, version), table.columns, within, progress, table.where)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(
            f"the rows of {'version ' + str(version) if version is not None else table.name} cannot be read: "
            f"{_describe_unreadable(table, version)}{_plain(error)}",
            where=table.name,
            hint=f"`penstock history {table.name}` shows who changed the table",
        ) from None


_MOST_TRIED = 2_000
"""At most this many files are read one by one to find those that cannot be read."""


def _describe_unreadable(table: CoordinateTable, version: int | None) -> str:
    """Name the files of a local table that cannot be read, as far as they can be told apart: `part-0.parquet: `."""
    from deltalake import DeltaTable

    from penstock.verify.data_files import LoggedFile

    try:
        if "://" in table.uri:
            return ""
        delta_table = DeltaTable(table.uri, version=version)
        files = delta_table.file_uris()
    except Exception:
        return ""
    unreadable = []
    for file in files[:_MOST_TRIED]:
        try:
            read_coordinates(table_of_files(delta_table, [file]), table.columns, {}, lambda _: None, table.where)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            unreadable.append(LoggedFile.name_of(file))
    # What fails everywhere is not the fault of one file.
    if not unreadable or (len(unreadable) == len(files) and len(files) > 1):
        return ""
    return f"{', '.join(unreadable[:5])}{f' and {len(unreadable) - 5} more files' if len(unreadable) > 5 else ''}: "


def rows_at(table: CoordinateTable) -> RowsAt:
    """A reader of the rows of a version; it returns None if vacuum has removed the files of that version."""

    def read(version: int) -> Coordinates | None:
        try:
            return read_at(table, version, {})
        except Terminal:
            return None

    return read
