"""The target of a sink, from its plan."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.engine.changes.shape import Shape
from penstock.engine.targets.jdbc import JdbcTable
from penstock.engine.targets.target import Target
from penstock.plan.model import TablePlan
from penstock.plan.target import ChangeSink, JdbcTarget


def open_target(spark: SparkSession, table: TablePlan, shape: Shape) -> Target:
    assert isinstance(table.sink, ChangeSink)
    plan = table.sink.target
    match plan:
        case JdbcTarget():
            return JdbcTable(spark, table.name, plan, shape)
    raise NotImplementedError(plan.said)
