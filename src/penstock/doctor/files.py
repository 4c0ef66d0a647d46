"""Small files, the log since Delta's last checkpoint, and the checkpoints of streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed, size
from penstock.errors import TableChanged
from penstock.ledger.checkpoint import folder_of, read_checkpoint, why_rebuild

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import Lately, StoredLayout
    from penstock.ledger.checkpoint import Checkpoint
    from penstock.ledger.entry import Entry
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# Small files, and the log since Delta's last checkpoint.


SMALL = 16 * 1024**2
"""Bytes under which opening a file costs more than reading it."""
TARGET = 256 * 1024**2
"""What `penstock optimize` makes of them, unless the project says otherwise."""
MANY, VERY_MANY = 200, 2_000
_DEFAULT_INTERVAL = 10
_LATE = 3
"""So many times the usual number of commits since the last checkpoint is no chance."""
_LARGE_LOG = 64 * 1024**2


def small_files(table: str, layout: StoredLayout, trigger_seconds: float | None) -> Check:
    about = CheckSubject("table.files", table)
    if not layout.files:
        return about.ok("no files")
    average = layout.bytes / layout.files
    said = f"{count(layout.files, 'file')}, {size(layout.bytes)}, {size(average)} each on average"
    if layout.files < MANY or average >= SMALL:
        return about.ok(said)
    daily = (
        f"; a trigger of {trigger_seconds:g} s makes up to {86_400 / trigger_seconds:,.0f} files a day"
        if (trigger_seconds)
        else ""
    )
    good = max(1, round(layout.bytes / TARGET))
    fix = (
        f"`penstock optimize {table}` makes about {count(good, 'file')} of them and changes no row; maintenance: "
        "{optimize: 1 hour} lets the runner do it. A longer trigger makes fewer files"
    )
    return about.warn(said + daily, fix) if layout.files >= VERY_MANY else about.note(said + daily, fix)


def log_size(table: str, layout: StoredLayout) -> Check:
    about = CheckSubject("table.log", table)
    text = layout.properties.get("delta.checkpointInterval", "")
    interval = int(text) if text.isdecimal() and int(text) > 0 else _DEFAULT_INTERVAL
    bytes_said = f", {size(layout.log_bytes)}" if layout.log_bytes is not None else ""
    said = f"{count(layout.since_checkpoint, 'commit')} since Delta's last checkpoint{bytes_said} (one is made every "
    said += f"{interval:,})"
    if layout.since_checkpoint > _LATE * interval:
        return about.warn(
            said,
            "checkpoints are made by the process that commits, and seem to fail: look for 'checkpoint' in "
            ".penstock/logs; ALTER TABLE … SET TBLPROPERTIES makes another try",
        )
    if (layout.log_bytes or 0) > _LARGE_LOG:
        return about.note(said, f"write: {{properties: {{delta.checkpointInterval: {max(10, interval // 4)}}}}}")
    return about.ok(said)


# One checkpoint per stream, which is this table's and says what its ledger says; and what nobody uses any more.


_TURNS = 3
"""So many generations among the last few commits of a local lake are no coincidence."""
_MANY_OLDER = 20


@dataclass(frozen=True)
class CheckpointStep:
    """A checkpoint and the ledger, read at one moment."""

    found: Checkpoint | None
    entry: Entry


def read_step(store: Store, table: TablePlan, entry: Entry) -> CheckpointStep:
    return CheckpointStep(read_checkpoint(store, folder_of(table.checkpoints, entry)), entry)


def checkpoint(
    table: TablePlan, look: Callable[[], CheckpointStep | None], recent: Lately, *, alive: bool, local: bool
) -> Check:
    """`look` reads both; twice while the table runs, because a batch may end between the two."""
    about = CheckSubject("table.checkpoint", table.name)
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
    about = CheckSubject("lake.leftovers")
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
