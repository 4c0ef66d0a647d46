"""Kafka topics as targets: rows through Spark's writer; for changes one record per key, or a tombstone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import Terminal
from penstock.kafka.client import producer_options, require_topic
from penstock.ledger.writer import BatchMetrics
from penstock.sinks.base import DELETED, REJECTION, Refused, SendResult, header, part, refuse_other_rows
from penstock.sources.columns import VERSION
from penstock.spark.jvm import java_causes
from penstock.spark.sql_text import literal
from penstock.spec.sink import ID_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kafka.client import Admin
    from penstock.ledger.entry import Entry
    from penstock.plan.targets import KafkaTarget, RowSink
    from penstock.sinks.base import Shape


_V1_SOURCES = "spark.sql.sources.useV1SourceList"
SIZE = (
    "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + "
    "aggregate(headers, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0))"
)


def produce(records: DataFrame, target: RowSink | KafkaTarget, sink: str, leave_out: str = "") -> None:
    """Key, value and headers, whose first is the id. Returns when the topic has all of them. `leave_out` says how a
    record that is too large can be left out."""
    writer = records.write.format("kafka").mode("append").options(**producer_options(target))
    try:
        with _reporting_writer(records.sparkSession):
            writer.save()
    except Exception as error:
        if "RecordTooLargeException" in _error_chain(error):
            raise _too_large(records, sink, leave_out) from error
        raise


def _too_large(records: DataFrame, sink: str, leave_out: str) -> Terminal:
    """Kafka does not say which record it was, so this reports the largest of the batch."""
    sizes = records.selectExpr("CAST(headers[0].value AS STRING) AS id", f"{SIZE} AS size")
    largest = sizes.agg(F.max_by("id", "size"), F.max("size")).first()
    name, size = largest if largest is not None else ("", 0)
    return Terminal(
        f"a row is too large for Kafka: {name} has {size:,} bytes",
        where=sink,
        hint=f"{leave_out}send less of it by `value`, or let both sides take more: "
        "`to: {options: {max.request.size: 4MB}}` here, max.message.bytes at the topic. The sink continues with the "
        "same batch: what it sent of that comes again under the same ids",
    )


@contextmanager
def _reporting_writer(session: SparkSession) -> Iterator[None]:
    """Spark's older Kafka writer reports no metrics, so the newer one is used; the session belongs to one query
    alone."""
    before = session.conf.get(_V1_SOURCES) or ""
    session.conf.set(_V1_SOURCES, ",".join(source for source in before.split(",") if source.strip() != "kafka"))
    try:
        yield
    finally:
        session.conf.set(_V1_SOURCES, before)


def _error_chain(error: BaseException) -> str:
    """The error's message with those of its causes in the JVM."""
    return "\n".join([str(error), *(str(cause.toString()) for cause in islice(java_causes(error), 9))])


_SENT = "sent"
_LEAVE_OUT = "leave it out by `from: {where: …}`, "


class TopicRows:
    """A topic that gets rows as they are added."""

    def __init__(self, sink: str, plan: RowSink, admin: Admin) -> None:
        self._sink, self._plan, self._admin = sink, plan, admin

    def ready(self, last: Entry) -> None:
        """A producer would create a missing topic silently, with whatever number of partitions the broker chooses."""
        require_topic(self._admin, self._plan, self._sink)

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        require_topic(self._admin, self._plan, self._sink)
        metrics = BatchMetrics()
        produce(metrics.on(changes, F.count(F.lit(1)).alias(_SENT)), self._plan, self._sink, _LEAVE_OUT)
        counts = metrics.result()
        return SendResult(int(counts[_SENT]) if counts is not None else changes.count(), 0)


# A Kafka topic: for every key that changed one record, its row; or a tombstone if the row was deleted.


CHANGE, AT = "penstock-change", "penstock-version"
"""Headers next to the id: upsert or delete, and the version of the table that the change is of."""
_MAX_REQUEST = 1_048_576
"""The default of max.request.size in Kafka's producer."""
_RECORD_OVERHEAD = 200
"""Upper bound for the bytes that a record takes besides its parts."""
_MOST_REFUSED = 10_000
_GOOD, _LARGE = "__good", "__large"


class TopicTarget:
    def __init__(self, spark: SparkSession, sink: str, plan: KafkaTarget, shape: Shape, admin: Admin) -> None:
        """Terminal if `value` or `headers` cannot be part of a record."""
        self._sink, self._plan, self._admin, self._shape = sink, plan, admin, shape
        rows = spark.createDataFrame([], StructType(list(shape.own)))
        value = shape.value if plan.value is None else part(rows, sink, "value", plan.value)
        values = {name: part(rows, sink, f"headers: {name}", text) for name, text in plan.headers.items()}
        refuse_other_rows(rows, (f"{value} AS value", *(f"{text} AS h" for text in values.values())), sink)
        change, version = f"IF({DELETED}, 'delete', 'upsert')", f"CAST({VERSION} AS STRING)"
        record_id = f"concat({literal(f'{sink}/')}, {version}, '/', {shape.key})"
        headers = {ID_HEADER: record_id, CHANGE: change, AT: version, **values}
        header_list = ", ".join(header(name, text) for name, text in headers.items())
        self._parts = (
            f"CAST({shape.key} AS BINARY) AS key",
            f"IF({DELETED}, NULL, CAST({value} AS BINARY)) AS value",
            f"array({header_list}) AS headers",
        )
        self._limit = int(plan.options.get("max.request.size", _MAX_REQUEST))

    def ready(self, last: Entry) -> None:
        require_topic(self._admin, self._plan, self._sink)

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        require_topic(self._admin, self._plan, self._sink)
        parts = changes.selectExpr(*self._parts, REJECTION)
        large = f"{REJECTION} IS NULL AND {SIZE} + {_RECORD_OVERHEAD} + 20 * size(headers) > {self._limit}"
        records = parts.selectExpr("*", f"{large} AS {_LARGE}").selectExpr(
            "*", f"{REJECTION} IS NULL AND NOT {_LARGE} AS {_GOOD}"
        )
        batch_metrics = BatchMetrics()
        metrics = [F.count_if(F.expr(text)).alias(name) for name, text in _METRICS.items()]
        good = batch_metrics.on(records, *metrics).where(_GOOD).select("key", "value", "headers")
        produce(good, self._plan, self._sink)
        counts: Any = batch_metrics.result()
        if counts is None:
            counts = records.agg(*metrics).first().asDict()  # type: ignore[union-attr]
        return SendResult(
            int(counts["sent"]), int(counts["aside"]), self._too_large(records) if counts["large"] else ()
        )

    def _too_large(self, records: DataFrame) -> list[Refused]:
        rows = records.where(_LARGE).selectExpr("CAST(key AS STRING)", SIZE).limit(_MOST_REFUSED + 1).collect()
        if len(rows) > _MOST_REFUSED:
            raise Terminal(
                f"more than {_MOST_REFUSED:,} rows of one batch are too large for Kafka",
                where=self._sink,
                hint="send less of them by `columns` or `value`, or let both sides take more: "
                "`to: {options: {max.request.size: 4MB}}` here, max.message.bytes at the topic",
            )
        limit = f"max.request.size is {self._limit:,}"
        return [Refused(key, "too_large", f"the record has {size:,} bytes; {limit}") for key, size in rows]


_METRICS = {"sent": _GOOD, "aside": f"{REJECTION} IS NOT NULL", "large": _LARGE}
