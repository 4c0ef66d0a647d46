"""A table and a sink of its rows, on a real broker."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.integration.topic_records import Record, consume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

SINK = "out"
SCHEMA = "id BIGINT, name STRING"


class Shop:
    """A topic, bronze and silver over it, and a sink of silver."""

    def __init__(self, spark: SparkSession, project: Any, broker: Any, topic: Any) -> None:
        self.spark, self._project, self._broker = spark, project, broker
        self.came, self.goes = topic(partitions=2), topic(partitions=3, max_message_bytes="1048588")
        self._next = 0

    def plan(self, source: str = "silver.t", *, silver: dict[str, Any] | None = None, **sink: Any) -> Plan:
        reads = {"max_files": 1, **sink.pop("reads", {})}
        reads |= {} if "delta" in reads else {"table": source}
        target = {"kafka": self.goes, **sink.pop("to", {})}
        tables = {
            "bronze.t": {"from": {"kafka": self.came, "max_per_trigger": 20}},
            "silver.t": {
                "from": {"table": "bronze.t"},
                "decode": {"json": "value", "schema": SCHEMA},
                **(silver or {}),
            },
        }
        made: Plan = self._project(tables, sinks={SINK: {"from": reads, "to": target, **sink}})
        return made

    def send(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for _ in range(count):
            value = json.dumps({"id": self._next, "name": f"n{self._next}"})
            producer.produce(self.came, value, partition=self._next % 2)
            self._next += 1
        assert producer.flush(30) == 0

    @property
    def records(self) -> list[Record]:
        return consume(self._broker.bootstrap, self.goes)


def ids(records: list[Record]) -> Counter[str]:
    return Counter(record.id for record in records)
