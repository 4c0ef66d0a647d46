"""Between which values the keys of a batch lie: what Delta skips files by.

A range too narrow would double a key, so the bounds are exact: they stay in the JVM as the values that they are. Dates
and instants stay there as days and microseconds since 1970: Java's own types for them have the zone of the process.
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
from penstock.engine.times import lower, micros, upper

_BOUNDED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, StringType)
"""Types with an order that a file's statistics keep exactly, or safely rounded."""
_COUNTED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)
BUCKETS = 64
_NUMBER = "__number"


def bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)


def widest(schema: StructType, keys: Sequence[str]) -> list[str]:
    """For each key from its least to its greatest value, as aggregates."""
    return [f"{_whole(schema[key].dataType, key)} AS {quote(key)}" for key in keys if bounded(schema[key].dataType)]


def narrower(rows: DataFrame, key: str) -> DataFrame | None:
    """One row with up to 64 ranges in place of one: a few old keys among many new ones then cost few files. None where
    values have no distance."""
    kind = rows.schema[key].dataType
    if not isinstance(kind, _COUNTED):
        return None
    numbered = rows.selectExpr(quote(key), f"{_number(kind, quote(key))} AS {_NUMBER}")
    span = numbered.selectExpr(f"min({_NUMBER}) AS __least", f"max({_NUMBER}) + 1 AS __greatest")
    cut = numbered.crossJoin(F.broadcast(span)).selectExpr(
        quote(key), f"width_bucket({_NUMBER}, __least, __greatest, {BUCKETS}) AS __bucket"
    )
    parts = cut.groupBy("__bucket").agg(F.min(quote(key)).alias("least"), F.max(quote(key)).alias("greatest"))
    ends = parts.selectExpr(*_ends(kind, "least", "greatest"))
    found = ends.agg(F.collect_list(F.struct("low", "high")).alias("ranges"), F.count("low").alias("count"))
    return found.selectExpr(f"IF(count = 0, NULL, ranges) AS {quote(key)}")


def _whole(kind: DataType, key: str) -> str:
    low, high = _ends(kind, f"min({quote(key)})", f"max({quote(key)})")
    return f"IF(min({quote(key)}) IS NULL, NULL, array(struct({low}, {high})))"


def _ends(kind: DataType, least: str, greatest: str) -> tuple[str, str]:
    """As Spark itself holds them, where Java's types for them would not."""
    if isinstance(kind, DateType):
        return f"unix_date({least}) AS low", f"unix_date({greatest}) AS high"
    if isinstance(kind, TimestampType):
        return f"{lower(least)} AS low", f"{upper(greatest)} AS high"
    return f"{least} AS low", f"{greatest} AS high"


def _number(kind: DataType, name: str) -> str:
    if isinstance(kind, DateType):
        return f"CAST(unix_date({name}) AS DOUBLE)"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return f"CAST({micros(name, kind)} AS DOUBLE)"
    return f"CAST({name} AS DOUBLE)"
