"""The rows of a table at one version, read with `deltalake`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.errors import Terminal
from penstock.ops.verify.coordinates import Coordinates, read_coordinates
from penstock.ops.verify.expected import Key
from penstock.ops.verify.spans import Spans
from penstock.ops.verify.walk import RowsAt
from penstock.plan.model import TablePlan

if TYPE_CHECKING:
    from deltalake import DeltaTable


def read_at(
    table: TablePlan, version: int, within: Mapping[Key, Spans], progress: Callable[[float], None] = lambda _: None
) -> Coordinates:
    """Terminal if the rows of that version cannot be read: a file is gone or broken."""
    try:
        return read_coordinates(_open(table, version), table.columns, within, progress)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(
            f"the rows of version {version} cannot be read: {_plain(error)}",
            where=table.name,
            hint=f"`penstock history {table.name}` shows who changed the table",
        ) from None


def rows_at(table: TablePlan) -> RowsAt:
    """None for a version whose files vacuum has taken."""

    def read(version: int) -> Coordinates | None:
        try:
            return read_at(table, version, {})
        except Terminal:
            return None

    return read


def _plain(error: BaseException) -> str:
    """deltalake draws its errors as coloured trees over several lines."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__
    return " ".join(text.replace("↳", " ").split())[:400]


def _open(table: TablePlan, version: int) -> DeltaTable:
    from deltalake import DeltaTable

    from penstock.engine.object_store import storage_options

    return DeltaTable(table.uri, version=version, storage_options=storage_options(table.uri) or None)
