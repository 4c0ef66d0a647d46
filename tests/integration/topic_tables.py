"""Bronze tables written by hand over topics of a real broker, and what `verify` says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from penstock.errors import BrokerAway
from penstock.kafka.client import Admin
from penstock.plan.model import TablePlan
from penstock.storage.stores import LocalStore
from penstock.verify.report import Report
from penstock.verify.table import verify
from tests.bronze_table import BronzeTable, Where, table_plan

Offsets = dict[str, dict[int, int]]


def begun(folder: Path, bootstrap: str, *topics: str, start: Offsets | None = None) -> BronzeTable:
    """A table over topics, begun at their first offsets."""
    plan = table_plan(str(folder / "lake" / "orders"), bootstrap=bootstrap)
    plan = replace(plan, source=replace(plan.source, topics=topics))
    admin = Admin(plan.source.cluster)
    found = admin.describe(topics)
    ids = {name: topic.id for name, topic in found.items()}
    return BronzeTable(plan, ids).genesis(start or first_offsets(admin, found))


def first_offsets(admin: Admin, topics: dict[str, Any]) -> Offsets:
    """A topic that was made a moment ago may have no leader yet."""
    for _ in range(50):
        try:
            return admin.earliest(topics)
        except BrokerAway:
            time.sleep(0.1)
    return admin.earliest(topics)


def ends(plan: TablePlan) -> Offsets:
    admin = Admin(plan.source.cluster)
    return admin.latest(admin.describe(plan.source.topics))


def visible(plan: TablePlan) -> list[Where]:
    """The records that a reader of committed ones gets."""
    settings = {
        "bootstrap.servers": plan.source.cluster.bootstrap,
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    parts = [(t, p) for t, partitions in ends(plan).items() for p in partitions]
    consumer.assign([TopicPartition(t, p, 0) for t, p in parts])
    found: list[Where] = []
    left = len(parts)
    while left:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append((message.topic(), message.partition(), message.offset()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            left -= 1
    consumer.close()
    return found


def produce(plan: TablePlan, topic: str, values: Iterable[str], partition: int = 0, key: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": plan.source.cluster.bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, key, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def transactions(plan: TablePlan, topic: str, count: int, records: int, *, abort: Callable[[int], bool]) -> None:
    settings = {"bootstrap.servers": plan.source.cluster.bootstrap, "transactional.id": f"t-{topic}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for record in range(records):
            producer.produce(topic, f"{number}-{record}", partition=number % 2)
        producer.flush(30)
        producer.abort_transaction(30) if abort(number) else producer.commit_transaction(30)


def checked(table: BronzeTable) -> Report:
    (report,) = verify([table.plan], LocalStore())
    return report


def lost(report: Report) -> dict[tuple[str, int], list[tuple[int, int]]]:
    return {one.key: list(one.lost) for one in report.partitions if one.lost}
