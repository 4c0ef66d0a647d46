"""The changes that a batch brings, as rows of the table: keys first, then values, then what decides between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from penstock.errors import Terminal
from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.sql_text import quote
from penstock.spec.table_kinds import OWN, SINCE, VALID
from penstock.tables.transform import with_batch_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from penstock.plan.stages import MergePlan

FROM, TO, CURRENT = VALID
ALL = "__all"
"""Marks a change that is about all rows: a truncate."""
CONTENT = "__content"
"""A hash of what a change says: two with the same sequence and other contents contradict each other."""


def changes(rows: DataFrame, plan: MergePlan, partition_by: Sequence[str], time_ms: int, table: str) -> DataFrame:
    """The columns of the table, and CONTENT. A delete keeps the keys alone."""
    if plan.ignore is not None:
        rows = rows.where(f"NOT coalesce({plan.ignore}, false)")
    values = _values(rows.schema, plan, table)
    dead, sequence = (with_batch_time(text, time_ms) for text in (plan.deleted, plan.sequence))
    since = with_batch_time(plan.time, time_ms) if plan.time is not None else None
    decided = rows.selectExpr(
        *map(quote, plan.keys),
        *(quote(name) for name in values),
        f"({sequence}) AS {SEQUENCE}",
        f"coalesce({dead}, false) AS {DELETED}",
        SOURCE,
        *([f"({since}) AS {FROM}"] if since is not None else []),
        f"{f'coalesce({plan.truncate}, false)' if plan.truncate is not None else 'false'} AS {ALL}",
    )
    stays = {name.casefold() for name in partition_by}
    made = decided.selectExpr(
        *map(quote, plan.keys),
        *(quote(n) if n.casefold() in stays else f"IF({DELETED}, NULL, {quote(n)}) AS {quote(n)}" for n in values),
        SEQUENCE,
        DELETED,
        # As data, not as a literal: that would be part of the code that Spark makes, and compiled anew in every batch.
        f"IF({DELETED}, get(array(timestamp_millis({time_ms}L)), CAST({DELETED} AS INT) & 0), NULL) AS {DELETED_AT}",
        SOURCE,
        *_validity(plan),
        ALL,
    )
    return made.selectExpr("*", f"{content(decided.schema, values)} AS {CONTENT}")


def content(found: StructType, values: Sequence[str]) -> str:
    """NULL leaves a hash as it is: that it is there counts by itself."""
    parts = [part for n in values for part in (f"{quote(n)} IS NULL", _hashed(found[n].dataType, quote(n)))]
    return f"xxhash64({', '.join([*parts, DELETED])})"


def values_of(columns: Sequence[str], plan: MergePlan) -> list[str]:
    """The columns of a merged table that the changes give: neither its keys nor its own."""
    own = {*plan.keys, *OWN, SINCE, SOURCE, CONTENT, ALL, *(VALID if plan.history == "scd2" else ())}
    return [name for name in columns if name not in own]


def schema(rows: DataFrame, plan: MergePlan, partition_by: Sequence[str], table: str) -> StructType:
    """The columns of the table. Raises where a key or the sequence is of a type that cannot serve."""
    made = changes(rows.limit(0), plan, partition_by, 0, table).drop(CONTENT, ALL)
    for name in (*plan.keys, SEQUENCE):
        kind = made.schema[name].dataType
        if _holds(kind, MapType) or _holds(kind, VariantType):
            what = "the sequence" if name == SEQUENCE else f"the key {name}"
            raise Terminal(
                f"{what} is {kind.simpleString()}, which has no order",
                where=table,
                hint="write a column, or an expression, of a plain type",
            )
    return made.schema


def _validity(plan: MergePlan) -> list[str]:
    if plan.history == "scd1":
        return []
    start = FROM if plan.time is not None else f"{SEQUENCE} AS {FROM}"
    kind = FROM if plan.time is not None else SEQUENCE
    return [start, f"IF(true, NULL, {kind}) AS {TO}", f"NOT {DELETED} AS {CURRENT}"]


def _values(found: StructType, plan: MergePlan, table: str) -> list[str]:
    """The columns of the table that are no keys. Raises where a name is not there, or is taken."""
    there = {name.casefold(): name for name in found.names}
    for name in (*plan.keys, *plan.only, *plan.but):
        if name.casefold() not in there:
            raise Terminal(
                f"the changes have no column {name}",
                where=table,
                hint=f"they have: {', '.join(found.names)}",
            )
    keys = {key.casefold() for key in plan.keys}
    left_out = {name.casefold() for name in plan.but} | keys | {SOURCE}
    wanted = {name.casefold() for name in plan.only} or set(there)
    values = [name for fold, name in there.items() if fold in wanted and fold not in left_out]
    taken = {*OWN, *(VALID if plan.history == "scd2" else ())}
    for name in (*values, *plan.keys):
        if name.casefold() in taken:
            raise Terminal(
                f"{name} is a column that a merged table has itself",
                where=table,
                hint="give it another name in sql or a transform, or leave it out: merge: {columns: {except: ["
                + name
                + "]}}",
            )
    return values


def _hashed(kind: DataType, name: str) -> str:
    """Spark hashes no maps."""
    odd = _holds(kind, MapType) or _holds(kind, VariantType)
    return f"to_json(named_struct('value', {name}))" if odd else name


def _holds(kind: DataType, wanted: type[DataType]) -> bool:
    if isinstance(kind, wanted):
        return True
    if isinstance(kind, StructType):
        return any(_holds(field.dataType, wanted) for field in kind.fields)
    if isinstance(kind, MapType):
        return _holds(kind.keyType, wanted) or _holds(kind.valueType, wanted)
    return isinstance(kind, ArrayType) and _holds(kind.elementType, wanted)
