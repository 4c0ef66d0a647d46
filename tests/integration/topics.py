"""What happens to topics while nobody looks."""

from __future__ import annotations

import time
from typing import Any


def _admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap})


def delete_topic(bootstrap: str, name: str) -> None:
    """Returns when the broker no longer knows it."""
    admin = _admin(bootstrap)
    for future in admin.delete_topics([name]).values():
        future.result(20)
    deadline = time.monotonic() + 20
    while name in admin.list_topics(timeout=10).topics:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def make_again(broker: Any, name: str, partitions: int = 2) -> None:
    delete_topic(broker.bootstrap, name)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert broker.create_topic(name, partitions)
            return
        except Exception:  # the broker still clears the old one away
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def raise_partitions(bootstrap: str, name: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    admin = _admin(bootstrap)  # must outlive the answer
    for future in admin.create_partitions([NewPartitions(name, partitions)]).values():
        future.result(20)


def forget_records(bootstrap: str, name: str, partition: int, before: int) -> None:
    """As retention does: the records before an offset are gone."""
    from confluent_kafka import TopicPartition

    admin = _admin(bootstrap)
    for future in admin.delete_records([TopicPartition(name, partition, before)]).values():
        future.result(20)
