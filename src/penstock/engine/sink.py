"""A sink's batches: sent to Kafka, then recorded. What dies in between is sent again, under the same ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.kafka.target import producer_options
from penstock.engine.protocol.commit import append
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.sink_message import Message
from penstock.engine.stages.observed import Observed
from penstock.errors import Terminal
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
_V1_SOURCES = "spark.sql.sources.useV1SourceList"
_SIZE = (
    "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + "
    "aggregate(headers, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0))"
)


class Sending:
    def __init__(self, sink: str, plan: SinkPlan, message: Message) -> None:
        self._sink, self._plan, self._message = sink, plan, message

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        sent = self._send(self._message.records(batch).coalesce(files))
        row = (entry.generation, entry.batch, self._plan.topic, sent, datetime.now(UTC))
        rows = batch.sparkSession.createDataFrame([row], LEDGER)
        append(rows.coalesce(1), uri, replace(entry, sent=sent), idempotent=idempotent)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        return {}

    def done(self) -> None:
        pass

    def _send(self, records: DataFrame) -> int:
        """Returns when the topic has all of them; how many that were."""
        observed = Observed()
        counted = observed.on(records, F.count(F.lit(1)).alias(_SENT))
        writer = counted.write.format("kafka").mode("append").options(**producer_options(self._plan))
        try:
            with _counting_writer(records.sparkSession):
                writer.save()
        except Exception as error:
            if "RecordTooLargeException" in _whole_story(error):
                raise self._too_large(records) from error
            raise
        told = observed.result()
        return int(told[_SENT]) if told is not None else records.count()

    def _too_large(self, records: DataFrame) -> Terminal:
        """Kafka does not say which one it was: the largest of the batch."""
        sizes = records.selectExpr("CAST(headers[0].value AS STRING) AS id", f"{_SIZE} AS size")
        found = sizes.agg(F.max_by("id", "size"), F.max("size")).first()
        name, size = found if found is not None else ("", 0)
        return Terminal(
            f"a row is too large for Kafka: {name} has {size:,} bytes",
            where=self._sink,
            hint="leave it out by `from: {where: …}`, send less of it by `value`, or let both sides take more: "
            "`to: {options: {max.request.size: 4MB}}` here, max.message.bytes at the topic. The sink goes on with the "
            "same batch: what it sent of that comes again under the same ids",
        )


@contextmanager
def _counting_writer(session: SparkSession) -> Iterator[None]:
    """Spark's older writer of Kafka tells nobody what it wrote; this session is that of one query alone."""
    before = session.conf.get(_V1_SOURCES) or ""
    session.conf.set(_V1_SOURCES, ",".join(one for one in before.split(",") if one.strip() != "kafka"))
    try:
        yield
    finally:
        session.conf.set(_V1_SOURCES, before)


def _whole_story(error: BaseException) -> str:
    """With the causes that the JVM keeps beside it."""
    told, cause = [str(error)], getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while cause is not None and len(told) < 10:
        told.append(str(cause.toString()))
        cause = cause.getCause()
    return "\n".join(told)
