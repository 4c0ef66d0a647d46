"""Sinks: send the rows or changes of a table to another system, then record them in the ledger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.ledger.position import same
from penstock.ledger.row_counts import BATCHES, READ, REJECTED
from penstock.ledger.writer import BatchProcessor
from penstock.sinks.base import AMBIGUOUS_KEY, DELETED, NULL_KEY, REJECTION
from penstock.sources.columns import SOURCE, VERSION
from penstock.spark.sql_text import literal
from penstock.tables.expectations import as_rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.targets import SinkPlan
    from penstock.sinks.base import Refused, SendResult, Shape, SinkPayload, SinkTarget
    from penstock.tables.quarantine import Quarantine

# Changes that cannot be sent, in the sink's quarantine: each one once, unchanged, with the reason.


COORDINATES = "struct<version:bigint,deleted:boolean>"
"""The coordinates of a change: its table version, and whether it deletes the row."""
_KEY_DETAILS = {
    NULL_KEY: "a column of its key is NULL",
    AMBIGUOUS_KEY: "more rows of this version have the same key",
}
_MATCHED = "__refused"


class RejectedChanges:
    def __init__(self, quarantine: Quarantine, shape: Shape) -> None:
        self._quarantine, self._shape = quarantine, shape

    def store(self, changes: DataFrame, entry: Entry, result: SendResult) -> int:
        """Writes the batch's rejected changes unless the quarantine has them, and returns their number."""
        if result.not_tried == 0 and not result.refused:
            return 0
        recorded = self._quarantine.entry_for(entry)
        rows = self._explained(changes, result.refused)
        if recorded is not None:
            if all(map(same, recorded.after, entry.after)):
                return self._quarantine.rows_of(entry).count()
            # The batch had another length when it was written: its checkpoint was lost in between.
            rows = _drop_recorded(rows, self._quarantine.rows_of(entry))
        return self._quarantine.add(rows, entry)

    def _explained(self, changes: DataFrame, refused: Sequence[Refused]) -> DataFrame:
        key_details = " ".join(f"WHEN '{name}' THEN {literal(text)}" for name, text in _KEY_DETAILS.items())
        by_key = f"named_struct('reason', {REJECTION}, 'detail', CASE {REJECTION} {key_details} END)"
        if not refused:
            return self._as_rejected(changes.where(f"{REJECTION} IS NOT NULL"), by_key)
        refusals = _refused_frame(changes.sparkSession, refused)
        joined = changes.join(F.broadcast(refusals), F.expr(f"{self._shape.key} = {_MATCHED}.row_key"), "left")
        rejected = joined.where(f"{REJECTION} IS NOT NULL OR {_MATCHED}.row_key IS NOT NULL")
        by_target = f"named_struct('reason', {_MATCHED}.reason, 'detail', {_MATCHED}.detail)"
        return self._as_rejected(rejected, f"IF({REJECTION} IS NOT NULL, {by_key}, {by_target})")

    def _as_rejected(self, rows: DataFrame, why: str) -> DataFrame:
        values = {"key": self._shape.key, "value": self._shape.value}
        return as_rejected(rows, values, f"named_struct('version', {VERSION}, 'deleted', {DELETED})", why)


def _refused_frame(spark: SparkSession, refused: Sequence[Refused]) -> DataFrame:
    rows = [(refusal.key, refusal.reason, refusal.detail) for refusal in refused]
    return spark.createDataFrame(rows, "row_key STRING, reason STRING, detail STRING").alias(_MATCHED)


def _drop_recorded(rows: DataFrame, recorded: DataFrame) -> DataFrame:
    known = recorded.selectExpr("key AS was_key", "value AS was_value", f"{SOURCE} AS was_{SOURCE}")
    same_row = F.expr(f"key <=> was_key AND value <=> was_value AND {SOURCE} <=> was_{SOURCE}")
    return rows.join(known, same_row, "left_anti")


# A sink's batches: sent, rejected changes set aside, then recorded.
#
# The order decides what a crash leaves: first the target, then the quarantine, then the ledger. Until the ledger has
# the batch, it runs again from its beginning; the target and the quarantine each know what they have of it, and a topic
# gets records again under the same ids.


def sent_schema(sink: SinkPlan) -> StructType:
    """What a sink stores in the lake: one row per batch."""
    schema = StructType().add("generation", "long").add("batch", "long")
    if sink.follows_changes:
        schema = schema.add("target", "string").add("sent", "long").add("rejected", "long")
    else:
        schema = schema.add("topic", "string").add("sent", "long")
    return schema.add("sent_at", "timestamp")


class SinkProcessor(BatchProcessor):
    def __init__(
        self, sink: SinkPlan, payload: SinkPayload, target: SinkTarget, rejected: RejectedChanges | None = None
    ) -> None:
        """Without `rejected`, a row that the target refuses stops the sink."""
        self._sink, self._payload, self._target, self._rejected = sink, payload, target, rejected
        self._counts: RowCounts = {}

    @property
    def suppression_changed(self) -> bool:
        return False  # people to be forgotten are left out before it

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        rows = self._payload.rows(batch, files)
        result = self._target.send(rows, entry)
        if self._rejected is None:
            topic = self._sink.topic_sent_to
            record: tuple[object, ...] = (topic[1] if topic is not None else self._sink.name, result.changes)
        else:
            rejected = self._rejected.store(rows, entry, result)
            record = (self._sink.name, result.changes, rejected)
            self._counts = {BATCHES: 1, READ: result.changes + rejected, REJECTED: rejected}
        row = (entry.generation, entry.batch, *record, datetime.now(UTC))
        recorded = batch.sparkSession.createDataFrame([row], sent_schema(self._sink))
        write_target.append(recorded.coalesce(1), replace(entry, sent=result.changes))

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        counts, self._counts = self._counts, {}
        return counts if written else {}
