"""How large checkpoints are, how they grow, and what is left over of earlier ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.engine.protocol.beside import KEPT
from penstock.engine.protocol.checkpoint import MARKER
from penstock.engine.store import Size, Store, size_of
from penstock.ops.checkpoints.look import Look
from penstock.plan.model import Plan


@dataclass(frozen=True)
class Leftover:
    """A folder that no start looks at any more."""

    table: str
    folder: str
    what: str
    size: Size


@dataclass(frozen=True)
class Weight:
    size: Size
    state: Size
    """What of it is Spark's state."""
    batches: int
    """So many are in it; Spark keeps the last 100."""

    @property
    def per_batch(self) -> int | None:
        """Bytes that a batch adds, state aside."""
        return (self.size.bytes - self.state.bytes) // self.batches if self.batches else None

    @property
    def grows_to(self) -> int | None:
        """Bytes once it holds as many batches as are kept, state aside."""
        return None if self.per_batch is None else self.per_batch * max(KEPT, self.batches)


def weigh(seen: Look, store: Store) -> Weight:
    if seen.folder is None:
        return Weight(Size(), Size(), 0)
    batches = sum(name.isdigit() for name in store.names(f"{seen.folder}/offsets"))
    return Weight(size_of(store, seen.folder), size_of(store, f"{seen.folder}/state"), batches)


def leftovers(seen: Look, store: Store) -> Iterator[Leftover]:
    """Of a table that is gone or refused, nothing is: a person may need it."""
    table, entry = seen.table, seen.entry
    if entry is None or seen.refusal is not None:
        return
    for name in sorted(store.names(table.checkpoints)):
        folder = f"{table.checkpoints}/{name}"
        if name.endswith(".new"):
            yield Leftover(table.name, folder, "a heal that was cut off", size_of(store, folder))
        elif name.isdigit() and int(name) < entry.generation:
            yield Leftover(table.name, folder, f"generation {name}", size_of(store, folder))
        elif name.isdigit() and int(name) > entry.generation and _ledger(store, folder) != entry.ledger:
            yield Leftover(table.name, folder, "another table of that name", size_of(store, folder))


def strangers(plan: Plan, store: Store) -> Iterator[Leftover]:
    """Checkpoints of tables that the project does not name (any more)."""
    known = {table.name for table in plan.tables}
    for name in sorted(store.names(f"{plan.system}/checkpoints")):
        if name not in known:
            folder = f"{plan.system}/checkpoints/{name}"
            yield Leftover(name, folder, "no table of the project", size_of(store, folder))


def _ledger(store: Store, folder: str) -> str | None:
    try:
        marker = json.loads(store.read(f"{folder}/{MARKER}") or "null")
    except (ValueError, RecursionError):
        return None
    return marker.get("ledger") if isinstance(marker, dict) else None
