"""The topic that events go to: made if it is missing, used as it is if not."""

from __future__ import annotations

import logging
import re
import time
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
DOWN_SECONDS = 2.0
"""Patience once no broker takes a connection: one that is just starting gets a chance."""

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
    heard: list[KafkaError] = []
    settings = client_conf(conf) | {"error_cb": heard.append}
    try:
        admin = AdminClient(settings)
        while True:
            try:
                asked = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)
                return Topic(name, len(_answer(admin, asked[name], heard).partitions), created=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            try:
                wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1)
                _answer(admin, admin.create_topics([wanted], request_timeout=ANSWER_SECONDS)[name], heard)
                return Topic(name, partitions, created=True)
            except KafkaException as error:
                # Somebody else made it between the question and the order: look again.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    except KafkaException as error:
        raise explained(error, settings, name) from None


def _answer(admin: AdminClient, future: Future[Any], heard: list[KafkaError]) -> Any:
    """The answer, or sooner than by its timeout what the connection says about itself: refused, or wrong password."""
    began = time.monotonic()
    while not future.done():
        admin.poll(0.05)
        denied = [error for error in heard if error.code() in _DENIED]
        lost = [error for error in heard if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE)]
        down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in heard)
        waited = time.monotonic() - began
        if denied or (lost and down and waited > DOWN_SECONDS) or waited > ANSWER_SECONDS + 5:
            raise KafkaException(*(denied or lost or [KafkaError(KafkaError._TIMED_OUT)])[:1])
    return future.result()


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
            f"{before}Kafka at {where} does not answer ({_reason(cause)})",
            hint="is it running there? `penstock kafka start` runs one for development",
        )
    if cause.code() in _DENIED:
        return PenstockError(
            f"{before}Kafka at {where} refused ({_reason(cause)})",
            hint="check `security` in the project file and the rights of its user",
        )
    if cause.code() == KafkaError.TOPIC_EXCEPTION:
        return _not_a_topic(topic)
    return PenstockError(
        f"{before}Kafka at {where}: {_reason(cause)}", hint=f"look at the topic {topic} and at the broker's log"
    )


def _reason(cause: KafkaError) -> str:
    """Without librdkafka's notes on who said it and after how long."""
    return re.sub(r"^\S+/\S+: | \(after \d+ms in state \w+.*\)$", "", str(cause.str()))


def _not_a_topic(name: str) -> UsageError:
    return UsageError(
        f"{name[:60]!r} cannot be the name of a topic",
        hint="use up to 249 letters, digits, dots, dashes and underscores",
    )
