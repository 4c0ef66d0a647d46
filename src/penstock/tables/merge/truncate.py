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


def start_column(columns: Sequence[str]) -> str:
    """The column that says when a change begins to be valid."""
    return FROM if FROM in columns else SEQUENCE


def truncates(schema: StructType, horizon: str | None) -> str:
    """The horizon after the changes, as an aggregate over them: text, NULL if there was never a truncate. It has the
    latest truncate, or with history the last MAX_TRUNCATES ones."""
    truncate = f"named_struct('s', {SEQUENCE}, 'p', {SOURCE}, 't', {start_column(schema.names)})"
    known = f"collect_set(IF({TRUNCATE_MARK}, {truncate}, NULL))"
    if horizon is not None:
        known = f"array_distinct(concat({_read_horizon(schema, horizon)}, {known}))"
    known = f"array_sort({known})"
    limit = MAX_TRUNCATES if CURRENT in schema.names else 1
    last = f"slice({known}, greatest(1, size({known}) - {limit - 1}), {limit})"
    text = f"IF(size({last}) = 1, {to_exact_json(f'{last}[0]')}, {to_exact_json(last)})"
    return f"IF(size({known}) = 0, NULL, {text})"


def to_exact_json(value: str) -> str:
    """A struct as text from which `from_exact_json` gives the same values."""
    return f"to_json({value}, {_JSON_OPTIONS})"


def from_exact_json(text: str, types: Mapping[str, str], *, several: bool = False) -> str:
    """Text of `to_exact_json` as a struct of these fields and types, or as an array of such structs."""
    struct_type = f"STRUCT<{', '.join(f'{name}: {field_type}' for name, field_type in types.items())}>"
    data_type = f"ARRAY<{struct_type}>" if several else struct_type
    return f"from_json({literal(text)}, {literal(data_type)}, {_JSON_OPTIONS})"


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
    late_rows = _ended_by_truncate(changes, changes.schema, horizon)
    late_keys = late_rows.select(*map(quote, keys), "__s", "__p", "__t").distinct()
    return changes.unionByName(deletes(late_keys, changes, keys, values, time_ms))


def _ended_by_truncate(rows: DataFrame, schema: StructType, horizon: str) -> DataFrame:
    """The living rows that a truncate ended, with the first truncate that did: __s, __p and __t, its order and time."""
    later_truncates = f"filter({_read_horizon(schema, horizon)}, one -> named_struct('s', one.s, 'p', one.p) > {ORDER})"
    with_first = rows.where(f"NOT {DELETED}").selectExpr("*", f"array_min({later_truncates}) AS __first")
    ended_rows = with_first.where("__first IS NOT NULL")
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
    fields = {"s": SEQUENCE, "p": SOURCE, "t": start_column(schema.names)}
    types = {name: sql_type(schema[column].dataType) for name, column in fields.items()}
    return from_exact_json(text, types, several=True)
