"""The records: seeded JSON orders of an exact size, lz4, spread evenly over the partitions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

RECORD_BYTES = 250
ERRORS_ONLY = 3
"""librdkafka's log level: it reports every closed connection otherwise."""
_SEED = 20
BAD_EVERY = 100


def create_topics(bootstrap: str, names: Sequence[str], partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": ERRORS_ONLY})
    for future in admin.create_topics([NewTopic(name, partitions, 1) for name in names]).values():
        future.result(30)


class Records:
    """An endless, seeded series of order events; value(n) is exactly RECORD_BYTES long."""

    def __init__(self) -> None:
        rng = random.Random(_SEED)
        # Filler of varied text: one constant would let lz4 and Parquet make the rate look better than it is.
        self._notes = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz ", k=RECORD_BYTES)) for _ in range(4096)]
        self._amounts = [f"{rng.uniform(1, 900):.2f}" for _ in range(4096)]
        self._customers = [f"c{rng.randrange(100_000):07}" for _ in range(8192)]

    def key(self, n: int) -> str:
        return self._customers[(n * 31) & 8191]

    def value(self, n: int) -> str:
        head = (
            f'{{"order_id":{n},"customer_id":"{self.key(n)}","order_ts":"2026-01-{1 + n % 28:02}T{n % 24:02}:'
            f'{n % 60:02}:00Z","product":"p{n % 997}","quantity":{1 + n % 7},'
            f'"amount":{self._amounts[(n * 17) & 4095]},"currency":"EUR","note":"'
        )
        return head + self._notes[(n * 13) & 4095][: RECORD_BYTES - len(head) - 2] + '"}'


class TypedRecords(Records):
    """Nine fields; every hundredth record is cut short, so it is no JSON."""

    def value(self, n: int) -> str:
        whole = super().value(n).replace('"currency":"EUR"', f'"region":"r{n % 50:02}","currency":"EUR"', 1)
        whole = whole[: RECORD_BYTES - 2] + '"}'
        return whole[: RECORD_BYTES // 2] if n % BAD_EVERY == 0 else whole


class Feed:
    """A producer for any number of topics. `send` may be called again and again; `flush` before anything is counted."""

    def __init__(self, bootstrap: str, records: Records | None = None) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": "lz4",
                "log_level": ERRORS_ONLY,
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000,
            }
        )
        self._records = records or Records()
        self._failed: list[str] = []

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))

    def send(self, topic: str, first: int, count: int, partitions: int) -> None:
        for n in range(first, first + count):
            while True:
                try:
                    self._producer.produce(
                        topic,
                        self._records.value(n),
                        self._records.key(n),
                        partition=n % partitions,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.poll(0)

    def flush(self) -> None:
        if self._producer.flush(60) or self._failed:
            raise KafkaException(f"not every record was delivered: {self._failed[:1]}")


def fill(
    bootstrap: str,
    topic: str,
    count: int,
    partitions: int,
    sent: Callable[[int], None] = lambda _: None,
    records: Records | None = None,
) -> float:
    """A new topic with `count` records; `sent` hears how many there are so far. Returns records per second."""
    create_topics(bootstrap, [topic], partitions)
    feed = Feed(bootstrap, records)
    start = time.perf_counter()
    for first in range(0, count, 20_000):
        feed.send(topic, first, min(20_000, count - first), partitions)
        sent(min(count, first + 20_000))
    feed.flush()
    return count / (time.perf_counter() - start)
