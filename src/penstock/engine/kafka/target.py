"""The topic that a sink sends to: whether it is there, and what Spark's producer is told."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.delta.reader import DeltaReader
from penstock.engine.kafka.admin import Admin
from penstock.engine.kafka.client import java
from penstock.engine.protocol.entry import Entry
from penstock.engine.source import Position, Start
from penstock.engine.stages.coordinates import FILE
from penstock.engine.store import Store
from penstock.errors import Transient
from penstock.plan.model import DeltaSource, SinkPlan
from penstock.plan.target import KafkaTarget


def producer_options(target: SinkPlan | KafkaTarget) -> dict[str, str]:
    """The cluster's own options are in the plan's, as far as a producer knows them."""
    from dataclasses import replace

    found = java(replace(target.cluster, options={}), target.options)
    return {**{f"kafka.{name}": value for name, value in found.items()}, "topic": target.topic}


def require_topic(admin: Admin, target: SinkPlan | KafkaTarget, sink: str) -> None:
    """Raises Transient while the topic is not there."""
    topic, bootstrap = target.topic, target.cluster.bootstrap
    if topic not in admin.describe([topic]):
        raise Transient(
            f"topic {topic} does not exist on {bootstrap}",
            where=sink,
            hint="create it with as many partitions as its consumers need: "
            f"`kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 4`, at the "
            f"development broker `penstock kafka start --topic {topic}:4`",
        )


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
