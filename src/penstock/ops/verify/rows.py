"""Opening a table at one version with `deltalake`, and what one version removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.errors import Terminal
from penstock.ops.verify.chain import RemovedBy
from penstock.ops.verify.coordinates import Coordinates, read_coordinates
from penstock.ops.verify.expected import Key
from penstock.ops.verify.spans import Spans
from penstock.plan.model import TablePlan

if TYPE_CHECKING:
    from deltalake import DeltaTable


def read_at(
    table: TablePlan, version: int, within: Mapping[Key, Spans], progress: Callable[[float], None] = lambda _: None
) -> Coordinates:
    """Terminal if the rows of that version cannot be read: a file is gone or broken."""
    try:
        return read_coordinates(_open(table, version), table.columns, within, progress)
    except Exception as error:  # the query engine raises plain Exception
        raise Terminal(
            f"the rows of version {version} cannot be read: {(str(error).strip().splitlines() or ['?'])[0][:400]}",
            where=table.name,
            hint=f"`penstock history {table.name}` shows who changed the table",
        ) from None


def removed_by(table: TablePlan) -> RemovedBy:
    """By how much less often each offset is in the table after a version than before it."""

    def compare(version: int) -> dict[Key, list[Spans]] | None:
        try:
            before, after = (_levels(read_at(table, one, {})) for one in (version - 1, version))
        except Terminal:
            return None  # vacuum took the files of that version
        removed = {key: _fewer(levels, after.get(key, [])) for key, levels in before.items()}
        return {key: levels for key, levels in removed.items() if levels}

    return compare


def _levels(found: Coordinates) -> dict[Key, list[Spans]]:
    """[0]: there at least once, [1]: at least twice, …"""
    levels = {key: [spans] for key, spans in found.present.items()}
    for key, repeated in found.repeated.items():
        for times in range(2, max(one.times for one in repeated) + 1):
            levels[key].append(Spans((one.start, one.end) for one in repeated if one.times >= times))
    return levels


def _fewer(before: list[Spans], after: list[Spans]) -> list[Spans]:
    found = [level - (after[i] if i < len(after) else Spans()) for i, level in enumerate(before)]
    return [spans for spans in found if spans]


def _open(table: TablePlan, version: int) -> DeltaTable:
    from deltalake import DeltaTable

    from penstock.engine.object_store import storage_options

    return DeltaTable(table.uri, version=version, storage_options=storage_options(table.uri) or None)
