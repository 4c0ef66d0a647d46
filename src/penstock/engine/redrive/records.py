"""Rejected rows as the batch that they once were part of."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.identifiers import quote
from penstock.engine.isolation.expressions import selected
from penstock.engine.stages.coordinates import SOURCE
from penstock.errors import UsageError
from penstock.plan.model import DeltaSource, KafkaSource, TablePlan

_PLACE = ("topic", "partition", "offset")
_OF_KAFKA = {
    "key": "coalesce(key_binary, CAST(key AS BINARY))",
    "value": "coalesce(value_binary, CAST(value AS BINARY))",
    **{name: f"{SOURCE}.{name}" for name in _PLACE},
    "timestamp": "kafka_timestamp",
    "timestampType": "0",
    "headers": "headers",
}
"""A record as Kafka's connector gives it."""


def refuse_kind(table: TablePlan) -> None:
    """UsageError where rejected rows cannot be run again."""
    if not table.may_reject:
        raise UsageError(
            f"{table.name} rejects nothing, so it has no quarantine", hint="`penstock dlq list` names them"
        )
    why = None
    if table.sink is not None:
        why = "what could not be sent is of a state of the table that may have changed since"
    elif table.aggregate is not None:
        why = "late rows belong to windows that are closed"
    elif not table.input.stable or (table.write.merge is None and not table.write.source):
        why = "its rows do not say where they came from"
    if why is not None:
        raise UsageError(
            f"rejected rows of {table.name} cannot be run again by themselves: {why}",
            hint=f"`penstock replay {table.name}` makes the whole table anew, by its definition of now"
            if table.sink is None
            else "correct the rows in the table that it follows: they are sent again",
        )


def as_batch(rejected: DataFrame, table: TablePlan) -> DataFrame:
    """`rejected` are rows of the quarantine, each record once."""
    once = rejected.dropDuplicates([SOURCE])
    if isinstance(table.source, KafkaSource):
        return once.selectExpr(*(f"{value} AS `{name}`" for name, value in _OF_KAFKA.items()))
    if table.input.raw:
        raw = once.selectExpr(*(f"{_raw(name, table)} AS {quote(own)}" for name, own in table.input.raw.items()))
        return _chosen(raw, table)
    assert isinstance(table.source, DeltaSource)
    # Their text is not exact, so they are looked up where they came from.
    upstream = rejected.sparkSession.read.format("delta").load(table.source.uri)
    return _chosen(upstream.join(once.select(SOURCE), SOURCE, "left_semi"), table)


def _chosen(rows: DataFrame, table: TablePlan) -> DataFrame:
    """Those that the table reads: `where` may have raised on a row, and say by now that it is none of its rows."""
    where = table.source.where if isinstance(table.source, DeltaSource) else None
    return rows if where is None else selected(rows, where)


def _raw(name: str, table: TablePlan) -> str:
    if name in _PLACE:
        return f"{SOURCE}.{name}"
    if table.payload == "binary" or "value_binary" not in table.input.raw:
        return {"key": "key_binary", "value": "value_binary"}.get(name, name)
    return name
