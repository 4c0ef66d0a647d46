"""The topic that events go to: made if it is missing, used as it is if not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.errors import BrokerAway, PenstockError, UsageError

Conf = str | Mapping[str, str]
"""host:port, or librdkafka's properties for a cluster."""
ANSWER_SECONDS = 10.0

# librdkafka writes to standard error by itself otherwise; what matters reaches the user as an error.
_quiet = logging.getLogger("penstock.dev.generate.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False

_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True)
class Topic:
    name: str
    partitions: int
    created: bool


def ensure_topic(conf: Conf, name: str, partitions: int) -> Topic:
    """The topic, made with so many partitions if it did not exist. An existing one keeps the number it has."""
    if partitions < 1:
        raise UsageError(f"a topic has at least one partition, not {partitions}", hint="write for example 4")
    if not name:
        raise _not_a_topic(name)
    conf = client_conf(conf)
    admin = AdminClient(conf)
    try:
        try:
            return Topic(name, _partitions(admin, name), created=False)
        except KafkaException as error:
            if _code(error) != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1)
        _answer(admin.create_topics([wanted], request_timeout=ANSWER_SECONDS)[name])
    except KafkaException as error:
        if _code(error) == KafkaError.TOPIC_ALREADY_EXISTS:
            # Somebody else made it between the question and the order.
            return ensure_topic(conf, name, partitions)
        raise explained(error, conf, name) from None
    return Topic(name, partitions, created=True)


def client_conf(conf: Conf) -> dict[str, Any]:
    """Properties of a client that says nothing on its own."""
    given = {"bootstrap.servers": conf} if isinstance(conf, str) else dict(conf)
    return {**given, "logger": _quiet, "log_level": 0}


def explained(error: KafkaException, conf: Mapping[str, Any], topic: str, before: str = "") -> PenstockError:
    """The error as one of ours; `before` tells what it means for the work at hand."""
    cause: KafkaError = error.args[0]
    where = conf["bootstrap.servers"]
    if cause.code() in _AWAY:
        return BrokerAway(
            f"{before}Kafka at {where} does not answer ({cause.str()})",
            hint="is it running there? `penstock kafka start` runs one for development",
        )
    if cause.code() in _DENIED:
        return PenstockError(
            f"{before}Kafka at {where} refused ({cause.str()})",
            hint="check `security` in the project file and the rights of its user",
        )
    if cause.code() == KafkaError.TOPIC_EXCEPTION:
        return _not_a_topic(topic)
    return PenstockError(
        f"{before}Kafka at {where}: {cause.str()}", hint=f"look at the topic {topic} and at the broker's log"
    )


def _not_a_topic(name: str) -> UsageError:
    return UsageError(
        f"{name[:60]!r} cannot be the name of a topic",
        hint="use up to 249 letters, digits, dots, dashes and underscores",
    )


def _partitions(admin: AdminClient, name: str) -> int:
    found = _answer(admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)[name])
    return len(found.partitions)


def _answer(future: Future[Any]) -> Any:
    return future.result(timeout=ANSWER_SECONDS + 5)


def _code(error: KafkaException) -> int:
    cause: KafkaError = error.args[0]
    return int(cause.code())
