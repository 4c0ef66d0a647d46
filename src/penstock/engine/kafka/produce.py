"""Records on their way to a topic, by Spark's writer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.kafka.target import producer_options
from penstock.errors import Terminal
from penstock.plan.model import SinkPlan
from penstock.plan.target import KafkaTarget

_V1_SOURCES = "spark.sql.sources.useV1SourceList"
SIZE = (
    "coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + "
    "aggregate(headers, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0))"
)


def produce(records: DataFrame, target: SinkPlan | KafkaTarget, sink: str, leave_out: str = "") -> None:
    """Key, value and headers, whose first is the id. Returns when the topic has all of them. `leave_out` says how a
    record that is too large can be left out."""
    writer = records.write.format("kafka").mode("append").options(**producer_options(target))
    try:
        with _counting_writer(records.sparkSession):
            writer.save()
    except Exception as error:
        if "RecordTooLargeException" in _whole_story(error):
            raise _too_large(records, sink, leave_out) from error
        raise


def _too_large(records: DataFrame, sink: str, leave_out: str) -> Terminal:
    """Kafka does not say which one it was: the largest of the batch."""
    sizes = records.selectExpr("CAST(headers[0].value AS STRING) AS id", f"{SIZE} AS size")
    found = sizes.agg(F.max_by("id", "size"), F.max("size")).first()
    name, size = found if found is not None else ("", 0)
    return Terminal(
        f"a row is too large for Kafka: {name} has {size:,} bytes",
        where=sink,
        hint=f"{leave_out}send less of it by `value`, or let both sides take more: "
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
