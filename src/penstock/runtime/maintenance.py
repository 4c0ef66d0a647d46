"""Maintenance while tables run: one table at a time, between its batches, as often as the project says."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from penstock.ledger.delta_log import DeltaLog
from penstock.maintenance.optimize import optimize
from penstock.maintenance.retention import span_text, time_text
from penstock.maintenance.tables import exclusive_maintenance, paused_batches, places, read_memory
from penstock.maintenance.vacuum import tidy, vacuum
from penstock.operations.causes import JvmDied
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.maintenance.tables import Hold, MaintainedTable
    from penstock.plan.model import MaintenancePlan, Plan, TablePlan
    from penstock.runtime.context import RunContext
    from penstock.runtime.table_runner import TableRun
    from penstock.storage.stores import Store

# What a runner does to the files of a table when that is due.


BY = "the runner"
Work = Literal["optimize", "vacuum"]


def maintain_table(
    work: Work, spark: SparkSession, plan: Plan, table: TablePlan, store: Store, hold: Hold
) -> list[str]:
    """The table and what lies beside it; what was done, for people."""
    said: list[str] = []
    with exclusive_maintenance(spark, plan, table.name):
        for place in places(table):
            if not DeltaLog(store, place.uri, place.name).versions():
                continue
            beside = "" if place.kind == "table" else f"{place.name}: "
            if work == "vacuum":
                said += [f"{beside}{one}" for one in _vacuum(spark, plan, table, place, store, hold)]
            elif place.kind != "files":
                made = optimize(spark, plan, table, place, store, by=BY, hold=hold)
                said += [f"{beside}optimized: {made.said}"] if made.done else []
        if work == "vacuum":
            old = tidy(plan, table, store, hold)
            said += [f"{counted(len(old), 'old checkpoint')} deleted"] if old else []
    return said


def _vacuum(
    spark: SparkSession, plan: Plan, table: TablePlan, place: MaintainedTable, store: Store, hold: Hold
) -> list[str]:
    made = vacuum(spark, plan, table, place, store, by=BY, hold=hold)
    said = []
    if made.remembers_ms is not None:
        said.append(f"removed files are remembered for {span_text(made.remembers_ms)} from now on")
    if made.files:
        assert made.horizon.at_ms is not None
        said.append(f"vacuumed: {counted(made.files, 'file')} deleted, removed before {time_text(made.horizon.at_ms)}")
    if made.horizon.why is not None:
        said.append(f"not vacuumed: {made.horizon.why}")
    return said


# Looking after files while tables run: one table at a time, between its batches, each as often as the project says.
#
# It never ends a table: what fails is said, and tried again when it is due the next time.


GROUP = "penstock upkeep"
"""Of the Spark jobs, by which a stop ends them; and the pool in which they run."""
LOOK_EVERY = 0.5
REST = 1.0
"""Seconds after each table, and as long as its upkeep took: the batches of others come first."""


def next_due(last: float | None, started: float, every: float, index: int, tables: int) -> float:
    """When a table is due. Those that were never looked after share the first round among them."""
    return last + every if last is not None else started + every * (index + 1) / tables


def every(plan: MaintenancePlan) -> dict[Work, float]:
    found: dict[Work, float | None] = {"optimize": plan.optimize_seconds, "vacuum": plan.vacuum_seconds}
    return {work: span for work, span in found.items() if span is not None}


class MaintenanceRounds:
    """Over the tables of a runner. Times are those of the clock, so that they hold over restarts."""

    def __init__(self, around: RunContext, runs: Mapping[str, TableRun]) -> None:
        self._around, self._runs = around, runs
        self._tables = [table for table in around.plan.tables if table.name in runs]
        self._every = every(around.plan.maintenance)
        self._started = time.time()
        self._last: dict[tuple[str, Work], float] = {}
        work = self._catch_up if around.once else self._live
        self._thread = threading.Thread(target=work, name="upkeep", daemon=True)

    def start(self) -> None:
        """Beside the tables; of a run that ends by itself after them, and then `wait` tells when it is done."""
        self._thread.start()

    def wait(self) -> None:
        """Until it is done, or asked to stop."""
        while self._thread.is_alive() and not self._around.stopping.is_set():
            self._thread.join(LOOK_EVERY)

    def stop(self) -> None:
        """What is under way is broken off: nothing of it was committed, and it is done anew another time."""
        while self._thread.is_alive():
            try:
                self._around.spark.sparkContext.cancelJobGroup(GROUP)
            except Exception:  # the JVM is dead
                return
            self._thread.join(LOOK_EVERY)

    def _catch_up(self) -> None:
        """After a run that has ended by itself: what is due by now, and was not done since a runner last lived."""
        plan, spark = self._around.plan, self._around.spark
        try:
            self._remember()
            for table, work in self._due(self._started, first=False):
                if self._around.stopping.is_set():
                    return
                if self._runs[table.name].outcome == "finished":
                    self._do(table, work, paused_batches(spark, plan, table.name))
        except Exception as error:
            self._say("", error)

    def _live(self) -> None:
        try:
            self._remember()
            self._around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", GROUP)
            while not self._around.stopping.wait(LOOK_EVERY):
                for table, work in self._due(time.time(), first=True):
                    run = self._runs[table.name]
                    if self._around.stopping.is_set() or not run.running:
                        continue
                    began = time.monotonic()
                    self._do(table, work, run.held)
                    self._around.stopping.wait(REST + time.monotonic() - began)
        except Exception as error:
            self._say("", error)

    def _remember(self) -> None:
        for table in self._tables:
            done = read_memory(self._around.store, self._around.plan.system, table.name).done
            self._last |= {(table.name, work): done[work] / 1000 for work in self._every if work in done}

    def _due(self, now: float, *, first: bool) -> list[tuple[TablePlan, Work]]:
        """The one that has waited longest first. With `first` a table that was never looked after waits its share of
        a round; a run that ends at once has no rounds."""
        found = []
        for index, table in enumerate(self._tables):
            for work, span in self._every.items():
                last = self._last.get((table.name, work))
                due = next_due(last, self._started, span, index, len(self._tables)) if first or last else 0.0
                if due <= now:
                    found.append((due, table, work))
        return [(table, work) for _, table, work in sorted(found, key=lambda one: one[0])]

    def _do(self, table: TablePlan, work: Work, hold: Hold) -> None:
        around = self._around
        try:
            around.spark.sparkContext.setJobGroup(GROUP, f"{work} {table.name}")
            for message in maintain_table(work, around.spark, around.plan, table, around.store, hold):
                around.listener.said(table.name, message)
        except Exception as error:
            if not around.stopping.is_set():
                self._say(table.name, error, work)
        finally:
            self._last[table.name, work] = time.time()

    def _say(self, table: str, error: Exception, work: str = "upkeep") -> None:
        cause = self._around.explain(error, table)
        if not isinstance(cause, JvmDied):  # that is told by whoever needs it
            self._around.listener.said(table, f"{work} was not done: {cause.message}; the table runs on")
