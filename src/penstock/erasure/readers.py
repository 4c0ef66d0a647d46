"""Brings readers past the versions in which rows were erased, so that nobody needs the files that hold those rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.erasure.rewrite import PATIENCE
from penstock.errors import LockHeld, PenstockError, UsageError
from penstock.ledger.checkpoint import checkpoint_folder, read_checkpoint
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import stream_tables
from penstock.ledger.generations import open_generation
from penstock.ledger.head import read_head
from penstock.ledger.pending import forgotten_since, owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.maintenance.tables import exclusive_maintenance
from penstock.operations.replay import replay
from penstock.operations.replay_plan import open_table_session
from penstock.operations.reset import plan_stream_reset, run_reset
from penstock.plan.model import TablePlan
from penstock.plan.sources import DeltaSource
from penstock.storage.locks import acquire_commit, holder, lock_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# Tables that depend on Spark's state: it cannot be known whose rows that holds, so they are rebuilt.


def state_predates_erasure(table: TablePlan, source: DeltaSource, store: Store) -> bool:
    """Whether the table's state may hold a subject that has been erased since it started."""
    erased_version = forgotten_since(RecentLog(store, source.uri, source.table or source.uri))
    head = read_head(RecentLog(store, table.uri, table.name))
    if erased_version is None or head is None:
        return False
    start_versions = [
        parse_version(position).version for position in head.entry.began if "reservoirVersion" in position
    ]
    return not start_versions or min(start_versions) <= erased_version


def rebuild_from_start(
    spark: SparkSession, plan: Plan, table: TablePlan, source: DeltaSource, store: Store, tell: Tell
) -> None:
    """Empties the table, lets it read its sources from their start, and deletes its old state. Refused while a runner
    works on it, and if it was configured to begin later than at the start: rows would be missing."""
    if not state_predates_erasure(table, source, store):
        return
    assert table.stream is not None
    late = [
        source_input.table for source_input in table.stream.inputs.values() if source_input.starting.kind != "earliest"
    ]
    if late:
        raise UsageError(
            f"it depends on Spark's state and begins to read {', '.join(map(str, late))} later than at the start: "
            "rebuilt, it would lack rows",
            hint=f"`penstock checkpoints reset {table.name} --to starting` when that may be",
        )
    tell(table.name, "depends on Spark's state, which is rebuilt")
    head = run_reset(spark, plan, plan_stream_reset(table, store, "starting"))
    for name in store.names(table.checkpoints):
        generation = name.partition(".")[0]
        if generation.isdigit() and int(generation) < head.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")


# Exclusive access to a table while its runner continues: no replay and no maintenance happens meanwhile. So a file that
# is in no version is not about to enter one.


_POLL_SECONDS = 0.5


@contextmanager
def exclusive_table(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[TableSession]:
    """Waits for a running replay or optimize; raises LockHeld if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with ExitStack() as locks:
            try:
                locks.enter_context(exclusive_maintenance(spark, plan, table.name))
                work = locks.enter_context(open_table_session(spark, plan, table))
            except LockHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            yield work
            return


# Readers that another process runs get there by themselves; all others are run here, as `penstock run --once` would.
# Groups are computed again by their own next batch. Closed windows and tables on Spark's state are rebuilt.


Run = Callable[[TablePlan], PenstockError | None]
"""Runs a table up to the current end of its sources; returns the error if that failed."""
NOTE = "forget: nothing from before it is read again"


@dataclass(frozen=True)
class ReaderProgress:
    table: str
    reads: str
    version: int
    """Version of the table that it reads in which rows were erased."""
    problem: str | None = None
    """Why the reader is not past that version."""


def sources_of(table: TablePlan) -> list[DeltaSource]:
    """The tables of the project that it reads as streams."""
    return [source for source in table.delta_sources if source.table is not None]


def catch_up_readers(
    spark: SparkSession, plan: Plan, store: Store, run: Run, tell: Tell, patience: float
) -> list[ReaderProgress]:
    """Upstream before downstream, so that each reader also gets past the changes that this makes to its upstream."""
    deadline = time.monotonic() + patience
    progress: list[ReaderProgress] = []
    changed: set[str] = {
        table.name for table in plan.tables if forgotten_since(RecentLog(store, table.uri, table.name)) is not None
    }
    for table in plan.tables:
        sources = [source for source in sources_of(table) if source.table in changed]
        if not sources or read_head(RecentLog(store, table.uri, table.name)) is None:
            continue
        changed.add(table.name)
        for source in sources:
            version = _newest_change(store, source)
            if version is not None:
                problem = _catch_up(spark, plan, table, source, version, store, run, tell, deadline)
                progress.append(ReaderProgress(table.name, source.table or source.uri, version, problem))
    return progress


def _catch_up(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    source: DeltaSource,
    version: int,
    store: Store,
    run: Run,
    tell: Tell,
    deadline: float,
) -> str | None:
    """Returns None when the reader is past the version, else the reason why it is not."""
    try:
        if table.stream is not None:
            rebuild_from_start(spark, plan, table, source, store, tell)
        ran_here = False
        while _version_read(table, source, store) < version:
            if running(plan, table) and time.monotonic() < deadline:
                tell(table.name, f"waits until it has read version {version} of {source.table}")
                time.sleep(_POLL_SECONDS)
                continue
            if ran_here or running(plan, table):
                return f"has read {source.table} up to version {_version_read(table, source, store)} of {version}"
            ran_here = True
            tell(table.name, "reads on")
            if (failure := run(table)) is not None:
                return failure.message
        if table.aggregate is not None and table.aggregate.emit == "final":
            _replay_final_windows(spark, plan, table, source, store, tell)
    except PenstockError as error:
        return error.message
    return None


def _replay_final_windows(
    spark: SparkSession, plan: Plan, table: TablePlan, source: DeltaSource, store: Store, tell: Tell
) -> None:
    """No batch touches closed windows, so the table is replayed."""
    erased_version = forgotten_since(RecentLog(store, source.uri, source.table or ""))
    head = _ledger_head(table, store)
    if erased_version is None or (head.entry.base is not None and head.entry.base >= erased_version):
        return
    with exclusive_table(spark, plan, table) as work:
        tell(table.name, "is rebuilt")
        replay(work, None, "replay, after a forget")


def skip_last_batch(spark: SparkSession, plan: Plan, table: TablePlan, store: Store) -> bool:
    """Opens a generation at the table's position: its last batch, which is complete, is never run again and so needs no
    files. Its stream restarts there by itself. False if the last batch is not complete."""
    if table.stream is not None:
        return False
    with exclusive_table(spark, plan, table) as work:
        acquire_commit(work.lock, table.name)
        try:
            head = _ledger_head(table, work.store)
            entry = head.entry
            has_pending = pending_replay(entry) is not None or pending_rewind(entry) is not None or owes_jump(entry)
            if has_pending or not _is_batch_done(table, entry, work.store):
                return False
            row_counts = read_row_counts(work.store, checkpoint_folder(table.checkpoints, entry), entry.batch)
            without_lookups = replace(entry, pins=replace(entry.pins, lookups={}))
            open_generation(
                work.spark,
                work.log,
                replace(head, entry=without_lookups, row_counts=row_counts),
                table.uri,
                after=entry.after,
                topics=entry.topics,
                subscription=entry.subscription,
                definition=entry.pins.definition,
                note=NOTE,
            )
            return True
        finally:
            work.lock.release()


def running(plan: Plan, table: TablePlan) -> bool:
    """Whether another process runs it. On an object store nothing tells, so it is run here: that is safe there."""
    return plan.local and holder(lock_path(plan.system, table.name, "run")) is not None


def _is_batch_done(table: TablePlan, entry: Entry, store: Store) -> bool:
    if entry.batch == 0:
        return True
    checkpoint = read_checkpoint(store, checkpoint_folder(table.checkpoints, entry))
    return checkpoint is not None and bool(checkpoint.commits.get(entry.batch))


def _newest_change(store: Store, source: DeltaSource) -> int | None:
    log = RecentLog(store, source.uri, source.table or source.uri)
    return next((commit.version for commit in log.backwards() if commit.changes), None)


def _version_read(table: TablePlan, source: DeltaSource, store: Store) -> int:
    entry = _ledger_head(table, store).entry
    if pending_replay(entry) is not None:
        return -1
    names = stream_tables(entry)
    positions = [position for name, position in zip(names, entry.after, strict=False) if name == source.table] or [
        *entry.after[:1]
    ]
    parsed = [parse_version(position) for position in positions if "reservoirVersion" in position]
    return min((-1 if position.snapshot else position.read_up_to for position in parsed), default=-1)


def _ledger_head(table: TablePlan, store: Store) -> LedgerHead:
    head = read_head(RecentLog(store, table.uri, table.name))
    assert head is not None
    return head
