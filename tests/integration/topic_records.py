"""Every record of a topic, as a consumer sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    partition: int

    @property
    def id(self) -> str:
        name = self.headers["penstock-id"]
        assert name is not None
        return name.decode()


def consume(bootstrap: str, topic: str) -> list[Record]:
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "test",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "fetch.message.max.bytes": 64 << 20,
    }
    consumer = Consumer(settings)
    partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Record] = []
    left = len(partitions)
    while left:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append(Record(message.key(), message.value(), dict(message.headers() or []), message.partition()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            left -= 1
    consumer.close()
    return found
