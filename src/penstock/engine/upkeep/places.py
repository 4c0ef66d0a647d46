"""The Delta tables that belong to a table of the project, and whose files are looked after with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from penstock.engine.store import Store
from penstock.plan.files import FilesSource
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import MOVED_ASIDE, SUFFIX, TOMBSTONES, quarantine_of, tombstones_of


@dataclass(frozen=True)
class Place:
    name: str
    uri: str
    kind: Literal["table", "quarantine", "tombstones", "files"]
    """files: the list of files that a table has read. It is written to without a lock, and compacted by itself."""
    zorder_by: tuple[str, ...] = ()
    expected: bool = True
    """False: it is there only if an earlier definition has made it."""

    @property
    def ledger(self) -> str:
        """The table that the entries of its log name: it may have been moved since."""
        return self.name.partition(MOVED_ASIDE)[0]


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


def all_places(table: TablePlan, store: Store) -> list[Place]:
    """With what nothing reads any more and still holds rows: a quarantine or tombstones of an earlier definition, and
    those of an earlier table of its name, which were moved aside."""
    found = places(table)
    known = {one.uri for one in found}
    return [*found, *(one for one in _left_beside(table, store) if one.uri not in known)]


def _left_beside(table: TablePlan, store: Store) -> Iterator[Place]:
    folder, _, own = table.uri.rpartition("/")
    kinds: dict[str, Literal["quarantine", "tombstones"]] = {SUFFIX: "quarantine", TOMBSTONES: "tombstones"}
    for name in sorted(store.names(folder)):
        suffix, moved, _ = name.removeprefix(own).partition(MOVED_ASIDE)
        uri = f"{folder}/{name}"
        if name.startswith(own) and suffix in kinds and (moved or store.names(f"{uri}/_delta_log")):
            yield Place(f"{table.name}{name.removeprefix(own)}", uri, kinds[suffix], expected=False)
