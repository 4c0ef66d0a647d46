"""The Delta tables that belong to a table of the project, and whose files are looked after with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.plan.files import FilesSource
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of, tombstones_of


@dataclass(frozen=True)
class Place:
    name: str
    uri: str
    kind: Literal["table", "quarantine", "tombstones", "files"]
    """files: the list of files that a table has read. It is written to without a lock, and compacted by itself."""
    zorder_by: tuple[str, ...] = ()
    expected: bool = True
    """False: it is there only if an earlier definition has made it."""


def places(table: TablePlan) -> list[Place]:
    """Whether they are made yet or not."""
    found = [Place(table.name, table.uri, "table", table.write.zorder_by)]
    if table.may_reject:
        aside = quarantine_of(table.name, table.uri)
        found.append(Place(aside.table, aside.uri, "quarantine"))
    if table.write.merge is not None:  # tombstones stay when its definition no longer deletes
        dead = tombstones_of(table.name, table.uri)
        found.append(Place(dead.table, dead.uri, "tombstones", expected=table.write.merge.deletes))
    if isinstance(table.source, FilesSource):
        found.append(Place(f"{table.name}.files", table.source.uri, "files"))  # no table can be called so
    return found
