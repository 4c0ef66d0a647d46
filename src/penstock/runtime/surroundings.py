"""What all tables of a runner share, and how each of them is triggered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.gateway import jvm_end
from penstock.engine.store import Store
from penstock.errors import PenstockError
from penstock.plan.model import Plan, TablePlan
from penstock.runtime.causes import explain, jvm_died, seems_dead
from penstock.runtime.listener import Listener
from penstock.runtime.stopping import StopSignals

JVM_PATIENCE = 5.0
"""Seconds from the first call that fails to the end of a JVM that dies."""


@dataclass(frozen=True)
class Surroundings:
    spark: SparkSession
    plan: Plan
    store: Store
    listener: Listener
    once: bool
    log: str
    starts: threading.Semaphore
    """Few queries start at a time: each costs a second of a core."""
    stopping: threading.Event
    signals: StopSignals | None = None

    @property
    def stop_asked(self) -> bool:
        """By a signal: what fails from now on is no failure of a table."""
        return self.signals is not None and self.signals.asked

    def jvm_end(self, patience: float = 0.0) -> str | None:
        """How the JVM ended; None while it runs."""
        return jvm_end(self.spark.sparkContext._gateway, patience)

    def explain(self, error: BaseException, table: str) -> PenstockError:
        """As `causes.explain`; but whatever is said after the JVM's end has one cause."""
        how = self.jvm_end(JVM_PATIENCE if seems_dead(error) else 0.0)
        return jvm_died(self.log, how) if how is not None else explain(error, table, self.log)


def trigger_of(table: TablePlan, *, once: bool) -> dict[str, Any]:
    if once or table.trigger.kind == "available-now":
        return {"availableNow": True}
    if table.trigger.kind == "once" and table.stream is not None:
        return {"availableNow": True}  # Spark's once is one batch, and the first of a query that keeps state is empty
    if table.trigger.kind == "once":
        return {"once": True}
    return {"processingTime": f"{round((table.trigger.seconds or 0) * 1000)} milliseconds"}
