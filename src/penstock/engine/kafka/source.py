"""A table's Kafka source as Spark reads it."""

from __future__ import annotations

from py4j.java_gateway import JavaClass
from pyspark.sql import DataFrame, SparkSession

from penstock.engine.kafka.client import java
from penstock.plan.model import KafkaSource

_OWN, _SPARKS = "penstock.kafka.Records", "kafka"


def record_format(spark: SparkSession) -> str:
    """Spark's Kafka source, as Penstock's own jar reads it: Spark's own stops for ever at a record whose timestamp, a
    number of its producer's, it cannot hold. A session that somebody else has made may lack the jar."""
    jvm = spark._jvm
    assert jvm is not None
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


def read_stream(spark: SparkSession, source: KafkaSource, table: str) -> DataFrame:
    return spark.readStream.format(record_format(spark)).options(**options(source, table)).load()
