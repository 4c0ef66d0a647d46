"""Sinks: the rows or the changes of a table sent to another system, then recorded in the ledger."""

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
from penstock.sinks.base import AMBIGUOUS_KEY, ASIDE, DELETED, NULL_KEY
from penstock.sources.columns import SOURCE, VERSION
from penstock.spark.sql_text import literal
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.targets import SinkPlan
    from penstock.sinks.base import Refused, SendResult, Shape, SinkPayload, SinkTarget
    from penstock.tables.quarantine import Quarantine

# Changes that cannot be sent, in the quarantine of their sink: each once, as it is, with the reason.


COORDINATES = "struct<version:bigint,deleted:boolean>"
"""Of a change: the version of the table that it is of, and whether the row is gone with it."""
_WHY = {
    NULL_KEY: "a column of its key is NULL",
    AMBIGUOUS_KEY: "more rows of this version have the same key",
}
_MATCHED = "__refused"


class RejectedChanges:
    def __init__(self, quarantine: Quarantine, shape: Shape) -> None:
        self._quarantine, self._shape = quarantine, shape

    def keep(self, changes: DataFrame, entry: Entry, sent: SendResult) -> int:
        """How many there are in the batch; they are written unless the quarantine has them."""
        if sent.aside == 0 and not sent.refused:
            return 0
        there = self._quarantine.of(entry)
        rows = self._explained(changes, sent.refused)
        if there is not None:
            if all(map(same, there.after, entry.after)):
                return self._quarantine.rows_of(entry).count()
            # The batch was longer or shorter when it was written: its checkpoint was lost in between.
            rows = _without(rows, self._quarantine.rows_of(entry))
        return self._quarantine.add(rows, entry)

    def _explained(self, changes: DataFrame, refused: Sequence[Refused]) -> DataFrame:
        keyless = " ".join(f"WHEN '{name}' THEN {literal(text)}" for name, text in _WHY.items())
        by_key = f"named_struct('reason', {ASIDE}, 'detail', CASE {ASIDE} {keyless} END)"
        if not refused:
            return self._raw(changes.where(f"{ASIDE} IS NOT NULL"), by_key)
        found = _local(changes.sparkSession, refused)
        joined = changes.join(F.broadcast(found), F.expr(f"{self._shape.key} = {_MATCHED}.row_key"), "left")
        told = joined.where(f"{ASIDE} IS NOT NULL OR {_MATCHED}.row_key IS NOT NULL")
        by_target = f"named_struct('reason', {_MATCHED}.reason, 'detail', {_MATCHED}.detail)"
        return self._raw(told, f"IF({ASIDE} IS NOT NULL, {by_key}, {by_target})")

    def _raw(self, rows: DataFrame, why: str) -> DataFrame:
        given = {"key": self._shape.key, "value": self._shape.value}
        kept = [f"CAST({given.get(name, 'NULL')} AS {kind}) AS {name}" for name, kind in RAW.items()]
        place = f"named_struct('version', {VERSION}, 'deleted', {DELETED}) AS {SOURCE}"
        return rows.selectExpr(*kept, place, f"{NOTHING_FAILED} AS {FAILED}", f"{why} AS why")


def _local(spark: SparkSession, refused: Sequence[Refused]) -> DataFrame:
    rows = [(one.key, one.reason, one.detail) for one in refused]
    return spark.createDataFrame(rows, "row_key STRING, reason STRING, detail STRING").alias(_MATCHED)


def _without(rows: DataFrame, there: DataFrame) -> DataFrame:
    known = there.selectExpr("key AS was_key", "value AS was_value", f"{SOURCE} AS was_{SOURCE}")
    equal = F.expr(f"key <=> was_key AND value <=> was_value AND {SOURCE} <=> was_{SOURCE}")
    return rows.join(known, equal, "left_anti")


# A sink's batches: sent, what cannot be sent set aside, and then recorded.
#
# The order decides what a crash leaves: the target first, then the quarantine, then the ledger. Until the last of
# them the batch runs again from its beginning; the target and the quarantine each know what they have of it, and a
# topic gets records again under the same ids.


SENT_ROWS_SCHEMA = (
    StructType()
    .add("generation", "long")
    .add("batch", "long")
    .add("topic", "string")
    .add("sent", "long")
    .add("sent_at", "timestamp")
)
SENT_CHANGES_SCHEMA = (
    StructType()
    .add("generation", "long")
    .add("batch", "long")
    .add("target", "string")
    .add("sent", "long")
    .add("rejected", "long")
    .add("sent_at", "timestamp")
)
"""What a sink keeps in the lake: a row per batch."""


def sent_schema(sink: SinkPlan) -> StructType:
    return SENT_CHANGES_SCHEMA if sink.follows_changes else SENT_ROWS_SCHEMA


class SinkProcessor(BatchProcessor):
    def __init__(
        self, sink: SinkPlan, payload: SinkPayload, target: SinkTarget, rejected: RejectedChanges | None = None
    ) -> None:
        """Without `rejected` a row that the target does not take stops the sink."""
        self._sink, self._payload, self._target, self._rejected = sink, payload, target, rejected
        self._counts: RowCounts = {}

    @property
    def outdated(self) -> bool:
        return False  # those who shall be forgotten are left out before it

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        rows = self._payload.rows(batch, files)
        result = self._target.send(rows, entry)
        if self._rejected is None:
            topic = self._sink.topic_sent_to
            record: tuple[object, ...] = (topic[1] if topic is not None else self._sink.name, result.changes)
        else:
            rejected = self._rejected.keep(rows, entry, result)
            record = (self._sink.name, result.changes, rejected)
            self._counts = {BATCHES: 1, READ: result.changes + rejected, REJECTED: rejected}
        row = (entry.generation, entry.batch, *record, datetime.now(UTC))
        recorded = batch.sparkSession.createDataFrame([row], sent_schema(self._sink))
        into.append(recorded.coalesce(1), replace(entry, sent=result.changes))

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        counts, self._counts = self._counts, {}
        return counts if written else {}
