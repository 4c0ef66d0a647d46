"""Changes that leave out what they do not change: NULL keeps the existing value.

To give the same result in any order of arrival, a row remembers in `_since` which change each of its values is from,
and its last delete. A value older than that delete is dropped, however late its change arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.spark.sql_types import sql_type
from penstock.spec.table_kinds import SINCE
from penstock.tables.merge.row_exchange import FILE, PLACE
from penstock.tables.merge.scd import TIE, outcome, row
from penstock.tables.merge.truncate import ORDER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ENDED = "_deleted"
"""In `_since`: the last delete of a row that was inserted again."""


def with_orders(table: StructType, values: Sequence[str]) -> StructType:
    """The table's columns and `_since`."""
    order = StructType([StructField("s", table[SEQUENCE].dataType), StructField("p", table[SOURCE].dataType)])
    since = StructType([*(StructField(name, order) for name in values), StructField(_ENDED, order)])
    return StructType([*table.fields, StructField(SINCE, since)])


def fold_updates(changes: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """One row per key: its last update and its last delete, and of each value the last that was not NULL."""
    aggregates = [
        F.expr(f"max(IF(NOT {DELETED}, {ORDER}, NULL))").alias("__updated"),
        F.expr(f"max(IF({DELETED}, {ORDER}, NULL))").alias("__ended"),
        F.expr(f"max({DELETED_AT})").alias("__at"),
    ]
    for index, name in enumerate(values):
        is_given = f"NOT {DELETED} AND {quote(name)} IS NOT NULL"
        last = f"max_by(named_struct('o', {ORDER}, 'v', {quote(name)}), IF({is_given}, {ORDER}, NULL))"
        aggregates.append(F.expr(last).alias(f"__given{index}"))
    return changes.groupBy(*map(quote, keys)).agg(*aggregates)


def merge_partial_updates(
    updates: DataFrame,
    existing: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    values: Sequence[str],
    *,
    feed: bool,
) -> DataFrame:
    """The merge result. `existing` has the table row or the tombstone of each of these keys, and its place."""
    old = existing.selectExpr(
        *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
        *(f"named_struct('o', {SINCE}.{quote(n)}, 'v', {quote(n)}) AS `__had{i}`" for i, n in enumerate(values)),
        f"IF({DELETED}, NULL, {ORDER}) AS __was_updated",
        f"IF({DELETED}, {ORDER}, {SINCE}.{_ENDED}) AS __was_ended",
        f"{DELETED} AS __d",
        f"{DELETED_AT} AS __was_at",
        f"{SINCE} AS __was_since",
        FILE,
        PLACE,
        *([f"{row(columns)} AS __was"] if feed else []),
    )
    same_key = " AND ".join(f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys))
    joined = updates.alias("new").join(old.alias("old"), F.expr(same_key), "left")
    merged = joined.selectExpr(
        "*", "greatest(__updated, __was_updated) AS __u", "greatest(__ended, __was_ended) AS __e"
    ).selectExpr("*", f"(__u IS NULL OR coalesce(__e > __u, false)) AS {DELETED}")
    with_values = merged.selectExpr(
        "*",
        f"IF({DELETED}, __e, __u) AS __last",
        *(f"{_later_value(index)} AS `__is{index}`" for index in range(len(values))),
    )
    orders = [f"{literal(name)}, `__is{index}`.o" for index, name in enumerate(values)]
    since = ", ".join([*orders, f"'{_ENDED}', IF({DELETED}, NULL, __e)"])
    types = {field.name: sql_type(field.dataType) for field in existing.schema.fields}
    computed_columns = {*keys, *values, SEQUENCE, DELETED, DELETED_AT, SOURCE, SINCE}
    result = with_values.selectExpr(
        *map(quote, keys),
        *(f"`__is{index}`.v AS {quote(name)}" for index, name in enumerate(values)),
        f"__last.s AS {SEQUENCE}",
        DELETED,
        f"IF({DELETED}, IF(__last <=> __was_ended, __was_at, __at), NULL) AS {DELETED_AT}",
        f"__last.p AS {SOURCE}",
        f"named_struct({since}) AS {SINCE}",
        *(f"CAST(NULL AS {types[name]}) AS {quote(name)}" for name in columns if name not in computed_columns),
        "__last",
        "coalesce(__was_updated, __was_ended) AS __was_last",
        "__was_since",
        "__d",
        FILE,
        PLACE,
        *(["__was"] if feed else []),
    )
    unchanged = f"(__last <=> __was_last AND ({DELETED} OR {SINCE} <=> __was_since))"
    took = f"(__d IS NULL OR NOT {unchanged})"
    return outcome(result.selectExpr("*", f"{took} AS __took", f"false AS {TIE}"), columns, feed=feed)


def _later_value(index: int) -> str:
    """The later of the old value and the new one, or NULL if a delete came after both."""
    old, new = f"`__had{index}`", f"`__given{index}`"
    newer = f"{new}.o IS NOT NULL AND ({old}.o IS NULL OR {new}.o > {old}.o)"
    later = f"IF({newer}, {new}, {old})"
    return f"IF({DELETED} OR coalesce({later}.o < __e, false) OR {later}.o IS NULL, NULL, {later})"
