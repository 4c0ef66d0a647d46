"""Sinks: the rows or the changes of a table sent to another system, then recorded in the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.kafka.client import require_topic
from penstock.ledger.checkpoint import BATCHES, READ, REJECTED
from penstock.ledger.position import same
from penstock.ledger.writer import BatchMetrics, PinnedInputs
from penstock.sinks.base import AMBIGUOUS_KEY, ASIDE, DELETED, NULL_KEY, net
from penstock.sinks.kafka import produce
from penstock.sources.columns import FILE, SOURCE, VERSION
from penstock.sources.delta import DeltaReader
from penstock.spark.sql_text import literal
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kafka.client import Admin
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.source import Position, Start
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import ChangeSink, SinkPlan
    from penstock.plan.sources import DeltaSource
    from penstock.sinks.base import Message, Refused, SendResult, Shape, SinkTarget
    from penstock.storage.stores import Store
    from penstock.tables.quarantine import Quarantine

# The topic that a sink sends to: whether it is there, and what Spark's producer is told.


class SinkReader(DeltaReader):
    """What a sink reads. It asks for the topic whenever it looks at its source: a producer would make a missing one
    silently, with whatever number of partitions the broker thinks of."""

    def __init__(self, source: DeltaSource, store: Store, sink: str, target: SinkPlan, admin: Admin) -> None:
        super().__init__(source, store, sink)
        self._target, self._admin, self._sink = target, admin, sink

    def start(self) -> Start:
        self._require_topic()
        return super().start()

    def refuse_lost(self, entry: Entry) -> None:
        self._require_topic()
        super().refuse_lost(entry)

    def ids(self, after: Position) -> Mapping[str, str]:
        self._require_topic()
        return super().ids(after)

    def stream(self, spark: SparkSession, more: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
        """Each row with the file that holds it. Delta has no number of a row in its file."""
        return super().stream(spark, more).selectExpr("*", f"input_file_name() AS {FILE}")

    def _require_topic(self) -> None:
        require_topic(self._admin, self._target, self._sink)


# A sink's batches: sent to Kafka, then recorded. What dies in between is sent again, under the same ids.


SENT_ROWS_SCHEMA = (
    StructType()
    .add("generation", "long")
    .add("batch", "long")
    .add("topic", "string")
    .add("sent", "long")
    .add("sent_at", "timestamp")
)
"""What a sink keeps in the lake: a row per batch."""
_SENT = "sent"
_LEAVE_OUT = "leave it out by `from: {where: …}`, "


class RowSinkProcessor:
    def __init__(self, sink: str, plan: SinkPlan, message: Message) -> None:
        self._sink, self._plan, self._message = sink, plan, message

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return PinnedInputs()

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        sent = self._send(self._message.records(batch).coalesce(files))
        row = (entry.generation, entry.batch, self._plan.topic, sent, datetime.now(UTC))
        rows = batch.sparkSession.createDataFrame([row], SENT_ROWS_SCHEMA)
        into.append(rows.coalesce(1), replace(entry, sent=sent))

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        return {}

    def done(self) -> None:
        pass

    def _send(self, records: DataFrame) -> int:
        """Returns when the topic has all of them; how many that were."""
        observed = BatchMetrics()
        produce(observed.on(records, F.count(F.lit(1)).alias(_SENT)), self._plan, self._sink, _LEAVE_OUT)
        told = observed.result()
        return int(told[_SENT]) if told is not None else records.count()


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


# A sink's batches of changes: their net effect sent, what cannot be sent set aside, and then recorded.
#
# The order decides what a crash leaves: the target first, then the quarantine, then the ledger. Until the last of
# them the batch runs again from its beginning; the target and the quarantine each know what they have of it.


SENT_CHANGES_SCHEMA = (
    StructType()
    .add("generation", "long")
    .add("batch", "long")
    .add("target", "string")
    .add("sent", "long")
    .add("rejected", "long")
    .add("sent_at", "timestamp")
)
"""What such a sink keeps in the lake: a row per batch."""


class ChangeSinkProcessor:
    def __init__(self, plan: ChangeSink, shape: Shape, target: SinkTarget, aside: RejectedChanges) -> None:
        self._plan, self._shape, self._target, self._aside = plan, shape, target, aside
        self._fates: RowCounts = {}

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return PinnedInputs()

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        changes = net(batch, self._shape.key_names)
        sent = self._target.send(changes, entry)
        rejected = self._aside.keep(changes, entry, sent)
        row = (entry.generation, entry.batch, self._plan.said, sent.changes, rejected, datetime.now(UTC))
        rows = batch.sparkSession.createDataFrame([row], SENT_CHANGES_SCHEMA)
        into.append(rows.coalesce(1), replace(entry, sent=sent.changes))
        self._fates = {BATCHES: 1, READ: sent.changes + rejected, REJECTED: rejected}

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        fates, self._fates = self._fates, {}
        return fates if written else {}

    def done(self) -> None:
        pass
