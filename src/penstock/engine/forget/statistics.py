"""Statistics without names: the log of a table has the least and the greatest value of its columns in every file, in
clear, and no commit takes them back. So columns that say of whom a row is are left out of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.engine.identifiers import quote
from penstock.engine.merge.exchange import Exchange
from penstock.plan.model import TablePlan
from penstock.spec.subjects import STATISTICS

_NONE = "delta.dataSkippingNumIndexedCols"
_MOST = 32
"""Columns of which Delta itself keeps statistics."""
_KINDS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


def with_statistics(table: TablePlan, schema: StructType) -> Mapping[str, str]:
    """The properties that a new table is given."""
    if not table.subjects or STATISTICS in table.properties:
        return table.properties
    return {**table.properties, **statistics_of(table, schema)}


def settle_statistics(spark: SparkSession, table: TablePlan, schema: StructType) -> str | None:
    """Of a table that is there: called under its commit lock. Says what was done, if anything was."""
    if not table.subjects:
        return None
    now = Exchange(spark.newSession(), table.uri)
    stated, none = now.setting(STATISTICS), now.setting(_NONE)
    if (none == "0" and stated is None) or (stated is not None and not _names(stated, _hidden(table))):
        return None
    chosen = ", ".join(f"'{name}' = '{value}'" for name, value in statistics_of(table, schema).items())
    spark.sql(f"ALTER TABLE delta.{quote(table.uri)} SET TBLPROPERTIES ({chosen})")
    return f"no statistics any more of {', '.join(sorted(_hidden(table)))}: the log would keep names in clear"


def statistics_of(table: TablePlan, schema: StructType) -> dict[str, str]:
    """The property of a table with these columns that has statistics of none that names somebody."""
    hidden = _hidden(table)
    left_out = {name.casefold() for name in table.write.partition_by}  # Delta has none of these, and refuses them here
    found = [path for path in _paths(schema) if not _within(path, hidden) and path[0].casefold() not in left_out]
    if not found:
        return {_NONE: "0"}
    return {STATISTICS: ",".join(".".join(map(quote, path)) for path in found[:_MOST])}


def _paths(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in schema.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, path)
        elif isinstance(field.dataType, _KINDS):
            yield path


def _within(path: tuple[str, ...], hidden: set[str]) -> bool:
    steps = [step.casefold() for step in path]
    return any(".".join(steps[:depth]) in hidden for depth in range(1, len(steps) + 1))


def _hidden(table: TablePlan) -> set[str]:
    return {place.column.casefold() for places in table.subjects.values() for place in places}


def _names(stated: str, hidden: set[str]) -> bool:
    """Whether a list of columns has one of those, one that it lies in, or one below it."""
    listed = [name.replace("`", "").strip().casefold() for name in stated.split(",")]
    pairs = ((one, other) for one in listed for other in hidden)
    return any(f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.") for one, other in pairs)
