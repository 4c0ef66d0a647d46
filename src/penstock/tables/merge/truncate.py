"""The horizon of a table, before which no change counts: its last truncate, or the newest extract applied.

The ledger keeps it as text, so that a change that arrives later but belongs before it changes nothing. A table that
keeps its history has several truncates in it: a late change was valid until the first truncate after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.spark.sql_types import sql_type
from penstock.tables.merge.changes import CONTENT, CURRENT, FROM, TO, TRUNCATE_MARK, content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_JSON_OPTIONS = (
    "map('timeZone', 'UTC', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
ORDER = f"named_struct('s', {SEQUENCE}, 'p', {SOURCE})"


MAX_TRUNCATES = 100
"""The number of truncates that a table with history remembers."""


def truncates(schema: StructType, horizon: str | None) -> str:
    """The horizon after the changes, as an aggregate over them: text, NULL if there was never a truncate. It has the
    latest truncate, or with history the last KEPT ones."""
    start_column = FROM if FROM in schema.names else SEQUENCE
    found_truncates = (
        f"collect_set(IF({TRUNCATE_MARK}, named_struct('s', {SEQUENCE}, 'p', {SOURCE}, 't', {start_column}), NULL))"
    )
    if horizon is not None:
        found_truncates = f"array_distinct(concat({_read_horizon(schema, horizon)}, {found_truncates}))"
    found_truncates = f"array_sort({found_truncates})"
    limit = MAX_TRUNCATES if CURRENT in schema.names else 1
    last = f"slice({found_truncates}, greatest(1, size({found_truncates}) - {limit - 1}), {limit})"
    text = f"IF(size({last}) = 1, {to_exact_json(f'{last}[0]')}, {to_exact_json(last)})"
    return f"IF(size({found_truncates}) = 0, NULL, {text})"


def to_exact_json(value: str) -> str:
    """A struct as text from which `read` gives the same values."""
    return f"to_json({value}, {_JSON_OPTIONS})"


def from_exact_json(text: str, types: Mapping[str, str], *, several: bool = False) -> str:
    """Text of `exactly` as a struct of these fields and types, or as an array of such structs."""
    struct_type = f"STRUCT<{', '.join(f'{name}: {field_type}' for name, field_type in types.items())}>"
    return (
        f"from_json({literal(text)}, {literal(f'ARRAY<{struct_type}>' if several else struct_type)}, {_JSON_OPTIONS})"
    )


def after_horizon(changes: DataFrame, horizon: str | None) -> DataFrame:
    """The changes after the horizon, which still count."""
    return changes if horizon is None else changes.where(f"{ORDER} > {_horizon_order(changes.schema, horizon)}")


def with_truncate_deletes(
    changes: DataFrame,
    existing: DataFrame,
    horizon: str,
    kept_columns: Sequence[str],
    values: Sequence[str],
    time_ms: int,
) -> DataFrame:
    """The changes, and deletes of all rows from before a truncate: `existing` has all rows of the table."""
    ended_rows = _ended_by_truncate(existing, changes.schema, horizon)
    if CURRENT in changes.columns:
        ended_rows = ended_rows.where(f"{CURRENT} OR {TO} > __t")
    return changes.unionByName(deletes(ended_rows, changes, kept_columns, values, time_ms))


def with_truncate_ends(
    changes: DataFrame, horizon: str, keys: Sequence[str], values: Sequence[str], time_ms: int
) -> DataFrame:
    """The changes of a table with history, and the ends of late ones: a change from before a truncate was valid until
    then."""
    late_rows = (
        _ended_by_truncate(changes, changes.schema, horizon).select(*map(quote, keys), "__s", "__p", "__t").distinct()
    )
    return changes.unionByName(deletes(late_rows, changes, keys, values, time_ms))


def _ended_by_truncate(rows: DataFrame, schema: StructType, horizon: str) -> DataFrame:
    """The living rows that a truncate ended, with the first truncate that did: __s, __p and __t, its order and time."""
    later_truncates = f"filter({_read_horizon(schema, horizon)}, one -> named_struct('s', one.s, 'p', one.p) > {ORDER})"
    ended_rows = (
        rows.where(f"NOT {DELETED}")
        .selectExpr("*", f"array_min({later_truncates}) AS __first")
        .where("__first IS NOT NULL")
    )
    return ended_rows.selectExpr("*", "__first.s AS __s", "__first.p AS __p", "__first.t AS __t").drop("__first")


def deletes(
    ended_rows: DataFrame, changes: DataFrame, kept_columns: Sequence[str], values: Sequence[str], time_ms: int
) -> DataFrame:
    """Deletes of rows, as changes. `ended_rows` has those of `kept_columns` that are known of each row, at least its
    keys, and __s, __p and __t: sequence, place and time of its end."""
    fixed = {
        SEQUENCE: "__s",
        SOURCE: "__p",
        DELETED: "true",
        DELETED_AT: f"timestamp_millis({time_ms}L)",
        FROM: "__t",
        CURRENT: "false",
    }
    types = {field.name: sql_type(field.dataType) for field in changes.schema.fields}
    known = [name for name in kept_columns if name in ended_rows.columns]
    rows = ended_rows.selectExpr(
        *(
            f"CAST({fixed.get(name) or (quote(name) if name in known else 'NULL')} AS {types[name]}) AS {quote(name)}"
            for name in changes.columns
            if name != CONTENT
        )
    )
    return rows.withColumn(CONTENT, F.expr(content(rows.schema, values)))


def _horizon_order(schema: StructType, text: str) -> str:
    last = f"array_max({_read_horizon(schema, text)})"
    return f"named_struct('s', {last}.s, 'p', {last}.p)"


def _read_horizon(schema: StructType, text: str) -> str:
    """The truncates in a horizon, as an array: Spark reads a single one as an array of one."""
    start_column = FROM if FROM in schema.names else SEQUENCE
    fields = {"s": SEQUENCE, "p": SOURCE, "t": start_column}
    return from_exact_json(
        text, {name: sql_type(schema[column].dataType) for name, column in fields.items()}, several=True
    )
