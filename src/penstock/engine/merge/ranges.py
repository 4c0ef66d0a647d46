"""Between which values the keys of a batch lie: what Delta skips files by.

A range too narrow would double a key, so the bounds are exact: they stay in the JVM as the values that they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.engine.identifiers import quote

_BOUNDED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, StringType)
"""Types with an order that a file's statistics keep exactly, or safely rounded."""
_COUNTED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)
BUCKETS = 64
_NUMBER = "__number"


def bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)


def widest(schema: StructType, keys: Sequence[str]) -> list[str]:
    """For each key from its least to its greatest value, as aggregates."""
    return [f"{_whole(key)} AS {quote(key)}" for key in keys if bounded(schema[key].dataType)]


def narrower(rows: DataFrame, key: str) -> DataFrame | None:
    """One row with up to 64 ranges in place of one: a few old keys among many new ones then cost few files. None where
    values have no distance."""
    kind = rows.schema[key].dataType
    if not isinstance(kind, _COUNTED):
        return None
    numbered = rows.selectExpr(quote(key), f"{_number(kind, quote(key))} AS {_NUMBER}")
    ends = numbered.selectExpr(f"min({_NUMBER}) AS least", f"max({_NUMBER}) + 1 AS greatest")
    cut = numbered.crossJoin(F.broadcast(ends)).selectExpr(
        quote(key), f"width_bucket({_NUMBER}, least, greatest, {BUCKETS}) AS bucket"
    )
    parts = cut.groupBy("bucket").agg(F.min(quote(key)).alias("low"), F.max(quote(key)).alias("high"))
    return parts.agg(F.collect_list(F.struct("low", "high")).alias(key))


def _whole(key: str) -> str:
    name = quote(key)
    return f"IF(min({name}) IS NULL, NULL, array(struct(min({name}) AS low, max({name}) AS high)))"


def _number(kind: DataType, name: str) -> str:
    if isinstance(kind, DateType):
        return f"CAST(unix_date({name}) AS DOUBLE)"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return f"CAST(unix_micros(CAST({name} AS TIMESTAMP)) AS DOUBLE)"
    return f"CAST({name} AS DOUBLE)"
