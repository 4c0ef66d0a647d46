"""One checkpoint per stream, which is this table's and says what its ledger says; and what nobody uses any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.protocol.checkpoint import Checkpoint, folder_of, read_checkpoint, why_rebuild
from penstock.engine.protocol.entry import Entry
from penstock.engine.store import Store
from penstock.errors import TableChanged
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.lately import Lately
from penstock.ops.doctor.said import count, listed
from penstock.plan.model import Plan, TablePlan

_TURNS = 3
"""So many generations among the last few commits of a local lake are no coincidence."""
_MANY_OLDER = 20


@dataclass(frozen=True)
class Step:
    """A checkpoint and the ledger, read at one moment."""

    found: Checkpoint | None
    entry: Entry


def read_step(store: Store, table: TablePlan, entry: Entry) -> Step:
    return Step(read_checkpoint(store, folder_of(table.checkpoints, entry)), entry)


def checkpoint(table: TablePlan, look: Callable[[], Step | None], recent: Lately, *, alive: bool, local: bool) -> Check:
    """`look` reads both; twice while the table runs, because a batch may end between the two."""
    about = About("table.checkpoint", table.name)
    step = look()
    if step is None:
        return about.ok("there is no table yet, and so no checkpoint")
    stateful = table.stream is not None
    try:
        reason = why_rebuild(step.found, step.entry, stateful=stateful)
        if reason is not None and alive and (again := look()) is not None:
            reason = why_rebuild(again.found, again.entry, stateful=stateful)
    except TableChanged as error:
        return about.red(error.message, error.hint or "")
    if local and recent.opened >= _TURNS:
        return about.warn(
            f"{recent.opened} generations were opened in the last {recent.commits} commits: two projects, or two "
            "versions of one, seem to take turns at this table",
            f"`penstock history {table.name}` shows what each of them says; let only one project have the table",
        )
    if reason is None:
        return about.ok(f"it says what the ledger says: batch {step.entry.generation}.{step.entry.batch}")
    if stateful and step.entry.batch > 0:
        return about.red(
            f"it holds Spark's state of this table and cannot be made again: {reason}",
            f"put it back; or begin anew: `penstock checkpoints reset {table.name} --to starting`",
        )
    if step.found is not None and step.found.marker is not None and "belongs to" in reason:
        return about.warn(
            f"it is another's: {reason}",
            f"nothing is lost: `penstock run {table.name}` makes it again from the ledger. Find out who put it there: "
            f"{folder_of(table.checkpoints, step.entry)}",
        )
    return about.note(f"{reason}: the next start makes it again from the ledger, with no row lost or doubled")


def leftovers(plan: Plan, store: Store) -> Check:
    """In the lake's own folder."""
    about = About("lake.leftovers")
    folder = f"{plan.system}/checkpoints"
    known = {table.name for table in plan.tables}
    strangers = sorted(name for name in store.names(folder) if name not in known and not name.startswith("."))
    inside = {table.checkpoints: store.names(table.checkpoints) for table in plan.tables}
    # Left by a process that died while it made a checkpoint; the next one that does removes them.
    halves = [f"{place}/{name}" for place, names in inside.items() for name in names if name.endswith(".new")]
    older = sum(max(0, sum(name.isdigit() for name in names) - 1) for names in inside.values())
    if not strangers and not halves and older < _MANY_OLDER:
        return about.ok("every checkpoint belongs to a table of this project")
    parts = []
    if strangers:
        parts.append(f"checkpoints of {count(len(strangers), 'table')} that this project does not have: ")
        parts[-1] += listed(strangers)
    if halves:
        parts.append(f"{count(len(halves), 'half-made checkpoint')}: {listed(halves)}")
    if older >= _MANY_OLDER:
        parts.append(f"{count(older, 'checkpoint')} of earlier generations")
    return about.note(
        "; ".join(parts),
        "leave those of another project alone; what belonged to a table that was renamed, and earlier generations than "
        f"`penstock status --json` names, may be removed from {folder}",
    )
