"""Times as numbers: what is passed from a batch to a condition is an instant, never a local text.

In a session whose zone has daylight saving, the text of an hour that is repeated means two instants, and that of an
hour that is skipped none. A TIMESTAMP is counted in microseconds since 1970 in UTC, a TIMESTAMP_NTZ in those of its own
clock, a DATE in days: no zone affects it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from penstock.errors import Terminal
from penstock.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_DAY = 86_400_000_000
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_NTZ_EPOCH = "TIMESTAMP_NTZ'1970-01-01 00:00:00'"
_ODD_ZONES = 94_694_400_000_000
"""1973. Before it some zones were off UTC by seconds, and Delta's statistics write a zone to the minute."""
_MINUTE = 60_000_000


def is_time(kind: DataType) -> bool:
    return isinstance(kind, TimestampType | TimestampNTZType | DateType)


def micros(value: str, kind: DataType) -> str:
    """SQL: a time as a number, so that the difference of two is the time between them."""
    if isinstance(kind, TimestampType):
        return f"unix_micros({value})"
    if isinstance(kind, DateType):
        return f"(unix_date({value}) * {_DAY}L)"
    if isinstance(kind, TimestampNTZType):
        seconds = f"CAST(CAST({value} - {_NTZ_EPOCH} AS INTERVAL SECOND) AS DECIMAL(20, 6))"
        return f"CAST({seconds} * 1000000 AS BIGINT)"
    return f"unix_micros(CAST({value} AS TIMESTAMP))"


def time_at(number: int, kind: DataType) -> str:
    """SQL: a literal of the type, from microseconds as `micros` counts them; for a DATE the day that holds them."""
    number = max(_LEAST, min(_GREATEST, number))
    if isinstance(kind, DateType):
        return f"date_from_unix_date({max(-(2**31), min(2**31 - 1, number // _DAY))})"
    if isinstance(kind, TimestampNTZType):
        sign, magnitude = "-" if number < 0 else "+", abs(number)
        return (
            f"({_NTZ_EPOCH} {sign} make_dt_interval({magnitude // _DAY}, 0, 0, {magnitude % _DAY / 1_000_000:.6f}BD))"
        )
    return f"timestamp_micros({number}L)"


def not_before(number: int, kind: DataType) -> str:
    """A lower bound for skipping files: never too high."""
    is_odd = isinstance(kind, TimestampType) and number < _ODD_ZONES
    return time_at(number - _MINUTE if is_odd else number, kind)


def not_after(number: int, kind: DataType) -> str:
    """An upper bound for skipping files: never too low."""
    is_odd = isinstance(kind, TimestampType) and number < _ODD_ZONES
    return time_at(number + _MINUTE if is_odd else number, kind)


def lower_bound(value: str) -> str:
    """SQL: the same for a value that is a TIMESTAMP, as a number."""
    return f"(unix_micros({value}) - IF(unix_micros({value}) < {_ODD_ZONES}L, {_MINUTE}L, 0L))"


def upper_bound(value: str) -> str:
    return f"(unix_micros({value}) + IF(unix_micros({value}) < {_ODD_ZONES}L, {_MINUTE}L, 0L))"


def refuse_local_partitions(spark: SparkSession, schema: StructType, partition_by: Sequence[str], table: str) -> None:
    """Delta takes the value of a TIMESTAMP partition from a folder's name, which is local text: of an hour that occurs
    twice, one half would be read as the other."""
    partition_columns = {name.casefold() for name in partition_by}
    times = [
        f.name
        for f in schema.fields
        if f.name.casefold() in partition_columns and isinstance(f.dataType, TimestampType)
    ]
    if not times:
        return
    zone = spark.conf.get("spark.sql.session.timeZone")
    if not jvm_of(spark).org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone).getRules().isFixedOffset():
        raise Terminal(
            f"partition_by: {', '.join(times)} is a TIMESTAMP, and the clocks of the session's zone, {zone}, change: "
            "Delta would store some times of the hour that comes twice an hour off",
            where=table,
            hint="partition by a DATE made from it, or use cluster_by; or set spark.sql.session.timeZone to UTC",
        )
