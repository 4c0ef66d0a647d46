"""Maintenance while tables run: one table at a time, between its batches, as often as the project configures."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from penstock.ledger.delta_log import DeltaLog
from penstock.maintenance.optimize import optimize
from penstock.maintenance.retention import span_text
from penstock.maintenance.tables import exclusive_maintenance, maintained_tables, paused_batches, read_history
from penstock.maintenance.vacuum import remove_leftovers, vacuum
from penstock.operations.causes import JvmDied
from penstock.spec.quantity import counted, time_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.maintenance.tables import MaintainedTable, PauseBatches
    from penstock.plan.model import MaintenancePlan, Plan, TablePlan
    from penstock.runtime.context import RunContext
    from penstock.runtime.table_runner import TableRun
    from penstock.storage.stores import Store

MAINTAINED_BY = "the runner"
Work = Literal["optimize", "vacuum"]


def maintain_table(
    work: Work, spark: SparkSession, plan: Plan, table: TablePlan, store: Store, pause_batches: PauseBatches
) -> list[str]:
    """Maintains the table and its companions; the messages say what was done."""
    messages: list[str] = []
    with exclusive_maintenance(spark, plan, table.name):
        for target in maintained_tables(table):
            if not DeltaLog(store, target.uri, target.name).versions():
                continue
            prefix = "" if target.kind == "table" else f"{target.name}: "
            if work == "vacuum":
                messages += [
                    f"{prefix}{message}" for message in _vacuum(spark, plan, table, target, store, pause_batches)
                ]
            elif target.kind != "files":
                result = optimize(spark, plan, table, target, store, by=MAINTAINED_BY, pause_batches=pause_batches)
                messages += [f"{prefix}optimized: {result.summary}"] if result.done else []
        if work == "vacuum":
            old_checkpoints = remove_leftovers(plan, table, store, pause_batches)
            messages += [f"{counted(len(old_checkpoints), 'old checkpoint')} deleted"] if old_checkpoints else []
    return messages


def _vacuum(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    target: MaintainedTable,
    store: Store,
    pause_batches: PauseBatches,
) -> list[str]:
    result = vacuum(spark, plan, table, target, store, by=MAINTAINED_BY, pause_batches=pause_batches)
    messages = []
    if result.remembers_ms is not None:
        messages.append(f"removed files are remembered for {span_text(result.remembers_ms)} from now on")
    if result.files:
        assert result.horizon.at_ms is not None
        messages.append(
            f"vacuumed: {counted(result.files, 'file')} deleted, removed before {time_text(result.horizon.at_ms)}"
        )
    if result.horizon.why is not None:
        messages.append(f"not vacuumed: {result.horizon.why}")
    return messages


JOB_GROUP = "penstock upkeep"
"""The group of the Spark jobs, by which a stop cancels them; and the pool in which they run."""
LOOK_EVERY = 0.5
REST = 1.0
"""Seconds of rest after each table, plus the time its maintenance took: the batches of other tables come first."""


def next_due(last: float | None, started: float, every: float, index: int, tables: int) -> float:
    """The time at which a table is due. Tables that were never maintained are spread over the first round."""
    return last + every if last is not None else started + every * (index + 1) / tables


def maintenance_intervals(plan: MaintenancePlan) -> dict[Work, float]:
    seconds_by_work: dict[Work, float | None] = {"optimize": plan.optimize_seconds, "vacuum": plan.vacuum_seconds}
    return {work: seconds for work, seconds in seconds_by_work.items() if seconds is not None}


class MaintenanceRounds:
    """Maintains the tables of a runner in turn. Times are those of the clock, so that they survive restarts. A failure
    never ends a table: it is reported, and the work is tried again when it is due the next time."""

    def __init__(self, context: RunContext, runs: Mapping[str, TableRun]) -> None:
        self._context, self._runs = context, runs
        self._tables = [table for table in context.plan.tables if table.name in runs]
        self._every = maintenance_intervals(context.plan.maintenance)
        self._started = time.time()
        self._last_done: dict[tuple[str, Work], float] = {}
        target = self._catch_up if context.once else self._run_rounds
        self._thread = threading.Thread(target=target, name="upkeep", daemon=True)

    def start(self) -> None:
        """Starts the rounds beside the tables; a run that ends by itself calls it after them, and then `wait`."""
        self._thread.start()

    def wait(self) -> None:
        """Returns when all is done, or when a stop is asked for."""
        while self._thread.is_alive() and not self._context.stopping.is_set():
            self._thread.join(LOOK_EVERY)

    def stop(self) -> None:
        """Cancels the work in progress: nothing of it was committed, and it is done again another time."""
        while self._thread.is_alive():
            try:
                self._context.spark.sparkContext.cancelJobGroup(JOB_GROUP)
            except Exception:  # the JVM is dead
                return
            self._thread.join(LOOK_EVERY)

    def _catch_up(self) -> None:
        """After a run that has ended by itself: does what is due by now and was not done while no runner was alive."""
        plan, spark = self._context.plan, self._context.spark
        try:
            self._load_last_done()
            for table, work in self._due_work(self._started, first=False):
                if self._context.stopping.is_set():
                    return
                if self._runs[table.name].outcome == "finished":
                    self._maintain(table, work, paused_batches(spark, plan, table.name))
        except Exception as error:
            self._report("", error)

    def _run_rounds(self) -> None:
        try:
            self._load_last_done()
            self._context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", JOB_GROUP)
            while not self._context.stopping.wait(LOOK_EVERY):
                for table, work in self._due_work(time.time(), first=True):
                    run = self._runs[table.name]
                    if self._context.stopping.is_set() or not run.running:
                        continue
                    started = time.monotonic()
                    self._maintain(table, work, run.pause_batches)
                    self._context.stopping.wait(REST + time.monotonic() - started)
        except Exception as error:
            self._report("", error)

    def _load_last_done(self) -> None:
        for table in self._tables:
            done = read_history(self._context.store, self._context.plan.system, table.name).done
            self._last_done |= {(table.name, work): done[work] / 1000 for work in self._every if work in done}

    def _due_work(self, now: float, *, first: bool) -> list[tuple[TablePlan, Work]]:
        """The work that has waited longest comes first. With `first`, a table that was never maintained waits for its
        share of the first round; a run that ends by itself has no rounds."""
        due_work = []
        for index, table in enumerate(self._tables):
            for work, interval in self._every.items():
                last = self._last_done.get((table.name, work))
                due = next_due(last, self._started, interval, index, len(self._tables)) if first or last else 0.0
                if due <= now:
                    due_work.append((due, table, work))
        return [(table, work) for _, table, work in sorted(due_work, key=lambda item: item[0])]

    def _maintain(self, table: TablePlan, work: Work, pause_batches: PauseBatches) -> None:
        context = self._context
        try:
            context.spark.sparkContext.setJobGroup(JOB_GROUP, f"{work} {table.name}")
            for message in maintain_table(work, context.spark, context.plan, table, context.store, pause_batches):
                context.listener.message(table.name, message)
        except Exception as error:
            if not context.stopping.is_set():
                self._report(table.name, error, work)
        finally:
            self._last_done[table.name, work] = time.time()

    def _report(self, table: str, error: Exception, work: str = "upkeep") -> None:
        cause = self._context.explain(error, table)
        if not isinstance(cause, JvmDied):  # reported by whoever needs the JVM
            self._context.listener.message(table, f"{work} was not done: {cause.message}; the table runs on")
