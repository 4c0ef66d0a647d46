"""Rows whose keys are in the table already are left out; of those within a batch the first by its coordinates stays.

The table itself is the memory: there is no state to lose. It is read unpinned and within the write, so that a
concurrent append makes the write fail instead of doubling a row. Only files that can hold the batch's keys are read:
the bounds of the keys and of the time stand as literals in the condition, which is what Delta skips files by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from penstock.ledger.times import is_time, micros, not_after, not_before
from penstock.sources.columns import SOURCE
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import (
        DataType,
        StructType,
    )

    from penstock.plan.stages import DedupePlan

_BOUNDED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, StringType)
"""Types whose bounds can be written and read again exactly: times as numbers, all others as text."""
NUMBER = "__row"
_MOST_BROADCAST = 2_000_000
"""Numbers of rows, 100 MB of memory. With more of them Spark joins by a shuffle, and rows lose their order, by which
files are skipped later."""


def numbered(rows: DataFrame) -> DataFrame:
    """The rows as `without_duplicates` takes them; to be kept in memory, for they are read several times."""
    return rows.withColumn(NUMBER, F.monotonically_increasing_id())


def without_duplicates(rows: DataFrame, plan: DedupePlan, table: DataFrame | None, *, many: bool = False) -> DataFrame:
    """`table` has the rows that are there already, if any. `many`: the rows are not those of a batch but of years, so
    nothing of them is taken to fit into memory, and another pass over the keys, which runs here and now, is cheaper
    than to sort them all."""
    new = rows.alias("new")
    small = _as_it_is if many else F.broadcast
    if table is not None:
        there = _in_table(rows, plan, table, small)
        new = new.join(small(there).alias("old"), F.expr(_same(plan, rows.schema)), "left_anti")
    again = _again(new, plan, many)
    if many:
        again = again.localCheckpoint()
        small = F.broadcast if again.count() <= _MOST_BROADCAST else _as_it_is
    return new.join(small(again), NUMBER, "left_anti").drop(NUMBER)


def _as_it_is(rows: DataFrame) -> DataFrame:
    """Spark sees for itself how large it is."""
    return rows


def _in_table(
    rows: DataFrame, plan: DedupePlan, table: DataFrame, small: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Keys, and times, of the table's rows that have the keys of a row of the batch."""
    for condition in _bounds(rows, plan):
        table = table.where(condition)
    columns = [*plan.keys, *([plan.time] if plan.time else [])]
    keys = small(rows.select(*map(quote, plan.keys))).alias("new")
    equal = " AND ".join(f"old.{quote(key)} = new.{quote(key)}" for key in plan.keys)
    return table.select(*map(quote, columns)).alias("old").join(keys, F.expr(equal), "left_semi")


def _bounds(rows: DataFrame, plan: DedupePlan) -> Iterator[str]:
    """Conditions that every row of the table meets that can be a duplicate."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    names = [name for name in plan.keys if _bounded(kinds[name])]
    if plan.time is not None and plan.time not in names and is_time(kinds[plan.time]):
        names.append(plan.time)
    if not names:
        return
    asked = [F.expr(_as_value(f"{what}({quote(name)})", kinds[name])) for name in names for what in ("min", "max")]
    found = rows.agg(*asked).first()
    assert found is not None
    for index, name in enumerate(names):
        low, high = found[2 * index], found[2 * index + 1]
        if low is None or high is None:
            yield "false"  # no row has this key: none can be a duplicate
            continue
        if is_time(kinds[name]):
            wide = (plan.within_ms or 0) * 1000 if name == plan.time and name not in plan.keys else 0
            first, last = not_before(int(low) - wide, kinds[name]), not_after(int(high) + wide, kinds[name])
        else:
            first, last = (f"CAST({literal(text)} AS {kinds[name].simpleString()})" for text in (low, high))
        yield f"{quote(name)} BETWEEN {first} AND {last}"


def _as_value(bound: str, kind: DataType) -> str:
    """What travels: a number or a text that stands for one value only, whatever the zone of the session."""
    return micros(bound, kind) if is_time(kind) else f"CAST({bound} AS STRING)"


def _bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)


def _same(plan: DedupePlan, schema: StructType) -> str:
    conditions = [f"new.{quote(key)} = old.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        new, old = (micros(f"{side}.{quote(plan.time)}", schema[plan.time].dataType) for side in ("new", "old"))
        conditions.append(f"abs(try_subtract({new}, {old})) <= {(plan.within_ms or 0) * 1000}")
    return " AND ".join(conditions)


def _again(rows: DataFrame, plan: DedupePlan, many: bool) -> DataFrame:
    """The numbers of rows whose keys a row before them has. Only the keys travel, and only those that are there twice
    are looked at."""
    keys = [quote(key) for key in plan.keys]
    known = rows.where(" AND ".join(f"{quote(name)} IS NOT NULL" for name in (*plan.keys, plan.time) if name))
    if many:
        twice = known.groupBy(*keys).count().where("count > 1").alias("twice")
        same = " AND ".join(f"known.{key} = twice.{key}" for key in keys)
        known = known.alias("known").join(twice, F.expr(same), "left_semi")
    place = SOURCE if SOURCE in rows.columns else NUMBER
    time = micros(quote(plan.time), rows.schema[plan.time].dataType) if plan.time else "0L"
    one = f"struct({place} AS place, {NUMBER} AS number, {time} AS time)"
    groups = (
        known.groupBy(*keys).agg(F.expr(f"sort_array(collect_list({one}))").alias("found")).where("size(found) > 1")
    )
    if plan.time is None:
        return groups.selectExpr("explode(slice(found, 2, size(found))) AS one").selectExpr(f"one.number AS {NUMBER}")
    # In the order of arrival: a row stays if none of those that stay before it is near. Few stay, so the work grows
    # with the rows of a key, even if all rows of a batch have the same.
    near = f"exists(kept, k -> coalesce(abs(try_subtract(k.time, x.time)) <= {(plan.within_ms or 0) * 1000}, false))"
    start = "CAST(array() AS ARRAY<STRUCT<time: BIGINT, number: BIGINT>>)"
    stays = "array_append(kept, named_struct('time', x.time, 'number', x.number))"
    judged = groups.selectExpr("found", f"aggregate(found, {start}, (kept, x) -> IF({near}, kept, {stays})) AS kept")
    again = "filter(found, x -> NOT exists(kept, k -> k.number = x.number))"
    return judged.selectExpr(f"explode({again}) AS one").selectExpr(f"one.number AS {NUMBER}")
