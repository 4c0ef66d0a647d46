"""Sending events to Kafka: the topic, and every event acknowledged by all replicas, once."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.dev.generate.event import Event, Headers
from penstock.errors import BrokerAway, PenstockError, UsageError

# The topic of the events: created if it is missing, otherwise used as it is.


Conf = str | Mapping[str, str]
"""host:port, or librdkafka's properties for a cluster."""
ANSWER_SECONDS = 10.0
DOWN_SECONDS = 2.0
"""Seconds to wait once no broker accepts a connection: one that is just starting gets a chance."""

# Otherwise librdkafka writes to standard error; what matters reaches the user as an error.
_silent_logger = logging.getLogger("penstock.dev.generate.librdkafka")
_silent_logger.addHandler(logging.NullHandler())
_silent_logger.propagate = False

_UNREACHABLE = {
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
    """The topic, created with this many partitions if it did not exist. An existing topic keeps its partitions."""
    if partitions < 1:
        raise UsageError(f"a topic has at least one partition, not {partitions}", hint="write for example 4")
    if not name:
        raise _bad_topic_name(name)
    client_errors: list[KafkaError] = []
    settings = client_conf(conf) | {"error_cb": client_errors.append}
    try:
        admin = AdminClient(settings)
        while True:
            try:
                futures = admin.describe_topics(TopicCollection([name]), request_timeout=ANSWER_SECONDS)
                return EventTopic(
                    name, len(_wait_for_answer(admin, futures[name], client_errors).partitions), created=False
                )
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            try:
                new_topic = NewTopic(name, num_partitions=partitions, replication_factor=-1)
                _wait_for_answer(
                    admin, admin.create_topics([new_topic], request_timeout=ANSWER_SECONDS)[name], client_errors
                )
                return EventTopic(name, partitions, created=True)
            except KafkaException as error:
                # Another process created it after we asked for it: ask again.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    except KafkaException as error:
        raise explained(error, settings, name) from None


def _wait_for_answer(admin: AdminClient, future: Future[Any], client_errors: list[KafkaError]) -> Any:
    """The answer; or, before its timeout, the error of the connection: refused, or a wrong password."""
    started = time.monotonic()
    while not future.done():
        admin.poll(0.05)
        denied = [error for error in client_errors if error.code() in _DENIED]
        connection_errors = [
            error for error in client_errors if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE)
        ]
        all_down = any(error.code() == KafkaError._ALL_BROKERS_DOWN for error in client_errors)
        waited = time.monotonic() - started
        if denied or (connection_errors and all_down and waited > DOWN_SECONDS) or waited > ANSWER_SECONDS + 5:
            raise KafkaException(*(denied or connection_errors or [KafkaError(KafkaError._TIMED_OUT)])[:1])
    return future.result()


def client_conf(conf: Conf) -> dict[str, Any]:
    """Properties of a client that logs nothing by itself."""
    properties = {"bootstrap.servers": conf} if isinstance(conf, str) else dict(conf)
    return {**properties, "logger": _silent_logger, "log_level": 0}


def explained(error: KafkaException, conf: Mapping[str, Any], topic: str, before: str = "") -> PenstockError:
    """The error as one of ours; `before` is put in front and tells what it means for the current work."""
    cause: KafkaError = error.args[0]
    servers = conf["bootstrap.servers"]
    if cause.code() in _UNREACHABLE:
        return BrokerAway(
            f"{before}Kafka at {servers} does not answer ({_error_text(cause)})",
            hint="is it running there? `penstock kafka start` runs one for development",
        )
    if cause.code() in _DENIED:
        return PenstockError(
            f"{before}Kafka at {servers} refused ({_error_text(cause)})",
            hint="check `security` in the project file and the rights of its user",
        )
    if cause.code() == KafkaError.TOPIC_EXCEPTION:
        return _bad_topic_name(topic)
    return PenstockError(
        f"{before}Kafka at {servers}: {_error_text(cause)}", hint=f"look at the topic {topic} and at the broker's log"
    )


def _error_text(cause: KafkaError) -> str:
    """The message without librdkafka's notes on its origin and its delay."""
    return re.sub(r"^\S+/\S+: | \(after \d+ms in state \w+.*\)$", "", str(cause.str()))


def _bad_topic_name(name: str) -> UsageError:
    return UsageError(
        f"{name[:60]!r} cannot be the name of a topic",
        hint="use up to 249 letters, digits, dots, dashes and underscores",
    )


CHUNK = 500
"""Events sent between two checks of delivery reports, the clock and `stop`."""
PACED_SECONDS = 0.01
"""With a rate, the events of this many seconds are sent together: one sleep per event would cap it at thousands."""
GIVE_UP_SECONDS = 60
"""Seconds for which an event may stay unacknowledged: covers the restart of a broker, and ends a run without one."""


@dataclass(frozen=True)
class ProducedEvents:
    """The events that the broker acknowledged."""

    topic: EventTopic
    count: int
    labels: dict[str, int]
    """Events per label: valid, late, duplicate, malformed.<how>."""
    bytes: int
    """Total size of keys and values."""
    seconds: float
    offsets: dict[int, int]
    """Offset of the last event, for each partition that was written to."""
    stopped: bool = False
    """`stop` ended the run before the events did."""

    @property
    def rate(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0


class _DeliveryReports:
    """Counts the delivery reports of the broker. Called from poll and flush, on the caller's thread."""

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

    `conf` is host:port or librdkafka's properties. The topic is created with `partitions` if it is missing. With a rate
    (events per second) event n is sent n/rate seconds after the start, whatever happened before. `on_progress` gets the
    number acknowledged so far; `stop` is called between chunks.
    """
    event_topic = ensure_topic(conf, topic, partitions)
    if on_topic:
        on_topic(event_topic)
    settings = _producer_conf(conf)
    producer, reports, tally = Producer(settings), _DeliveryReports(), _EventCounter(events)
    chunk = max(1, min(CHUNK, round(rate * PACED_SECONDS))) if rate else CHUNK
    started, stopped = time.monotonic(), False
    send_error: KafkaException | None = None
    try:
        while not stopped and (batch := tally.take(chunk)):
            _send_batch(producer, topic, batch, reports)
            producer.poll(0)
            if on_progress:
                on_progress(reports.acknowledged)
            if rate:
                _wait_until(started + tally.count / rate, producer, reports, stop)
            stopped = stop()
            if reports.failed:
                break
    except KafkaException as error:
        send_error = error
    _flush(producer, on_progress, reports)
    unacknowledged = reports.failed + len(producer)
    if send_error or unacknowledged:
        raise explained(
            send_error or KafkaException(reports.reason or KafkaError(KafkaError._TIMED_OUT)),
            settings,
            topic,
            before=f"{reports.acknowledged:,} events were acknowledged and {unacknowledged:,} were not: ",
        )
    return ProducedEvents(
        topic=event_topic,
        count=reports.acknowledged,
        labels=dict(sorted(tally.labels.items())),
        bytes=tally.bytes,
        seconds=time.monotonic() - started,
        offsets=dict(sorted(reports.offsets.items())),
        stopped=stopped,
    )


class _EventCounter:
    """Takes events in chunks and counts them."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._events: Iterator[Event] = iter(events)
        self.count = self.bytes = 0
        self.labels: Counter[str] = Counter()

    def take(self, number: int) -> list[Event]:
        chunk = list(islice(self._events, number))
        self.count += len(chunk)
        self.labels.update([event.label for event in chunk])
        self.bytes += sum([len(event.key or b"") + len(event.value or b"") for event in chunk])
        return chunk


def _producer_conf(conf: Conf) -> dict[str, Any]:
    return {
        **client_conf(conf),
        "enable.idempotence": True,
        "acks": "all",
        "message.timeout.ms": GIVE_UP_SECONDS * 1000,
        "linger.ms": 10,
        "batch.size": 1 << 20,
        "compression.type": "lz4",
        # Like Java's producer: a topic that both write to has each key in one partition.
        "partitioner": "murmur2_random",
    }


def _send_batch(producer: Producer, topic: str, batch: list[Event], reports: _DeliveryReports) -> None:
    """Records get the time of sending as their timestamp: with an old one, retention would remove them at once."""
    last_headers: Headers = ()
    header_list: list[tuple[str, str | bytes | None]] = []
    for event in batch:
        if event.headers is not last_headers:
            last_headers, header_list = event.headers, list(event.headers)
        while True:
            try:
                producer.produce(topic, event.value, event.key, headers=header_list, on_delivery=reports)
                break
            except BufferError:
                producer.poll(0.1)


def _wait_until(moment: float, producer: Producer, reports: _DeliveryReports, stop: Callable[[], bool]) -> None:
    while (seconds_left := moment - time.monotonic()) > 0 and not reports.failed and not stop():
        producer.poll(min(seconds_left, 0.1))


def _flush(producer: Producer, on_progress: Callable[[int], None] | None, reports: _DeliveryReports) -> None:
    """Each event is reported within GIVE_UP_SECONDS, delivered or failed; the other 10 seconds are a reserve."""
    deadline = time.monotonic() + GIVE_UP_SECONDS + 10
    while producer.flush(0.2) and time.monotonic() < deadline:
        if on_progress:
            on_progress(reports.acknowledged)
    if on_progress:
        on_progress(reports.acknowledged)
