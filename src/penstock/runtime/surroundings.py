"""What all tables of a runner share, and how each of them is triggered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.store import Store
from penstock.plan.model import Plan, TablePlan
from penstock.runtime.listener import Listener


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


def trigger_of(table: TablePlan, *, once: bool) -> dict[str, Any]:
    if once or table.trigger.kind == "available-now":
        return {"availableNow": True}
    if table.trigger.kind == "once" and table.stream is not None:
        return {"availableNow": True}  # Spark's once is one batch, and the first of a query that keeps state is empty
    if table.trigger.kind == "once":
        return {"once": True}
    return {"processingTime": f"{round((table.trigger.seconds or 0) * 1000)} milliseconds"}
