"""Events into Kafka: the topic, and every event acknowledged by all replicas, once."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.dev.generate.event import Event, Headers
from penstock.errors import BrokerAway, PenstockError, UsageError

# The topic that events go to: made if it is missing, used as it is if not.


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
class EventTopic:
    name: str
    partitions: int
    created: bool


def ensure_topic(conf: Conf, name: str, partitions: int) -> EventTopic:
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
                return EventTopic(name, len(_answer(admin, asked[name], heard).partitions), created=False)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            try:
                wanted = NewTopic(name, num_partitions=partitions, replication_factor=-1)
                _answer(admin, admin.create_topics([wanted], request_timeout=ANSWER_SECONDS)[name], heard)
                return EventTopic(name, partitions, created=True)
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


# Events into Kafka: every one acknowledged by all replicas, once, or an error that says how many were not.


CHUNK = 500
"""Events between two looks at delivery reports, the clock and `stop`."""
PACED_SECONDS = 0.01
"""At a given rate, the events of so long are sent together: sleeping for each would cap the rate at some thousands."""
GIVE_UP_SECONDS = 60
"""How long an event may stay unacknowledged: covers a broker's restart, and ends a run whose broker is gone."""


@dataclass(frozen=True)
class ProducedEvents:
    """What the broker acknowledged."""

    topic: EventTopic
    count: int
    labels: dict[str, int]
    """Events per label: valid, late, duplicate, malformed.<how>."""
    bytes: int
    """Of keys and values."""
    seconds: float
    offsets: dict[int, int]
    """Per partition that was written to: the offset of the last event."""
    stopped: bool = field(default=False)
    """`stop` ended the run before the events did."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0


class _Reports:
    """Counts what the broker says about each event. Called from poll and flush, on the caller's thread."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.offsets: dict[int, int] = {}
        self.failed = 0
        self.reason: KafkaError | None = None

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            self.reason = self.reason or error
            return
        self.acknowledged += 1
        partition, offset = message.partition(), message.offset()
        if partition is not None and offset is not None and offset > self.offsets.get(partition, -1):
            self.offsets[partition] = offset


def produce(
    conf: Conf,
    topic: str,
    events: Iterable[Event],
    *,
    partitions: int = 4,
    rate: float | None = None,
    on_topic: Callable[[EventTopic], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> ProducedEvents:
    """Sends the events and waits until the broker has acknowledged each.

    `conf` is host:port or librdkafka's properties. The topic is made with `partitions` if it is missing. With a rate
    (events per second) event n leaves n/rate seconds after the start, whatever happened before. `on_progress` gets the
    number acknowledged so far; `stop` is asked between chunks.
    """
    place = ensure_topic(conf, topic, partitions)
    if on_topic:
        on_topic(place)
    settings = _producer_conf(conf)
    producer, reports, tally = Producer(settings), _Reports(), _Tally(events)
    chunk = max(1, min(CHUNK, round(rate * PACED_SECONDS))) if rate else CHUNK
    began, stopped = time.monotonic(), False
    refused: KafkaException | None = None
    try:
        while not stopped and (batch := tally.take(chunk)):
            _send(producer, topic, batch, reports)
            producer.poll(0)
            if on_progress:
                on_progress(reports.acknowledged)
            if rate:
                _wait_until(began + tally.count / rate, producer, reports, stop)
            stopped = stop()
            if reports.failed:
                break
    except KafkaException as error:
        refused = error
    _flush(producer, on_progress, reports)
    unanswered = reports.failed + len(producer)
    if refused or unanswered:
        raise explained(
            refused or KafkaException(reports.reason or KafkaError(KafkaError._TIMED_OUT)),
            settings,
            topic,
            before=f"{reports.acknowledged:,} events were acknowledged and {unanswered:,} were not: ",
        )
    return ProducedEvents(
        topic=place,
        count=reports.acknowledged,
        labels=dict(sorted(tally.labels.items())),
        bytes=tally.bytes,
        seconds=time.monotonic() - began,
        offsets=dict(sorted(reports.offsets.items())),
        stopped=stopped,
    )


class _Tally:
    """The events on their way, counted as they pass."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events: Iterator[Event] = iter(events)
        self.count = self.bytes = 0
        self.labels: Counter[str] = Counter()

    def take(self, number: int) -> list[Event]:
        taken = list(islice(self._events, number))
        self.count += len(taken)
        self.labels.update([event.label for event in taken])
        self.bytes += sum([len(event.key or b"") + len(event.value or b"") for event in taken])
        return taken


def _producer_conf(conf: Conf) -> dict[str, Any]:
    return {
        **client_conf(conf),
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": GIVE_UP_SECONDS * 1000,
        "linger.ms": 10,
        "batch.size": 1 << 20,
        "compression.type": "lz4",
        # As Java's producer does: a topic fed by both has each key in one partition.
        "partitioner": "murmur2_random",
    }


def _send(producer: Producer, topic: str, batch: list[Event], reports: _Reports) -> None:
    """The records' own timestamp is the time of sending: with an old one, retention would remove them at once."""
    shared: Headers = ()
    headers: list[tuple[str, str | bytes | None]] = []
    for event in batch:
        if event.headers is not shared:
            shared, headers = event.headers, list(event.headers)
        while True:
            try:
                producer.produce(topic, event.value, event.key, headers=headers, on_delivery=reports)
                break
            except BufferError:
                producer.poll(0.1)


def _wait_until(moment: float, producer: Producer, reports: _Reports, stop: Callable[[], bool]) -> None:
    while (left := moment - time.monotonic()) > 0 and not reports.failed and not stop():
        producer.poll(min(left, 0.1))


def _flush(producer: Producer, on_progress: Callable[[int], None] | None, reports: _Reports) -> None:
    """Each event is answered within GIVE_UP_SECONDS, well or badly; the rest of the bound is for good measure."""
    latest = time.monotonic() + GIVE_UP_SECONDS + 10
    while producer.flush(0.2) and time.monotonic() < latest:
        if on_progress:
            on_progress(reports.acknowledged)
    if on_progress:
        on_progress(reports.acknowledged)
