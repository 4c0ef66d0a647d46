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

    from penstock.verify.data_files import LoggedFile

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
            bad.append(LoggedFile.named(file))
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
