"""Drops rows whose keys the table already has; among duplicates in a batch, the first by its coordinates wins.

The table itself is the memory: there is no state to lose. It is read unpinned and within the write, so that a
concurrent append makes the write fail instead of duplicating a row. Only files that can hold the batch's keys are read:
Delta skips files by the bounds of the keys and of the time, which are literals in the condition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.ledger.times import is_time, micros, not_after, not_before
from penstock.sources.columns import SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.tables.merge.merge import bounded, with_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from penstock.plan.stages import DedupePlan

NUMBER = "__row"
_MOST_BROADCAST = 2_000_000
"""Row numbers to broadcast at most: 100 MB of memory. Above it Spark joins by a shuffle, and rows lose the order by
which files are skipped later."""


def with_row_numbers(rows: DataFrame) -> DataFrame:
    """The rows numbered for `drop_duplicates`. Persist them: they are read several times."""
    return rows.withColumn(NUMBER, F.monotonically_increasing_id())


def drop_duplicates(rows: DataFrame, plan: DedupePlan, table: DataFrame | None, *, many: bool = False) -> DataFrame:
    """The rows without duplicates. `table` has the existing rows, if any. `many`: the rows are not a batch but years of
    data, so none of them are assumed to fit into memory, and an extra pass over the keys, which runs at once, is
    cheaper than sorting them all."""
    new = rows.alias("new")
    broadcast_hint = _without_hint if many else F.broadcast
    if table is not None:
        existing = _existing_keys(rows, plan, table, many)
        new = new.join(broadcast_hint(existing).alias("old"), F.expr(_is_duplicate(plan, rows.schema)), "left_anti")
    repeated = _repeated_rows(new, plan, many)
    if many:
        repeated = repeated.localCheckpoint()
        broadcast_hint = F.broadcast if repeated.count() <= _MOST_BROADCAST else _without_hint
    return new.join(broadcast_hint(repeated), NUMBER, "left_anti").drop(NUMBER)


def _without_hint(rows: DataFrame) -> DataFrame:
    """No broadcast hint: Spark decides by the size."""
    return rows


def _existing_keys(rows: DataFrame, plan: DedupePlan, table: DataFrame, many: bool) -> DataFrame:
    """Keys and times of the table's rows whose keys occur in the batch."""
    for condition in _bounds(rows, plan):
        table = table.where(condition)
    columns = [*plan.keys, *([plan.time] if plan.time else [])]
    return with_keys(table.select(*map(quote, columns)), rows, plan.keys, few=not many)


def _bounds(rows: DataFrame, plan: DedupePlan) -> Iterator[str]:
    """Conditions that hold for every row of the table that can be a duplicate."""
    types = {field.name: field.dataType for field in rows.schema.fields}
    names = [name for name in plan.keys if bounded(types[name])]
    if plan.time is not None and plan.time not in names and is_time(types[plan.time]):
        names.append(plan.time)
    if not names:
        return
    ends = [(name, function) for name in names for function in ("min", "max")]
    row = rows.agg(*(F.expr(_bound_as_value(f"{end}({quote(name)})", types[name])) for name, end in ends)).first()
    assert row is not None
    for index, name in enumerate(names):
        low, high = row[2 * index], row[2 * index + 1]
        if low is None or high is None:
            yield "false"  # no row has this key: none can be a duplicate
            continue
        if is_time(types[name]):
            tolerance = (plan.within_ms or 0) * 1000 if name == plan.time and name not in plan.keys else 0
            first, last = not_before(int(low) - tolerance, types[name]), not_after(int(high) + tolerance, types[name])
        else:
            first, last = (f"CAST({literal(text)} AS {types[name].simpleString()})" for text in (low, high))
        yield f"{quote(name)} BETWEEN {first} AND {last}"


def _bound_as_value(bound: str, data_type: DataType) -> str:
    """The bound as a number or text that means one value only, whatever the session's time zone."""
    return micros(bound, data_type) if is_time(data_type) else f"CAST({bound} AS STRING)"


def _is_duplicate(plan: DedupePlan, schema: StructType) -> str:
    conditions = [f"new.{quote(key)} = old.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        new, old = (micros(f"{side}.{quote(plan.time)}", schema[plan.time].dataType) for side in ("new", "old"))
        conditions.append(f"abs(try_subtract({new}, {old})) <= {(plan.within_ms or 0) * 1000}")
    return " AND ".join(conditions)


def _repeated_rows(rows: DataFrame, plan: DedupePlan, many: bool) -> DataFrame:
    """The numbers of rows that repeat the keys of an earlier row. Only keys are shuffled, and only those that occur
    twice are compared."""
    keys = [quote(key) for key in plan.keys]
    with_keys = rows.where(" AND ".join(f"{quote(name)} IS NOT NULL" for name in (*plan.keys, plan.time) if name))
    if many:
        twice = with_keys.groupBy(*keys).count().where("count > 1").alias("twice")
        same_key = " AND ".join(f"known.{key} = twice.{key}" for key in keys)
        with_keys = with_keys.alias("known").join(twice, F.expr(same_key), "left_semi")
    place = SOURCE if SOURCE in rows.columns else NUMBER
    time = micros(quote(plan.time), rows.schema[plan.time].dataType) if plan.time else "0L"
    candidate = f"struct({place} AS place, {NUMBER} AS number, {time} AS time)"
    candidates = F.expr(f"sort_array(collect_list({candidate}))").alias("found")
    groups = with_keys.groupBy(*keys).agg(candidates).where("size(found) > 1")
    if plan.time is None:
        return groups.selectExpr("explode(slice(found, 2, size(found))) AS one").selectExpr(f"one.number AS {NUMBER}")
    # In the order of arrival: a row is kept if no kept row before it is near. Few are kept, so the work grows linearly
    # with the rows of a key, even if all rows of a batch have the same key.
    near = f"exists(kept, k -> coalesce(abs(try_subtract(k.time, x.time)) <= {(plan.within_ms or 0) * 1000}, false))"
    start = "CAST(array() AS ARRAY<STRUCT<time: BIGINT, number: BIGINT>>)"
    appended = "array_append(kept, named_struct('time', x.time, 'number', x.number))"
    folded = groups.selectExpr("found", f"aggregate(found, {start}, (kept, x) -> IF({near}, kept, {appended})) AS kept")
    repeated = "filter(found, x -> NOT exists(kept, k -> k.number = x.number))"
    return folded.selectExpr(f"explode({repeated}) AS one").selectExpr(f"one.number AS {NUMBER}")
