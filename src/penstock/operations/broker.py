"""What the broker holds of the topics that tables read, and where each table stands there."""

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

# Where a table stands in one partition.


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
        """Offsets that are not in the table yet: at most so many records."""
        return None if self.end is None else max(0, self.end - self.position)


# What the broker holds of the topics that tables read: asked once per cluster, for all tables together.


@dataclass(frozen=True)
class TopicOffsets:
    """`problem` is set, and the rest empty, if the broker did not answer."""

    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    problem: str | None = None


Question = tuple[str, str, bool]
"""Tables with the same cluster and the same view of open transactions are asked about together."""


def question(source: TopicsSource) -> Question:
    return source.kind, source.cluster_name, source.reads_committed


def ask(
    source: TopicsSource, topics: Iterable[str], *, timeout: float, earliest: bool = True, patterns: Iterable[str] = ()
) -> TopicOffsets:
    """First and next offsets of all partitions of these topics, and of those that match a pattern, the end being what
    the source can see. Never raises because of the broker."""
    names, committed = set(topics), source.reads_committed
    wanted = [re.compile(one) for one in patterns]
    admin = open_client(source, timeout=timeout)
    until = time.monotonic() + timeout / 2
    while True:
        try:
            if wanted:
                names.update(name for name in admin.names() if any(one.fullmatch(name) for one in wanted))
            found = admin.describe(names)
            return TopicOffsets(
                found, admin.earliest(found) if earliest else {}, admin.latest(found, committed=committed)
            )
        except PenstockError as error:
            if time.monotonic() > until or not isinstance(error, Transient):
                return TopicOffsets(problem=error.message)
        time.sleep(0.2)  # it answered at once: a partition between two leaders, for example


def together(one: TopicOffsets, other: TopicOffsets) -> TopicOffsets:
    """Of one cluster; a problem with either is a problem."""
    return TopicOffsets(
        {**one.topics, **other.topics},
        {**one.earliest, **other.earliest},
        {**one.latest, **other.latest},
        one.problem or other.problem,
    )


def places(position: Offsets, held: TopicOffsets) -> list[PartitionLag]:
    """Per partition. A partition that is new to the table will be read from its start."""
    keys = {(t, p) for t, parts in position.items() for p in parts}
    keys |= {(t, p) for t, parts in held.latest.items() if t in position for p in parts}
    return [
        PartitionLag(t, p, position.get(t, {}).get(p, 0), held.latest.get(t, {}).get(p))
        for t, p in sorted(keys)
        if not held.problem
    ]


# Where the table stands at the broker: how far behind, and whether the broker still has what comes next.


def problems(position: Offsets, ids: Mapping[str, str], held: TopicOffsets) -> list[str]:
    """Why the table cannot go on from its position. To be behind is none."""
    found = []
    for topic in sorted(position):
        if recreated(topic, ids, held):
            found.append(
                f"topic {topic} was deleted and made again (id {ids[topic]}, now {held.topics[topic].id}): "
                "the table's offsets are those of the old one"
            )
    for one in places(position, held):
        if one.end is None or recreated(one.topic, ids, held):
            continue
        earliest = held.earliest[one.topic][one.partition]
        if one.position > one.end:
            found.append(
                f"{one.topic}-{one.partition} ends at {one.end} at the broker, the table has read up to {one.position}"
            )
        elif one.position < earliest:
            lost = Range(one.topic, one.partition, one.position, earliest)
            found.append(f"{lost} was removed from Kafka before it was landed ({lost.end - lost.start} offsets)")
    return found


def gone(position: Offsets, held: TopicOffsets) -> list[str]:
    """Topics that no longer exist: whatever they held beyond the position cannot be known."""
    return [] if held.problem else sorted(set(position) - set(held.topics))


def recreated(topic: str, ids: Mapping[str, str], held: TopicOffsets) -> bool:
    return bool(ids.get(topic)) and topic in held.topics and held.topics[topic].id != ids[topic]
