"""Before it nothing counts: a truncate ended it all, or a newer extract has said what there is.

It stands in the ledger, as text, so that a change which comes later but belongs before it changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.identifiers import quote
from penstock.engine.merge.changes import ALL, CONTENT, CURRENT, FROM, content
from penstock.engine.merge.tombstones import DELETED, DELETED_AT, SEQUENCE
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import literal

_EXACTLY = (
    "map('timeZone', 'UTC', 'timestampFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX\", "
    "'timestampNTZFormat', \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\")"
)
ORDER = f"named_struct('s', {SEQUENCE}, 'p', {SOURCE})"


def latest_truncate(schema: StructType) -> str:
    """As an aggregate over the changes: text, NULL without one."""
    since = FROM if FROM in schema.names else SEQUENCE
    found = f"max(IF({ALL}, named_struct('s', {SEQUENCE}, 'p', {SOURCE}, 't', {since}), NULL))"
    return exactly(found)


def exactly(value: str) -> str:
    """A struct as text that gives the same values again."""
    return f"to_json({value}, {_EXACTLY})"


def read(text: str, kinds: Mapping[str, str]) -> str:
    """And back: a struct of these fields and types."""
    ddl = ", ".join(f"{name}: {kind}" for name, kind in kinds.items())
    return f"from_json({literal(text)}, 'STRUCT<{ddl}>', {_EXACTLY})"


def beyond(changes: DataFrame, horizon: str | None) -> DataFrame:
    """The changes that still count."""
    return changes if horizon is None else changes.where(f"{ORDER} > {_order(changes.schema, horizon)}")


def emptied(
    changes: DataFrame, there: DataFrame, truncate: str, kept: Sequence[str], values: Sequence[str], time_ms: int
) -> DataFrame:
    """The changes, and the deletes of all that the table had before the truncate: `there` has all its rows."""
    had = there.where(f"NOT {DELETED} AND {ORDER} < {_order(changes.schema, truncate)}")
    if CURRENT in changes.columns:
        had = had.where(CURRENT)
    about = had.crossJoin(F.broadcast(_about(changes, truncate)))
    return changes.unionByName(deletes(about, changes, kept, values, time_ms))


def ended(changes: DataFrame, horizon: str, keys: Sequence[str], values: Sequence[str], time_ms: int) -> DataFrame:
    """Of a table that keeps its history: what comes from before the horizon was valid until then."""
    late = changes.where(f"{ORDER} < {_order(changes.schema, horizon)}").select(*map(quote, keys)).distinct()
    about = late.crossJoin(F.broadcast(_about(changes, horizon)))
    return changes.unionByName(deletes(about, changes, keys, values, time_ms))


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
    kinds = {field.name: field.dataType.simpleString() for field in like.schema.fields}
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
    return f"named_struct('s', {_read(schema, text)}.s, 'p', {_read(schema, text)}.p)"


def _read(schema: StructType, text: str) -> str:
    since = FROM if FROM in schema.names else SEQUENCE
    parts = {"s": SEQUENCE, "p": SOURCE, "t": since}
    return read(text, {name: schema[column].dataType.simpleString() for name, column in parts.items()})


def _about(like: DataFrame, text: str) -> DataFrame:
    told = _read(like.schema, text)
    return like.sparkSession.range(1).selectExpr(f"{told}.s AS __s", f"{told}.p AS __p", f"{told}.t AS __t")
