"""The changes of a batch as rows of the table: keys, then values, then the columns that decide between changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from penstock.errors import Terminal
from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.sql_text import quote
from penstock.spec.table_kinds import MERGE_COLUMNS, SINCE, VALID
from penstock.tables.transform import with_batch_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from penstock.plan.stages import MergePlan

FROM, TO, CURRENT = VALID
TRUNCATE_MARK = "__all"
"""Marks a change that applies to every row: a truncate."""
CONTENT = "__content"
"""A hash of a change's values: two changes with the same sequence and different hashes contradict each other."""


def batch_changes(rows: DataFrame, plan: MergePlan, partition_by: Sequence[str], time_ms: int, table: str) -> DataFrame:
    """The changes with the table's columns, TRUNCATE_MARK and CONTENT. A delete keeps keys and partition columns."""
    if plan.ignore is not None:
        rows = rows.where(f"NOT coalesce({plan.ignore}, false)")
    values = _value_columns(rows.schema, plan, table)
    deleted, sequence = (with_batch_time(text, time_ms) for text in (plan.deleted, plan.sequence))
    valid_from = with_batch_time(plan.time, time_ms) if plan.time is not None else None
    evaluated = rows.selectExpr(
        *map(quote, plan.keys),
        *(quote(name) for name in values),
        f"({sequence}) AS {SEQUENCE}",
        f"coalesce({deleted}, false) AS {DELETED}",
        SOURCE,
        *([f"({valid_from}) AS {FROM}"] if valid_from is not None else []),
        f"{f'coalesce({plan.truncate}, false)' if plan.truncate is not None else 'false'} AS {TRUNCATE_MARK}",
    )
    partition_columns = {name.casefold() for name in partition_by}
    change_rows = evaluated.selectExpr(
        *map(quote, plan.keys),
        *(
            quote(n) if n.casefold() in partition_columns else f"IF({DELETED}, NULL, {quote(n)}) AS {quote(n)}"
            for n in values
        ),
        SEQUENCE,
        DELETED,
        # As data, not as a literal: Spark puts literals into its generated code and would recompile it for every batch.
        f"IF({DELETED}, get(array(timestamp_millis({time_ms}L)), CAST({DELETED} AS INT) & 0), NULL) AS {DELETED_AT}",
        SOURCE,
        *_validity_columns(plan),
        TRUNCATE_MARK,
    )
    return change_rows.selectExpr("*", f"{content(evaluated.schema, values)} AS {CONTENT}")


def content(row_schema: StructType, values: Sequence[str]) -> str:
    """The expression for CONTENT. A NULL does not change a hash, so whether each value is NULL is hashed as well."""
    parts = [part for n in values for part in (f"{quote(n)} IS NULL", _hash_input(row_schema[n].dataType, quote(n)))]
    return f"xxhash64({', '.join([*parts, DELETED])})"


def values_of(columns: Sequence[str], plan: MergePlan) -> list[str]:
    """The columns of a merged table that the changes fill: neither its keys nor those that Penstock adds."""
    reserved = {
        *plan.keys,
        *MERGE_COLUMNS,
        SINCE,
        SOURCE,
        CONTENT,
        TRUNCATE_MARK,
        *(VALID if plan.history == "scd2" else ()),
    }
    return [name for name in columns if name not in reserved]


def schema(rows: DataFrame, plan: MergePlan, partition_by: Sequence[str], table: str) -> StructType:
    """The columns of the table. Raises if the type of a key or of the sequence has no order."""
    change_rows = batch_changes(rows.limit(0), plan, partition_by, 0, table).drop(CONTENT, TRUNCATE_MARK)
    for name in (*plan.keys, SEQUENCE):
        data_type = change_rows.schema[name].dataType
        if _contains_type(data_type, MapType, VariantType):
            label = "the sequence" if name == SEQUENCE else f"the key {name}"
            raise Terminal(
                f"{label} is {data_type.simpleString()}, which has no order",
                where=table,
                hint="write a column, or an expression, of a plain type",
            )
    return change_rows.schema


def _validity_columns(plan: MergePlan) -> list[str]:
    if plan.history == "scd1":
        return []
    start = FROM if plan.time is not None else f"{SEQUENCE} AS {FROM}"
    typed_like = FROM if plan.time is not None else SEQUENCE
    return [start, f"IF(true, NULL, {typed_like}) AS {TO}", f"NOT {DELETED} AS {CURRENT}"]


def _value_columns(row_schema: StructType, plan: MergePlan, table: str) -> list[str]:
    """The columns of the table other than its keys. Raises if a named column is missing or a name is reserved."""
    columns = {name.casefold(): name for name in row_schema.names}
    for name in (*plan.keys, *plan.only, *plan.but):
        if name.casefold() not in columns:
            raise Terminal(
                f"the changes have no column {name}", where=table, hint=f"they have: {', '.join(row_schema.names)}"
            )
    keys = {key.casefold() for key in plan.keys}
    excluded = {name.casefold() for name in plan.but} | keys | {SOURCE}
    included = {name.casefold() for name in plan.only} or set(columns)
    values = [name for folded, name in columns.items() if folded in included and folded not in excluded]
    reserved = {*MERGE_COLUMNS, *(VALID if plan.history == "scd2" else ())}
    for name in (*values, *plan.keys):
        if name.casefold() in reserved:
            raise Terminal(
                f"{name} is a column that a merged table has itself",
                where=table,
                hint="give it another name in sql or a transform, or leave it out: "
                f"merge: {{columns: {{except: [{name}]}}}}",
            )
    return values


def _hash_input(data_type: DataType, name: str) -> str:
    """The column, or its JSON where Spark cannot hash its type: maps and variants."""
    return f"to_json(named_struct('value', {name}))" if _contains_type(data_type, MapType, VariantType) else name


def _contains_type(data_type: DataType, *type_classes: type[DataType]) -> bool:
    if isinstance(data_type, type_classes):
        return True
    if isinstance(data_type, StructType):
        return any(_contains_type(field.dataType, *type_classes) for field in data_type.fields)
    if isinstance(data_type, MapType):
        return any(_contains_type(inner, *type_classes) for inner in (data_type.keyType, data_type.valueType))
    return isinstance(data_type, ArrayType) and _contains_type(data_type.elementType, *type_classes)
