"""A table's ledger and its checkpoint, as they stand now: looked at beside a running query, nothing changed."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.comparison import compare, read_ledger, refuse_gone
from penstock.engine.protocol.checkpoint import Checkpoint, folder_of, read_checkpoint
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import Tail
from penstock.engine.store import Store
from penstock.errors import PenstockError, Terminal
from penstock.ops.recent import RecentLog
from penstock.plan.model import TablePlan

_TRIES = 20
"""A running query may commit between the look at its table and the one at its checkpoint: then it is looked again."""


@dataclass(frozen=True)
class Look:
    """`refusal` is what a start would raise; then `why` says nothing. Without a table, `tail` is None."""

    table: TablePlan
    tail: Tail | None = None
    folder: str | None = None
    """Of the generation in which the ledger ends."""
    found: Checkpoint | None = None
    why: str | None = None
    """Why the checkpoint has to be rebuilt; None if it is in step with the ledger."""
    refusal: PenstockError | None = None

    @property
    def entry(self) -> Entry | None:
        return self.tail.entry if self.tail is not None else None

    @property
    def planned(self) -> int | None:
        return max(self.found.offsets, default=None) if self.found is not None else None

    @property
    def committed(self) -> int | None:
        return max(self.found.commits, default=None) if self.found is not None else None

    @property
    def in_step(self) -> bool:
        return self.tail is not None and self.refusal is None and self.why is None


def look(table: TablePlan, store: Store) -> Look:
    """Nothing is raised because of the table: it is in the answer."""
    seen = _look(table, store)
    for _ in range(_TRIES):
        if seen.in_step or seen.tail is None:
            return seen
        again = _look(table, store)
        if _same(seen, again):
            return again
        seen = again
    return seen


def _look(table: TablePlan, store: Store) -> Look:
    log = RecentLog(store, table.uri, table.name)
    try:
        tail = read_ledger(log, store, table)
        if tail is None:
            refuse_gone(store, table)
            return Look(table)
    except PenstockError as error:
        return Look(table, refusal=error)
    except (ValueError, KeyError, OSError) as error:
        return Look(table, refusal=Terminal(f"the log of {table.uri} cannot be read: {error}", where=table.name))
    folder = folder_of(table.checkpoints, tail.entry)
    found = read_checkpoint(store, folder)
    try:
        return Look(table, tail, folder, found, compare(store, log, table, tail, found))
    except PenstockError as error:
        return Look(table, tail, folder, found, refusal=error)


def _same(one: Look, other: Look) -> bool:
    """What is wrong is wrong still, and nobody has written meanwhile."""
    return one.entry == other.entry and one.found == other.found
