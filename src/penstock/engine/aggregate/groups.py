"""Groups of rows: their windows, their keys, their metrics, as a batch query has them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.merge.tombstones import living
from penstock.plan.model import DeltaSource
from penstock.plan.stages import AggregatePlan

START, END = "window_start", "window_end"
_WINDOW = "__window"


def source_at(session: SparkSession, source: DeltaSource, version: int) -> DataFrame:
    rows = session.read.format("delta").option("versionAsOf", version).load(source.uri)
    if source.merged:
        rows = living(rows)
    return rows.where(source.where) if source.where is not None else rows


def computed(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups of the rows, as a batch query has them."""
    metrics = [F.expr(expression).alias(name) for name, expression in plan.metrics.items()]
    made = _windowed(rows, plan).groupBy(*_group_columns(plan)).agg(*metrics)
    return made.select(*_named(plan), *map(quote, plan.metrics))


def touched(batch: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have a row in the batch."""
    return _windowed(batch, plan).select(*_group_columns(plan)).distinct().select(*_named(plan))


def _windowed(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    if plan.time is None:
        return rows
    size, every = (f"{milliseconds} milliseconds" for milliseconds in (plan.size_ms, plan.every_ms))
    return rows.withColumn(_WINDOW, F.window(quote(plan.time), size, every))


def _group_columns(plan: AggregatePlan) -> list[str]:
    return [*map(quote, plan.keys), *([_WINDOW] if plan.time else [])]


def _named(plan: AggregatePlan) -> list[Column]:
    window = [F.col(f"{_WINDOW}.start").alias(START), F.col(f"{_WINDOW}.end").alias(END)] if plan.time else []
    return [*window, *(F.col(quote(key)) for key in plan.keys)]


def group_names(plan: AggregatePlan) -> list[str]:
    return [*([START, END] if plan.time else []), *plan.keys]
