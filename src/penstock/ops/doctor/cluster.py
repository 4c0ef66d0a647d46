"""What one cluster says of the topics that tables read: offsets, how long records are kept, the newest of them.

Asked once for all tables of a cluster. A broker that is away, or that does not tell this user, is said, never raised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.engine.kafka.admin import Admin
from penstock.errors import PenstockError
from penstock.ops.broker import Held, ask
from penstock.plan.model import KafkaSource, SinkPlan, Starting, TablePlan
from penstock.plan.target import ChangeSink, KafkaTarget

TIMEOUT = 2.5
"""Seconds that a broker that is away may hold up the answer, as in `status`."""


@dataclass(frozen=True)
class Kept:
    """How long a topic keeps its records."""

    retention_ms: int | None = None
    """None: for ever."""
    retention_bytes: int | None = None
    """Of one partition; None: as many as there are."""
    compacts: bool = False
    tombstones_ms: int = 86_400_000
    """How long a compacted topic keeps the record that says that a key is deleted."""
    by_broker: bool = False
    """The broker's clock gives the records their times, not the producers'."""


@dataclass(frozen=True)
class Asked:
    held: Held = field(default_factory=Held)
    """`held.problem` is set, and all else empty, if no broker answered."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    kept_unknown: str | None = None
    newest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> time of its newest record."""
    newest_unknown: str | None = None
    names: tuple[str, ...] = ()
    """Every topic, if one that is read is missing or a pattern has to be matched."""


def touched(table: TablePlan) -> KafkaSource | None:
    """The topics that a table reads, or that a sink sends to, as something to ask about."""
    if isinstance(table.source, KafkaSource):
        return table.source
    target = table.sink.target if isinstance(table.sink, ChangeSink) else table.sink
    if isinstance(target, SinkPlan | KafkaTarget):
        return KafkaSource(target.cluster, (target.topic,), None, Starting("earliest"), None, None)
    return None


def kept(settings: Mapping[str, str]) -> Kept:
    """From the settings of a topic as the broker gives them."""
    policies = {one.strip() for one in settings.get("cleanup.policy", "delete").split(",")}
    deletes = "delete" in policies
    return Kept(
        retention_ms=_limit(settings, "retention.ms") if deletes else None,
        retention_bytes=_limit(settings, "retention.bytes") if deletes else None,
        compacts="compact" in policies,
        tombstones_ms=_limit(settings, "delete.retention.ms") or 0,
        by_broker=settings.get("message.timestamp.type") == "LogAppendTime",
    )


def ask_cluster(source: KafkaSource, topics: Iterable[str], patterns: Iterable[str], *, timeout: float) -> Asked:
    """`topics` are those that tables name or have read. One that does not exist is left out of the answer."""
    admin = Admin(source.cluster, timeout=timeout)
    wanted, names = set(topics), tuple[str, ...]()
    try:
        if patterns := list(patterns):
            names = tuple(admin.names())
            wanted |= {name for name in names if any(re.fullmatch(one, name) for one in patterns)}
        held = ask(source, wanted, timeout=timeout)
        if not names and not held.problem and set(held.topics) != wanted:
            names = tuple(admin.names())
    except PenstockError as error:
        return Asked(Held(problem=error.message))
    if held.problem:
        return Asked(held)
    found, unknown = _kept(admin, held)
    newest, newest_unknown = _newest(admin, held)
    return Asked(held, found, unknown, newest, newest_unknown, names)


def _kept(admin: Admin, held: Held) -> tuple[dict[str, Kept], str | None]:
    try:
        return {topic: kept(settings) for topic, settings in admin.settings(held.topics).items()}, None
    except PenstockError as error:
        return {}, error.message


def _newest(admin: Admin, held: Held) -> tuple[dict[str, dict[int, int]], str | None]:
    try:
        return admin.newest_times(held.topics), None
    except PenstockError as error:  # brokers before 3.0 cannot tell
        return {}, error.message


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    """-1 is Kafka's word for no limit."""
    try:
        number = int(settings.get(name, "-1"))
    except ValueError:
        return None
    return number if number >= 0 else None
