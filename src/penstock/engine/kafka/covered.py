"""The records of topics between two positions, as rows for a batch: as far as the broker still has them."""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.kafka.source import options, record_format
from penstock.engine.protocol.position import Offsets
from penstock.plan.model import KafkaSource

_OF_STREAMS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger")


def held_from(began: Offsets, after: Offsets, earliest: Offsets) -> Offsets:
    """The first offset of each partition that can be read: where the table began, or where the broker begins."""
    return {
        topic: {
            partition: min(end, max(began.get(topic, {}).get(partition, 0), earliest.get(topic, {}).get(partition, 0)))
            for partition, end in partitions.items()
        }
        for topic, partitions in after.items()
    }


def missing(began: Offsets, held: Offsets) -> int:
    """Offsets that the table has read and the broker no longer has."""
    return sum(
        max(0, offset - began.get(topic, {}).get(partition, 0))
        for topic, partitions in held.items()
        for partition, offset in partitions.items()
    )


def records(spark: SparkSession, source: KafkaSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
    asked = {name: value for name, value in options(source, table).items() if name not in _OF_STREAMS}
    asked |= {
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in end.items()}),
        "startingOffsets": _offsets(first),
        "endingOffsets": _offsets(end),
    }
    return spark.read.format(record_format(spark)).options(**asked).load()


def _offsets(offsets: Offsets) -> str:
    return json.dumps({topic: {str(p): o for p, o in sorted(parts.items())} for topic, parts in offsets.items()})
