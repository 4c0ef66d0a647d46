"""A look at single records: when the one at a place was made. Nothing is committed and no group is joined."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException, TopicPartition

from penstock.engine.kafka.admin import Silent, is_time
from penstock.engine.kafka.client import librdkafka
from penstock.engine.kafka.start import reads_committed
from penstock.plan.model import KafkaSource

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Record:
    """The first record at or after a place."""

    offset: int
    timestamp_ms: int
    by_broker: bool
    """The broker's clock gave the time, not the producer's."""


def peek(source: KafkaSource, at: Mapping[Place, int], *, timeout: float) -> dict[Place, Record]:
    """The first record at or after each offset that the source can see. A partition is left out that has none, whose
    records have no time, or that did not answer within `timeout` seconds: never raises because of the broker."""
    if not at:
        return {}
    consumer = Consumer(_settings(source))
    found: dict[Place, Record] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for (topic, partition), offset in at.items()])
        waiting, until = set(at), time.monotonic() + timeout
        while waiting and (left := until - time.monotonic()) > 0:
            message = consumer.poll(min(left, 0.2))
            if message is None or (place := _place(message)) not in waiting:
                continue
            waiting.discard(place)
            with suppress(KafkaException):  # more of it may be on the way: it need not be fetched
                consumer.incremental_unassign([TopicPartition(*place)])
            record = _record(message)
            if record is not None:
                found[place] = record
    except KafkaException:
        pass
    finally:
        consumer.close()
    return found


def _place(message: Any) -> Place:
    """An error that is not about one partition is of none."""
    partition = message.partition()
    return message.topic() or "", -1 if partition is None else partition


def _record(message: Any) -> Record | None:
    if message.error() is not None:  # the end of the partition, or an offset that is gone
        return None
    kind, timestamp_ms = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or not is_time(timestamp_ms):
        return None
    return Record(message.offset(), timestamp_ms, kind == TIMESTAMP_LOG_APPEND_TIME)


def _settings(source: KafkaSource) -> dict[str, Any]:
    return {
        **librdkafka(source.cluster, source.options),
        "isolation.level": "read_committed" if reads_committed(source) else "read_uncommitted",
        "group.id": "penstock-look",  # the client demands one; it is never joined
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "fetch.wait.max.ms": "50",
        "max.partition.fetch.bytes": "65536",
        "fetch.queue.backoff.ms": "5",  # by default it waits for a second before it fetches of the next partition
        "logger": Silent(),
        "log_level": 0,
    }
