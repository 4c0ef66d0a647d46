"""A sink's batches: sent to Kafka, then recorded. What dies in between is sent again, under the same ids."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.kafka.produce import produce
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into
from penstock.engine.sink_message import Message
from penstock.engine.stages.observed import Observed
from penstock.plan.model import SinkPlan

LEDGER = (
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


class Sending:
    def __init__(self, sink: str, plan: SinkPlan, message: Message) -> None:
        self._sink, self._plan, self._message = sink, plan, message

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        sent = self._send(self._message.records(batch).coalesce(files))
        row = (entry.generation, entry.batch, self._plan.topic, sent, datetime.now(UTC))
        rows = batch.sparkSession.createDataFrame([row], LEDGER)
        into.append(rows.coalesce(1), replace(entry, sent=sent))

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        return {}

    def done(self) -> None:
        pass

    def _send(self, records: DataFrame) -> int:
        """Returns when the topic has all of them; how many that were."""
        observed = Observed()
        produce(observed.on(records, F.count(F.lit(1)).alias(_SENT)), self._plan, self._sink, _LEAVE_OUT)
        told = observed.result()
        return int(told[_SENT]) if told is not None else records.count()
