"""Rows with the batch in which their record came."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.stages.coordinates import SOURCE
from penstock.ops.verify.again.around import Around
from penstock.ops.verify.arrivals import Arrival, arrivals

NUMBER = "__arrived"


def numbered_arrivals(around: Around) -> Callable[[DataFrame], DataFrame]:
    """Adds NUMBER to rows with `_source`. Terminal where the ledgers do not tell it."""
    found = arrivals(around.table, around.tables, around.store)
    return lambda rows: _with_number(around.spark, rows, found)


def _with_number(spark: SparkSession, rows: DataFrame, found: list[Arrival]) -> DataFrame:
    made = [(one.topic, one.partition, one.start, one.end, one.number) for one in found]
    known = spark.createDataFrame(made, "__t STRING, __p INT, __s BIGINT, __e BIGINT, " + f"{NUMBER} BIGINT")
    place = f"{SOURCE}.topic = __t AND {SOURCE}.partition = __p AND {SOURCE}.offset >= __s AND {SOURCE}.offset < __e"
    return rows.join(F.broadcast(known), F.expr(place), "left").drop("__t", "__p", "__s", "__e")
