"""The offsets that the broker holds of the topics that tables read, and the lag of each table."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Transient
from penstock.ledger.position import Range
from penstock.sources.registry import open_client

if TYPE_CHECKING:
    from penstock.ledger.position import Offsets, TopicInfo
    from penstock.plan.sources import TopicsSource


@dataclass(frozen=True)
class PartitionLag:
    topic: str
    partition: int
    position: int
    """The next offset to read."""
    end: int | None = None
    """The broker's next offset; None if unknown, or if it has no such partition."""

    @property
    def lag(self) -> int | None:
        """Offsets that are not in the table yet; the number of records can be lower."""
        return None if self.end is None else max(0, self.end - self.position)


# The offsets that the broker holds: asked once per cluster, for all tables together.


@dataclass(frozen=True)
class TopicOffsets:
    """`problem` is set, and the rest empty, if the broker did not answer."""

    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    problem: str | None = None


RequestKey = tuple[str, str, bool]
"""Key of one request to a broker: tables with the same cluster and the same view of open transactions share it."""


def request_key(source: TopicsSource) -> RequestKey:
    return source.kind, source.cluster_name, source.reads_committed


def fetch_offsets(
    source: TopicsSource, topics: Iterable[str], *, timeout: float, earliest: bool = True, patterns: Iterable[str] = ()
) -> TopicOffsets:
    """First and next offsets of all partitions of these topics, and of topics that match a pattern; the end is what
    the source can see. Never raises because of the broker."""
    names, committed = set(topics), source.reads_committed
    compiled = [re.compile(pattern) for pattern in patterns]
    admin = open_client(source, timeout=timeout)
    deadline = time.monotonic() + timeout / 2
    while True:
        try:
            if compiled:
                names.update(name for name in admin.names() if any(pattern.fullmatch(name) for pattern in compiled))
            described = admin.describe(names)
            return TopicOffsets(
                described, admin.earliest(described) if earliest else {}, admin.latest(described, committed=committed)
            )
        except PenstockError as error:
            if time.monotonic() > deadline or not isinstance(error, Transient):
                return TopicOffsets(problem=error.message)
        time.sleep(0.2)  # it failed at once: a partition between two leaders, for example


def merge_offsets(left: TopicOffsets, right: TopicOffsets) -> TopicOffsets:
    """Joins two answers of one cluster; a problem with either is a problem of both."""
    return TopicOffsets(
        {**left.topics, **right.topics},
        {**left.earliest, **right.earliest},
        {**left.latest, **right.latest},
        left.problem or right.problem,
    )


def partition_lags(position: Offsets, offsets: TopicOffsets) -> list[PartitionLag]:
    """The lag of each partition. A partition that is new to the table will be read from its start."""
    keys = {(topic, partition) for topic, partitions in position.items() for partition in partitions}
    keys |= {
        (topic, partition)
        for topic, partitions in offsets.latest.items()
        if topic in position
        for partition in partitions
    }
    return [
        PartitionLag(
            topic, partition, position.get(topic, {}).get(partition, 0), offsets.latest.get(topic, {}).get(partition)
        )
        for topic, partition in sorted(keys)
        if not offsets.problem
    ]


def position_problems(position: Offsets, ids: Mapping[str, str], offsets: TopicOffsets) -> list[str]:
    """Why the table cannot continue from its position. Lag is not a problem."""
    problems = []
    for topic in sorted(position):
        if recreated(topic, ids, offsets):
            problems.append(
                f"topic {topic} was deleted and recreated (id {ids[topic]}, now {offsets.topics[topic].id}): "
                "the table's offsets are those of the old one"
            )
    for lag in partition_lags(position, offsets):
        if lag.end is None or recreated(lag.topic, ids, offsets):
            continue
        earliest = offsets.earliest[lag.topic][lag.partition]
        if lag.position > lag.end:
            problems.append(
                f"{lag.topic}-{lag.partition} ends at {lag.end} at the broker, the table has read up to {lag.position}"
            )
        elif lag.position < earliest:
            lost = Range(lag.topic, lag.partition, lag.position, earliest)
            problems.append(f"{lost} was removed from Kafka before it was landed ({lost.end - lost.start} offsets)")
    return problems


def missing_topics(position: Offsets, offsets: TopicOffsets) -> list[str]:
    """Topics that no longer exist: what they held beyond the position is unknown."""
    return [] if offsets.problem else sorted(set(position) - set(offsets.topics))


def recreated(topic: str, ids: Mapping[str, str], offsets: TopicOffsets) -> bool:
    return bool(ids.get(topic)) and topic in offsets.topics and offsets.topics[topic].id != ids[topic]
