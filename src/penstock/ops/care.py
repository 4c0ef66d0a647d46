"""What a runner does to the files of a table when that is due."""

from __future__ import annotations

from typing import Literal

from pyspark.sql import SparkSession

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.upkeep.places import Place, places
from penstock.engine.upkeep.turns import Hold, alone
from penstock.ops.optimize.carry_out import optimize
from penstock.ops.vacuum.carry_out import tidy, vacuum
from penstock.ops.vacuum.guard import span_text, time_text
from penstock.plan.model import Plan, TablePlan
from penstock.spec.quantity import counted

BY = "the runner"


def look_after(
    work: Literal["optimize", "vacuum"], spark: SparkSession, plan: Plan, table: TablePlan, store: Store, hold: Hold
) -> list[str]:
    """The table and what lies beside it; what was done, for people."""
    said: list[str] = []
    with alone(spark, plan, table.name):
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


def _vacuum(spark: SparkSession, plan: Plan, table: TablePlan, place: Place, store: Store, hold: Hold) -> list[str]:
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
