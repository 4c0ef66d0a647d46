"""Before it nothing counts: a truncate ended it all, or a newer extract has said what there is.

It stands in the ledger, as text, so that a change which comes later but belongs before it changes nothing. Of a table
that keeps its history these are several truncates: what comes late was valid until the first one after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.spark.sql_types import sql_type
from penstock.tables.merge.changes import ALL, CONTENT, CURRENT, FROM, TO, content

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_EXACTLY = (
    "map('timeZone', 'UTC', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
ORDER = f"named_struct('s', {SEQUENCE}, 'p', {SOURCE})"


KEPT = 100
"""The number of truncates that a history remembers."""


def truncates(schema: StructType, horizon: str | None) -> str:
    """The horizon after the changes, of which this is an aggregate: text, NULL if there was never a truncate. The
    latest truncate, or of a history the last ones."""
    since = FROM if FROM in schema.names else SEQUENCE
    found = f"collect_set(IF({ALL}, named_struct('s', {SEQUENCE}, 'p', {SOURCE}, 't', {since}), NULL))"
    if horizon is not None:
        found = f"array_distinct(concat({_read(schema, horizon)}, {found}))"
    found = f"array_sort({found})"
    kept = KEPT if CURRENT in schema.names else 1
    last = f"slice({found}, greatest(1, size({found}) - {kept - 1}), {kept})"
    text = f"IF(size({last}) = 1, {exactly(f'{last}[0]')}, {exactly(last)})"
    return f"IF(size({found}) = 0, NULL, {text})"


def exactly(value: str) -> str:
    """A struct as text that gives the same values again."""
    return f"to_json({value}, {_EXACTLY})"


def read(text: str, kinds: Mapping[str, str], *, several: bool = False) -> str:
    """And back: a struct of these fields and types, or an array of such."""
    kind = f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in kinds.items())}>"
    return f"from_json({literal(text)}, {literal(f'ARRAY<{kind}>' if several else kind)}, {_EXACTLY})"


def beyond(changes: DataFrame, horizon: str | None) -> DataFrame:
    """The changes that still count."""
    return changes if horizon is None else changes.where(f"{ORDER} > {_order(changes.schema, horizon)}")


def emptied(
    changes: DataFrame, there: DataFrame, horizon: str, kept: Sequence[str], values: Sequence[str], time_ms: int
) -> DataFrame:
    """The changes, and the deletes of all that the table had before a truncate: `there` has all its rows."""
    had = _until_truncate(there, changes.schema, horizon)
    if CURRENT in changes.columns:
        had = had.where(f"{CURRENT} OR {TO} > __t")
    return changes.unionByName(deletes(had, changes, kept, values, time_ms))


def ended(changes: DataFrame, horizon: str, keys: Sequence[str], values: Sequence[str], time_ms: int) -> DataFrame:
    """Of a table that keeps its history: what comes from before a truncate was valid until then."""
    late = _until_truncate(changes, changes.schema, horizon).select(*map(quote, keys), "__s", "__p", "__t").distinct()
    return changes.unionByName(deletes(late, changes, keys, values, time_ms))


def _until_truncate(rows: DataFrame, kinds: StructType, horizon: str) -> DataFrame:
    """The living rows that a truncate has ended, with the first that did: __s, __p and __t, its order and time."""
    later = f"filter({_read(kinds, horizon)}, one -> named_struct('s', one.s, 'p', one.p) > {ORDER})"
    found = rows.where(f"NOT {DELETED}").selectExpr("*", f"array_min({later}) AS __first").where("__first IS NOT NULL")
    return found.selectExpr("*", "__first.s AS __s", "__first.p AS __p", "__first.t AS __t").drop("__first")


def deletes(had: DataFrame, like: DataFrame, kept: Sequence[str], values: Sequence[str], time_ms: int) -> DataFrame:
    """Rows that are there no longer, as changes: `had` says of each what is `kept` of it, its keys at least, and __s,
    __p and __t: sequence, place and time of its end."""
    made = {
        SEQUENCE: "__s",
        SOURCE: "__p",
        DELETED: "true",
        DELETED_AT: f"timestamp_millis({time_ms}L)",
        FROM: "__t",
        CURRENT: "false",
    }
    kinds = {field.name: sql_type(field.dataType) for field in like.schema.fields}
    stays = [name for name in kept if name in had.columns]
    rows = had.selectExpr(
        *(
            f"CAST({made.get(name) or (quote(name) if name in stays else 'NULL')} AS {kinds[name]}) AS {quote(name)}"
            for name in like.columns
            if name != CONTENT
        )
    )
    return rows.withColumn(CONTENT, F.expr(content(rows.schema, values)))


def _order(schema: StructType, text: str) -> str:
    last = f"array_max({_read(schema, text)})"
    return f"named_struct('s', {last}.s, 'p', {last}.p)"


def _read(schema: StructType, text: str) -> str:
    """As an array: Spark reads one that stands alone as an array of one."""
    since = FROM if FROM in schema.names else SEQUENCE
    parts = {"s": SEQUENCE, "p": SOURCE, "t": since}
    return read(text, {name: sql_type(schema[column].dataType) for name, column in parts.items()}, several=True)
