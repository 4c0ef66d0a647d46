"""Small files, the log since Delta's last checkpoint, and the checkpoints of streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed, size
from penstock.errors import TableChanged
from penstock.ledger.checkpoint import checkpoint_folder, read_checkpoint, why_rebuild

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import RecentCommits, StoredLayout
    from penstock.ledger.checkpoint import Checkpoint
    from penstock.ledger.entry import Entry
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

SMALL = 16 * 1024**2
"""Bytes under which opening a file costs more than reading it."""
TARGET = 256 * 1024**2
"""Bytes of the files that `penstock optimize` writes, unless the project sets another size."""
MANY, VERY_MANY = 200, 2_000
_DEFAULT_INTERVAL = 10
_LATE_FACTOR = 3
"""This many times the usual number of commits since the last checkpoint is no coincidence."""
_LARGE_LOG = 64 * 1024**2


def small_files(table: str, layout: StoredLayout, trigger_seconds: float | None) -> Check:
    check = CheckSubject("table.files", table)
    if not layout.files:
        return check.ok("no files")
    average = layout.bytes / layout.files
    text = f"{count(layout.files, 'file')}, {size(layout.bytes)}, {size(average)} each on average"
    if layout.files < MANY or average >= SMALL:
        return check.ok(text)
    daily_text = (
        f"; a trigger of {trigger_seconds:g} s makes up to {86_400 / trigger_seconds:,.0f} files a day"
        if (trigger_seconds)
        else ""
    )
    file_count = max(1, round(layout.bytes / TARGET))
    fix = (
        f"`penstock optimize {table}` makes about {count(file_count, 'file')} of them and changes no row; maintenance: "
        "{optimize: 1 hour} lets the runner do it. A longer trigger makes fewer files"
    )
    return check.warn(text + daily_text, fix) if layout.files >= VERY_MANY else check.note(text + daily_text, fix)


def log_size(table: str, layout: StoredLayout) -> Check:
    check = CheckSubject("table.log", table)
    interval_text = layout.properties.get("delta.checkpointInterval", "")
    interval = int(interval_text) if interval_text.isdecimal() and int(interval_text) > 0 else _DEFAULT_INTERVAL
    bytes_text = f", {size(layout.log_bytes)}" if layout.log_bytes is not None else ""
    text = f"{count(layout.since_checkpoint, 'commit')} since Delta's last checkpoint{bytes_text} (one is made every "
    text += f"{interval:,})"
    if layout.since_checkpoint > _LATE_FACTOR * interval:
        return check.warn(
            text,
            "checkpoints are made by the process that commits, and seem to fail: look for 'checkpoint' in "
            ".penstock/logs; ALTER TABLE … SET TBLPROPERTIES makes another try",
        )
    if (layout.log_bytes or 0) > _LARGE_LOG:
        return check.note(text, f"write: {{properties: {{delta.checkpointInterval: {max(10, interval // 4)}}}}}")
    return check.ok(text)


# The checks of stream checkpoints: each belongs to its table and agrees with its ledger; and of unused ones.


_MANY_GENERATIONS = 3
"""This many generations opened within the last few commits of a local lake are no coincidence."""
_MANY_OLDER = 20


@dataclass(frozen=True)
class CheckpointState:
    """A checkpoint and the ledger entry, read at the same moment."""

    checkpoint: Checkpoint | None
    entry: Entry


def read_step(store: Store, table: TablePlan, entry: Entry) -> CheckpointState:
    return CheckpointState(read_checkpoint(store, checkpoint_folder(table.checkpoints, entry)), entry)


def checkpoint(
    table: TablePlan,
    read: Callable[[], CheckpointState | None],
    recent_commits: RecentCommits,
    *,
    alive: bool,
    local: bool,
) -> Check:
    """`read` reads checkpoint and ledger; twice while the table runs, because a batch may end between the two reads."""
    check = CheckSubject("table.checkpoint", table.name)
    step = read()
    if step is None:
        return check.ok("there is no table yet, and so no checkpoint")
    stateful = table.stream is not None
    try:
        reason = why_rebuild(step.checkpoint, step.entry, stateful=stateful)
        if reason is not None and alive and (second_step := read()) is not None:
            reason = why_rebuild(second_step.checkpoint, second_step.entry, stateful=stateful)
    except TableChanged as error:
        return check.red(error.message, error.hint or "")
    if local and recent_commits.generations_opened >= _MANY_GENERATIONS:
        return check.warn(
            f"{recent_commits.generations_opened} generations were opened in the last {recent_commits.commits} "
            "commits: two projects, or two versions of one, seem to take turns at this table",
            f"`penstock history {table.name}` shows what each of them says; let only one project have the table",
        )
    if reason is None:
        return check.ok(f"it says what the ledger says: batch {step.entry.generation}.{step.entry.batch}")
    if stateful and step.entry.batch > 0:
        return check.red(
            f"it holds Spark's state of this table and cannot be rebuilt: {reason}",
            f"put it back; or start over: `penstock checkpoints reset {table.name} --to starting`",
        )
    if step.checkpoint is not None and step.checkpoint.marker is not None and "belongs to" in reason:
        return check.warn(
            f"it is another's: {reason}",
            f"nothing is lost: `penstock run {table.name}` makes it again from the ledger. Find out who put it there: "
            f"{checkpoint_folder(table.checkpoints, step.entry)}",
        )
    return check.note(f"{reason}: the next start makes it again from the ledger, with no row lost or doubled")


def leftovers(plan: Plan, store: Store) -> Check:
    """Checkpoints in the folder of the lake that no table uses."""
    check = CheckSubject("lake.leftovers")
    folder = f"{plan.system}/checkpoints"
    table_names = {table.name for table in plan.tables}
    unknown_names = sorted(name for name in store.names(folder) if name not in table_names and not name.startswith("."))
    names_by_folder = {table.checkpoints: store.names(table.checkpoints) for table in plan.tables}
    # Left by a process that died while it wrote a checkpoint; the next process that writes one removes them.
    unfinished = [
        f"{checkpoints}/{name}"
        for checkpoints, names in names_by_folder.items()
        for name in names
        if name.endswith(".new")
    ]
    older_count = sum(max(0, sum(name.isdigit() for name in names) - 1) for names in names_by_folder.values())
    if not unknown_names and not unfinished and older_count < _MANY_OLDER:
        return check.ok("every checkpoint belongs to a table of this project")
    parts = []
    if unknown_names:
        parts.append(f"checkpoints of {count(len(unknown_names), 'table')} that this project does not have: ")
        parts[-1] += listed(unknown_names)
    if unfinished:
        parts.append(f"{count(len(unfinished), 'half-made checkpoint')}: {listed(unfinished)}")
    if older_count >= _MANY_OLDER:
        parts.append(f"{count(older_count, 'checkpoint')} of earlier generations")
    return check.note(
        "; ".join(parts),
        "leave those of another project alone; what belonged to a table that was renamed, and earlier generations than "
        f"`penstock status --json` names, may be removed from {folder}",
    )
