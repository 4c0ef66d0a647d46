"""Topics of the development broker: made, listed, counted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.engine.kafka.admin import Admin
from penstock.errors import BrokerAway, UsageError
from penstock.plan.model import Cluster

TIMEOUT = 15.0


@dataclass(frozen=True)
class TopicCount:
    name: str
    partitions: int
    records: int
    """Offsets between first and next of all partitions: what a reader from the start would see, at most."""


@dataclass(frozen=True)
class NewTopicRequest:
    name: str
    partitions: int


def parse_topic(text: str) -> NewTopicRequest:
    """`name` or `name:partitions`."""
    name, colon, number = text.partition(":")
    if not name or (colon and not (number.isdigit() and int(number) > 0)):
        raise UsageError(f"--topic {text}: that is not a topic", hint="write name or name:partitions, as in orders:4")
    return NewTopicRequest(name, int(number) if colon else 1)


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bool:
    """False if there is one already (which is left as it is). Returns when the broker's own metadata has the topic: it
    follows the controller, which answers a little earlier."""
    request = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    client = _client(bootstrap)  # Held until the answer: a client that is collected takes its requests along.
    try:
        client.create_topics([request], request_timeout=TIMEOUT)[name].result(TIMEOUT + 5)
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if cause.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG):
            raise UsageError(f"the topic {name} was refused: {cause.str()}") from None
        raise _away(bootstrap, cause.str()) from None
    until = time.monotonic() + TIMEOUT
    while name not in client.list_topics(timeout=TIMEOUT).topics and time.monotonic() < until:
        time.sleep(0.02)
    return True


def count_topics(bootstrap: str) -> list[TopicCount]:
    """Every topic but Kafka's own."""
    try:
        names = [name for name in _client(bootstrap).list_topics(timeout=TIMEOUT).topics if not name.startswith("__")]
    except KafkaException as error:
        raise _away(bootstrap, error.args[0].str()) from None
    admin = Admin(Cluster("development", bootstrap), timeout=TIMEOUT)
    topics = admin.describe(names)
    first, following = admin.earliest(topics), admin.latest(topics, committed=False)
    return [
        TopicCount(
            name,
            len(topic.partitions),
            sum(following[name][p] - first[name][p] for p in topic.partitions),
        )
        for name, topic in sorted(topics.items())
    ]


def answering_cluster(bootstrap: str, timeout: float) -> str | None:
    """The id of the cluster that answers there, once it has a broker that takes clients."""
    try:
        answer = _client(bootstrap).list_topics(timeout=timeout)
    except KafkaException:
        return None
    return answer.cluster_id if answer.brokers else None


def _client(bootstrap: str) -> AdminClient:
    # librdkafka would write every refused connection to standard error while we wait for the broker.
    silent = logging.Logger("librdkafka", logging.CRITICAL + 1)
    properties: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": silent, "log_level": 0}
    return AdminClient(properties)


def _away(bootstrap: str, reason: str) -> BrokerAway:
    return BrokerAway(f"Kafka at {bootstrap} does not answer ({reason})", hint="penstock kafka status")
