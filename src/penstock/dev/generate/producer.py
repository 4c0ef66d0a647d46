"""Events into Kafka: every one acknowledged by all replicas, once, or an error that says how many were not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.dev.generate.event import Event, Headers
from penstock.dev.generate.topic import Conf, Topic, client_conf, ensure_topic, explained

CHUNK = 500
"""Events between two looks at delivery reports, the clock and `stop`."""
PACED_SECONDS = 0.01
"""At a given rate, the events of so long are sent together: sleeping for each would cap the rate at some thousands."""
GIVE_UP_SECONDS = 60
"""How long an event may stay unacknowledged: covers a broker's restart, and ends a run whose broker is gone."""


@dataclass(frozen=True)
class Sent:
    """What the broker acknowledged."""

    topic: Topic
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
    on_topic: Callable[[Topic], None] | None = None,
    on_progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Sent:
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
    return Sent(
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
