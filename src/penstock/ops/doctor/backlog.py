"""What a table has not read yet of its topics: how much, since when, and whether it becomes more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.engine.kafka.admin import Admin
from penstock.engine.kafka.peek import peek
from penstock.engine.protocol.position import Offsets
from penstock.engine.protocol.position import parse as parse_position
from penstock.errors import PenstockError
from penstock.ops.broker import Held
from penstock.ops.doctor.lately import Batch, Lately
from penstock.ops.doctor.trend import Point, Trend, chosen, trend_of
from penstock.ops.place import Place
from penstock.plan.model import KafkaSource

MOST_PEEKED = 256
"""Partitions of a table whose oldest unread record is looked at: those with the most unread ones."""


@dataclass(frozen=True)
class Unread:
    """One partition."""

    topic: str
    partition: int
    position: int
    earliest: int
    end: int
    oldest_ms: int | None = None
    """The time of the first unread record; None if there is none, or it is not known."""
    per_second: float | None = None
    """Records that come."""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)

    @property
    def lost(self) -> int:
        """Deleted before they were read."""
        return max(0, self.earliest - self.position)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Backlog:
    """Of whatever a table reads."""

    lag: int | None
    """None: unknown."""
    unit: str = "record"
    unknown: str | None = None
    oldest_ms: int | None = None
    """The time of the oldest that was not read."""
    trend: Trend | None = None
    partitions: tuple[Unread, ...] = ()
    """Of a table that reads topics."""

    def age(self, now_ms: float) -> float | None:
        """Seconds for which the oldest has waited."""
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


def kafka_backlog(
    source: KafkaSource, places: Sequence[Place], held: Held, recent: Lately, *, timeout: float
) -> Backlog:
    """Asks the broker for the first unread records, and where the topics ended at the times of earlier batches. What it
    does not tell is None."""
    partitions = unread_of(places, held)
    gone = sorted({place.topic for place in places if place.end is None})
    lag = sum(one.lag for one in partitions)
    if not lag:
        unknown = f"the broker does not know {', '.join(gone)}" if gone else None
        return Backlog(None if gone else 0, unknown=unknown, partitions=partitions)
    behind = sorted((one for one in partitions if one.lag), key=lambda one: -one.lag)[:MOST_PEEKED]
    at = {(one.topic, one.partition): max(one.position, one.earliest) for one in behind}
    times = {place: record.timestamp_ms for place, record in peek(source, at, timeout=timeout).items()}
    trend, rates = _trend(source, held, partitions, recent, timeout=timeout)
    dated = tuple(
        replace(one, oldest_ms=times.get((one.topic, one.partition)), per_second=rates.get((one.topic, one.partition)))
        for one in partitions
    )
    return Backlog(lag, oldest_ms=min(times.values(), default=None), trend=trend, partitions=dated)


def unread_of(places: Sequence[Place], held: Held) -> tuple[Unread, ...]:
    """The partitions that the broker knows."""
    return tuple(
        Unread(place.topic, place.partition, place.position, held.earliest[place.topic][place.partition], place.end)
        for place in places
        if place.end is not None
    )


def _trend(
    source: KafkaSource, held: Held, partitions: Sequence[Unread], recent: Lately, *, timeout: float
) -> tuple[Trend | None, dict[tuple[str, int], float]]:
    batches = chosen(recent.recent)
    topics = {one.topic: held.topics[one.topic] for one in partitions}
    admin = Admin(source.cluster, timeout=timeout)
    try:
        ends = [admin.at_time(topics, batch.committed_ms) for batch in batches]
    except PenstockError:
        return None, {}
    keys = [(one.topic, one.partition) for one in partitions]
    points = [point(batch, keys, end) for batch, end in zip(batches, ends, strict=True)]
    trend = trend_of(points, recent.usual_seconds or 0.0, 1)
    if trend is None:
        return None, {}
    came = {(t, p): max(0, ends[-1][t][p] - ends[0][t][p]) for t, p in keys}
    return trend, {key: number / trend.seconds for key, number in came.items()}


def point(batch: Batch, keys: Sequence[tuple[str, int]], ends: Offsets) -> Point:
    """`ends` is where the topics ended when the batch was committed. A partition that the table did not know yet began
    at 0."""
    at: Offsets = {}
    for source in batch.after:
        at |= parse_position(source)
    # By partition: one that is ahead of the times of its records does not make up for one that is behind.
    pairs = [(ends[t][p], min(ends[t][p], at.get(t, {}).get(p, 0))) for t, p in keys]
    return Point(batch.committed_ms, sum(end for end, _ in pairs), sum(read for _, read in pairs))
