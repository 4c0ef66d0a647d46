"""What the broker holds of the topics that tables read: asked once per cluster, for all tables together."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.engine.kafka.admin import Admin, Topic
from penstock.engine.kafka.start import reads_committed
from penstock.engine.protocol.position import Offsets
from penstock.errors import PenstockError, Transient
from penstock.ops.place import Place
from penstock.plan.model import KafkaSource


@dataclass(frozen=True)
class Held:
    """`problem` is set, and the rest empty, if the broker did not answer."""

    topics: Mapping[str, Topic] = field(default_factory=dict)
    earliest: Offsets = field(default_factory=dict)
    latest: Offsets = field(default_factory=dict)
    problem: str | None = None


Question = tuple[str, bool]
"""Tables with the same cluster and the same view of open transactions are asked about together."""


def question(source: KafkaSource) -> Question:
    return source.cluster.name, reads_committed(source)


def ask(
    source: KafkaSource, topics: Iterable[str], *, timeout: float, earliest: bool = True, patterns: Iterable[str] = ()
) -> Held:
    """First and next offsets of all partitions of these topics, and of those that match a pattern, the end being what
    the source can see. Never raises because of the broker."""
    names, committed = set(topics), reads_committed(source)
    wanted = [re.compile(one) for one in patterns]
    admin = Admin(source.cluster, timeout=timeout)
    until = time.monotonic() + timeout / 2
    while True:
        try:
            if wanted:
                names.update(name for name in admin.names() if any(one.fullmatch(name) for one in wanted))
            found = admin.describe(names)
            return Held(found, admin.earliest(found) if earliest else {}, admin.latest(found, committed=committed))
        except PenstockError as error:
            if time.monotonic() > until or not isinstance(error, Transient):
                return Held(problem=error.message)
        time.sleep(0.2)  # it answered at once: a partition between two leaders, for example


def together(one: Held, other: Held) -> Held:
    """Of one cluster; a problem with either is a problem."""
    return Held(
        {**one.topics, **other.topics},
        {**one.earliest, **other.earliest},
        {**one.latest, **other.latest},
        one.problem or other.problem,
    )


def places(position: Offsets, held: Held) -> list[Place]:
    """Per partition. A partition that is new to the table will be read from its start."""
    keys = {(t, p) for t, parts in position.items() for p in parts}
    keys |= {(t, p) for t, parts in held.latest.items() if t in position for p in parts}
    return [
        Place(t, p, position.get(t, {}).get(p, 0), held.latest.get(t, {}).get(p))
        for t, p in sorted(keys)
        if not held.problem
    ]
