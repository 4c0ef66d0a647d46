"""A table for oneself, beside its runner: nobody replays it, and nobody looks after its files, meanwhile. So a file
that is in no version is one that is not about to get into one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pyspark.sql import SparkSession

from penstock.engine.replay.fill import Work
from penstock.engine.upkeep.turns import alone
from penstock.errors import LockHeld
from penstock.ops.replay.carry_out import working_on
from penstock.plan.model import Plan, TablePlan

PATIENCE = 600.0
_POLL = 0.5


@contextmanager
def to_oneself(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[Work]:
    """Waits for a replay or an optimize that is under way; LockHeld if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with ExitStack() as held:
            try:
                held.enter_context(alone(spark, plan, table.name))
                work = held.enter_context(working_on(spark, plan, table))
            except LockHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
                continue
            yield work
            return
