"""Readers brought past the versions in which rows were erased, so that nobody needs the files that hold them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import LockHeld, PenstockError, UsageError
from penstock.ledger.checkpoint import folder_of, read_checkpoint
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import named_streams
from penstock.ledger.generations import open_generation
from penstock.ledger.head import read_head
from penstock.ledger.pending import forgotten_since, owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.maintenance.tables import exclusive_maintenance
from penstock.operations.replay import replay
from penstock.operations.replay_plan import working_on
from penstock.operations.reset import plan_stream_reset, run_reset
from penstock.plan.model import TablePlan
from penstock.plan.sources import DeltaSource
from penstock.storage.locks import acquire_commit, holder, lock_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# Tables that rest on Spark's state: nobody can say whom that holds, so it is made anew.


def begun_before(table: TablePlan, source: DeltaSource, store: Store) -> bool:
    """Whether its state may hold somebody who was forgotten since."""
    forgotten = forgotten_since(RecentLog(store, source.uri, source.table or source.uri))
    tail = read_head(RecentLog(store, table.uri, table.name))
    if forgotten is None or tail is None:
        return False
    began = [parse_version(one).version for one in tail.entry.began if "reservoirVersion" in one]
    return not began or min(began) <= forgotten


def begin_anew(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    source: DeltaSource,
    store: Store,
    told: Callable[[str, str], None],
) -> None:
    """It is emptied, reads its sources from their start, and its old state is deleted. Refused while a runner works on
    it, and where it did not begin at the start: rows would be missing."""
    if not begun_before(table, source, store):
        return
    assert table.stream is not None
    later = [one.table for one in table.stream.inputs.values() if one.starting.kind != "earliest"]
    if later:
        raise UsageError(
            f"it rests on Spark's state and begins to read {', '.join(map(str, later))} later than at the start: made "
            "anew, it would lack rows",
            hint=f"`penstock checkpoints reset {table.name} --to starting` when that may be",
        )
    told(table.name, "rests on Spark's state, which is made anew")
    tail = run_reset(spark, plan, plan_stream_reset(table, store, "starting"))
    for name in store.names(table.checkpoints):
        generation = name.partition(".")[0]
        if generation.isdigit() and int(generation) < tail.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")


# A table for oneself, beside its runner: nobody replays it, and nobody looks after its files, meanwhile. So a file
# that is in no version is one that is not about to get into one.


PATIENCE = 600.0
_POLL = 0.5


@contextmanager
def exclusive_table(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[TableSession]:
    """Waits for a replay or an optimize that is under way; LockHeld if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with ExitStack() as held:
            try:
                held.enter_context(exclusive_maintenance(spark, plan, table.name))
                work = held.enter_context(working_on(spark, plan, table))
            except LockHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
                continue
            yield work
            return


# Readers brought past the versions in which somebody was forgotten, so that nobody needs the files that hold him.
#
# Those that another process runs get there by themselves; all others are run here, as `penstock run --once` would.
# Groups are computed again by their own next batch. What is closed, or rests on Spark's state, is made anew.


Told = Callable[[str, str], None]
"""A table, and what is being done with it."""
Run = Callable[[TablePlan], PenstockError | None]
"""Runs a table up to what is there now; why that failed."""
NOTE = "forget: nothing from before it is read again"


@dataclass(frozen=True)
class Waited:
    table: str
    reads: str
    version: int
    """Of the table that it reads, in which somebody was forgotten."""
    problem: str | None = None
    """Why it is not past it."""


def sources_of(table: TablePlan) -> list[DeltaSource]:
    """The tables of the project that it reads as they grow."""
    return [source for source in table.delta_sources if source.table is not None]


def bring_on(spark: SparkSession, plan: Plan, store: Store, run: Run, told: Told, patience: float) -> list[Waited]:
    """Upstream before downstream: each is past what its upstream has become through the ones before it."""
    deadline = time.monotonic() + patience
    found: list[Waited] = []
    changed: set[str] = {
        table.name for table in plan.tables if forgotten_since(RecentLog(store, table.uri, table.name)) is not None
    }
    for table in plan.tables:
        reads = [one for one in sources_of(table) if one.table in changed]
        if not reads or read_head(RecentLog(store, table.uri, table.name)) is None:
            continue
        changed.add(table.name)
        for source in reads:
            version = _newest_change(store, source)
            if version is not None:
                problem = _past(spark, plan, table, source, version, store, run, told, deadline)
                found.append(Waited(table.name, source.table or source.uri, version, problem))
    return found


def _past(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    source: DeltaSource,
    version: int,
    store: Store,
    run: Run,
    told: Told,
    deadline: float,
) -> str | None:
    """None when it is; else why not."""
    try:
        if table.stream is not None:
            begin_anew(spark, plan, table, source, store, told)
        alone = False
        while _reached(table, source, store) < version:
            if running(plan, table) and time.monotonic() < deadline:
                told(table.name, f"waits until it has read version {version} of {source.table}")
                time.sleep(_POLL)
                continue
            if alone or running(plan, table):
                return f"has read {source.table} up to version {_reached(table, source, store)} of {version}"
            alone = True
            told(table.name, "reads on")
            if (failed := run(table)) is not None:
                return failed.message
        if table.aggregate is not None and table.aggregate.emit == "final":
            _recompute(spark, plan, table, source, store, told)
    except PenstockError as error:
        return error.message
    return None


def _recompute(
    spark: SparkSession, plan: Plan, table: TablePlan, source: DeltaSource, store: Store, told: Told
) -> None:
    """Windows that are closed are touched by no batch."""
    forgotten = forgotten_since(RecentLog(store, source.uri, source.table or ""))
    tail = _tail(table, store)
    if forgotten is None or (tail.entry.base is not None and tail.entry.base >= forgotten):
        return
    with exclusive_table(spark, plan, table) as work:
        told(table.name, "is made anew")
        replay(work, None, "replay, after a forget")


def step_over(spark: SparkSession, plan: Plan, table: TablePlan, store: Store) -> bool:
    """Opens a generation where the table is: its last batch, which is done, is not run again, and so needs no files.
    Its stream begins anew there, by itself. False if the last batch is not done."""
    if table.stream is not None:
        return False
    with exclusive_table(spark, plan, table) as work:
        acquire_commit(work.lock, table.name)
        try:
            tail = _tail(table, work.store)
            entry = tail.entry
            owes = pending_replay(entry) is not None or pending_rewind(entry) is not None or owes_jump(entry)
            if owes or not _done(table, entry, work.store):
                return False
            row_counts = read_row_counts(work.store, folder_of(table.checkpoints, entry), entry.batch)
            alone = replace(entry, pins=replace(entry.pins, lookups={}))
            open_generation(
                work.spark,
                work.log,
                replace(tail, entry=alone, row_counts=row_counts),
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
    """By another process. On an object store nobody can tell, so it is run here: that is safe there."""
    return plan.local and holder(lock_path(plan.system, table.name, "run")) is not None


def _done(table: TablePlan, entry: Entry, store: Store) -> bool:
    if entry.batch == 0:
        return True
    found = read_checkpoint(store, folder_of(table.checkpoints, entry))
    return found is not None and bool(found.commits.get(entry.batch))


def _newest_change(store: Store, source: DeltaSource) -> int | None:
    log = RecentLog(store, source.uri, source.table or source.uri)
    return next((commit.version for commit in log.backwards() if commit.changes), None)


def _reached(table: TablePlan, source: DeltaSource, store: Store) -> int:
    entry = _tail(table, store).entry
    if pending_replay(entry) is not None:
        return -1
    names = named_streams(entry)
    wanted = [one for name, one in zip(names, entry.after, strict=False) if name == source.table] or [*entry.after[:1]]
    ends = [parse_version(one) for one in wanted if "reservoirVersion" in one]
    return min((-1 if one.snapshot else one.read_up_to for one in ends), default=-1)


def _tail(table: TablePlan, store: Store) -> LedgerHead:
    tail = read_head(RecentLog(store, table.uri, table.name))
    assert tail is not None
    return tail
