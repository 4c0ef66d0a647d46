"""Kafka as a kind of source: the stream and the batch that Spark reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass

from penstock.kafka.client import Admin, java, kafka_source
from penstock.kafka.gaps import look_up
from penstock.ledger import position
from penstock.sources.topics import TopicsKind
from penstock.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kafka.client import Place
    from penstock.kafka.gaps import Progress
    from penstock.ledger.position import Offsets
    from penstock.ledger.spans import GapAnswer, Spans
    from penstock.plan.sources import KafkaSource, TopicsSource

_PENSTOCK_FORMAT, _SPARK_FORMAT = "penstock.kafka.Records", "kafka"


def record_format(spark: SparkSession) -> str:
    """The Kafka source of Penstock's jar: Spark's own stops forever at a record whose timestamp, which the producer
    chooses, it cannot hold. A session that Penstock did not create may lack the jar."""
    jvm = jvm_of(spark)
    return _PENSTOCK_FORMAT if isinstance(jvm.penstock.kafka.Records, JavaClass) else _SPARK_FORMAT


def options(source: KafkaSource, table: str) -> dict[str, str]:
    spark_options = {f"kafka.{name}": value for name, value in java(source.cluster, source.options).items()}
    if source.pattern is not None:
        # Anchored: Spark looks for a match anywhere in a name, but the pattern is meant for the whole name.
        spark_options["subscribePattern"] = f"^(?:{source.pattern})$"
    else:
        spark_options["subscribe"] = ",".join(source.topics)
    if source.max_per_trigger is not None:
        spark_options["maxOffsetsPerTrigger"] = str(source.max_per_trigger)
    if source.min_partitions is not None:
        spark_options["minPartitions"] = str(source.min_partitions)
    return spark_options | {
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": f"penstock-{table}",
        # Never used: every start has a seeded checkpoint. Without one, this reads too much rather than too little, and
        # the chain check refuses it.
        "startingOffsets": "earliest",
    }


_STREAM_OPTIONS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger")


class KafkaKind(TopicsKind):
    def client(self, source: TopicsSource, *, timeout: float) -> Admin:
        return Admin(kafka_source(source).cluster, timeout=timeout)

    def stream(self, spark: SparkSession, source: TopicsSource, table: str) -> DataFrame:
        return spark.readStream.format(record_format(spark)).options(**options(kafka_source(source), table)).load()

    def records(self, spark: SparkSession, source: TopicsSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
        read_options = {
            name: value for name, value in options(kafka_source(source), table).items() if name not in _STREAM_OPTIONS
        }
        read_options |= {
            "assign": json.dumps({topic: sorted(partitions) for topic, partitions in end.items()}),
            "startingOffsets": position.dump(first),
            "endingOffsets": position.dump(end),
        }
        return spark.read.format(record_format(spark)).options(**read_options).load()

    def explain_gaps(
        self, source: TopicsSource, gaps: Mapping[Place, Spans], progress: Progress
    ) -> dict[Place, GapAnswer]:
        return look_up(kafka_source(source), gaps, progress)
