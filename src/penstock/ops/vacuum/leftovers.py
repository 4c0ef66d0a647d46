"""What Penstock itself leaves behind: checkpoints of generations that nobody goes back to, and halves of new ones."""

from __future__ import annotations

from penstock.engine.protocol.entry import Entry
from penstock.engine.store import Store
from penstock.plan.model import Plan, TablePlan

KEPT = 2
"""Generations: the one that runs, and the one before it, to look at after an accident."""


def leftovers(plan: Plan, table: TablePlan, store: Store, entry: Entry) -> list[str]:
    """Folders of checkpoints. `entry` is the last one of the table: no generation before its own can write any more.

    On a local lake a half-made one is left by a process that died, if this is asked under the commit lock. Elsewhere
    one of the newest generation may be in the making."""
    found = []
    for name in sorted(store.names(table.checkpoints)):
        generation, _, rest = name.partition(".")
        if not generation.isdigit():
            continue
        old = int(generation) <= entry.generation - KEPT
        half = rest.endswith("new") and (plan.local or int(generation) < entry.generation)
        if (old and not rest) or half:
            found.append(f"{table.checkpoints}/{name}")
    return found
