"""Kafka as a kind of source: the stream and the records that Spark reads."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass

from penstock.kafka.client import Admin, java, kafka_source
from penstock.sources.topics import TopicsKind
from penstock.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.position import Offsets
    from penstock.plan.sources import KafkaSource, TopicsSource

_OWN, _SPARKS = "penstock.kafka.Records", "kafka"


def record_format(spark: SparkSession) -> str:
    """Spark's Kafka source, as Penstock's own jar reads it: Spark's own stops for ever at a record whose timestamp, a
    number of its producer's, it cannot hold. A session that somebody else has made may lack the jar."""
    jvm = jvm_of(spark)
    return _OWN if isinstance(jvm.penstock.kafka.Records, JavaClass) else _SPARKS


def options(source: KafkaSource, table: str) -> dict[str, str]:
    found = {f"kafka.{name}": value for name, value in java(source.cluster, source.options).items()}
    if source.pattern is not None:
        # Anchored: Spark looks for a match anywhere in a name, we and everybody else mean the whole name.
        found["subscribePattern"] = f"^(?:{source.pattern})$"
    else:
        found["subscribe"] = ",".join(source.topics)
    if source.max_per_trigger is not None:
        found["maxOffsetsPerTrigger"] = str(source.max_per_trigger)
    if source.min_partitions is not None:
        found["minPartitions"] = str(source.min_partitions)
    return found | {
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": f"penstock-{table}",
        # Never used: every start is from a seeded checkpoint. If one were not, this reads too much rather than too
        # little, and the chain check refuses it.
        "startingOffsets": "earliest",
    }


_OF_STREAMS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger")


class KafkaKind(TopicsKind):
    def client(self, source: TopicsSource, *, timeout: float) -> Admin:
        return Admin(kafka_source(source).cluster, timeout=timeout)

    def stream(self, spark: SparkSession, source: TopicsSource, table: str) -> DataFrame:
        return spark.readStream.format(record_format(spark)).options(**options(kafka_source(source), table)).load()

    def records(self, spark: SparkSession, source: TopicsSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
        asked = {name: value for name, value in options(kafka_source(source), table).items() if name not in _OF_STREAMS}
        asked |= {
            "assign": json.dumps({topic: sorted(partitions) for topic, partitions in end.items()}),
            "startingOffsets": _offsets(first),
            "endingOffsets": _offsets(end),
        }
        return spark.read.format(record_format(spark)).options(**asked).load()


def _offsets(offsets: Offsets) -> str:
    return json.dumps({topic: {str(p): o for p, o in sorted(parts.items())} for topic, parts in offsets.items()})
