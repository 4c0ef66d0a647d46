"""Brokers and topics: do they answer, are they there, are they what they were, do they fit the machine?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed, span
from penstock.errors import PenstockError
from penstock.operations.broker import TopicOffsets, ask, problems
from penstock.plan.sources import KafkaSource, StartingPlan, TopicsSource
from penstock.sources.registry import open_client
from penstock.spec.base_model import nearest

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.ledger.position import Offsets
    from penstock.plan.model import TablePlan
    from penstock.sources.topics import LogClient

# What one cluster says of the topics that tables read: offsets, how long records are kept, the newest of them.
#
# Asked once for all tables of a cluster. A broker that is away, or that does not tell this user, is said, never
# raised.


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
class ClusterAnswer:
    held: TopicOffsets = field(default_factory=TopicOffsets)
    """`held.problem` is set, and all else empty, if no broker answered."""
    kept: Mapping[str, Kept] = field(default_factory=dict)
    kept_unknown: str | None = None
    newest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> time of its newest record."""
    newest_unknown: str | None = None
    names: tuple[str, ...] = ()
    """Every topic, if one that is read is missing or a pattern has to be matched."""


def touched(table: TablePlan) -> TopicsSource | None:
    """The topics that a table reads, or that a sink sends to, as something to ask about."""
    if table.topics is not None:
        return table.topics
    sent_to = table.sink.topic_sent_to if table.sink is not None else None
    if sent_to is None:
        return None
    cluster, topic = sent_to
    return KafkaSource(cluster, (topic,), None, StartingPlan("earliest"), None, None)


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


def ask_cluster(
    source: TopicsSource, topics: Iterable[str], patterns: Iterable[str], *, timeout: float
) -> ClusterAnswer:
    """`topics` are those that tables name or have read. One that does not exist is left out of the answer."""
    admin = open_client(source, timeout=timeout)
    wanted, names = set(topics), tuple[str, ...]()
    try:
        if patterns := list(patterns):
            names = tuple(admin.names())
            wanted |= {name for name in names if any(re.fullmatch(one, name) for one in patterns)}
        held = ask(source, wanted, timeout=timeout)
        if not names and not held.problem and set(held.topics) != wanted:
            names = tuple(admin.names())
    except PenstockError as error:
        return ClusterAnswer(TopicOffsets(problem=error.message))
    if held.problem:
        return ClusterAnswer(held)
    found, unknown = _kept(admin, held)
    newest, newest_unknown = _newest(admin, held)
    return ClusterAnswer(held, found, unknown, newest, newest_unknown, names)


def _kept(admin: LogClient, held: TopicOffsets) -> tuple[dict[str, Kept], str | None]:
    try:
        return {topic: kept(settings) for topic, settings in admin.settings(held.topics).items()}, None
    except PenstockError as error:
        return {}, error.message


def _newest(admin: LogClient, held: TopicOffsets) -> tuple[dict[str, dict[int, int]], str | None]:
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


# Brokers and topics: do they answer, are they there, are they what they were, do they fit the machine?


_BUSY = 0.5
"""Part of its trigger from which on a table may use more cores."""
_MANY = 20
"""Partitions per core from which on most of a small batch is the start of tasks."""


@dataclass(frozen=True)
class Subscribed:
    """A table and what it reads."""

    table: str
    source: TopicsSource
    position: Offsets
    """{}: it was never made."""
    ids: Mapping[str, str]
    sends: bool = False
    """It is a sink: it writes to the topic."""


def answers(cluster: str, address: str, problem: str | None, tables: Sequence[str]) -> Check:
    """One finding per cluster, however many tables read it."""
    about = CheckSubject("kafka.answers")
    if problem is None:
        return about.ok(f"{address} ({cluster}) answers")
    if " refused: " in problem:
        fix = f"check `security` of the cluster {cluster}: its user, its password, and the rights of the user"
    else:
        fix = "is it running, and is `bootstrap` right? `penstock kafka start` runs one for development"
    return about.red(f"{problem}; {listed(tables)} {'depends' if len(tables) == 1 else 'depend'} on it", fix)


def topics(one: Subscribed, held: TopicOffsets, names: Sequence[str]) -> Check:
    """`names` are all topics of the cluster, if one of the named is missing."""
    about = CheckSubject("kafka.topics", one.table)
    source = one.source
    missing = [name for name in source.topics if name not in held.topics]
    if missing and one.sends:
        topic, bootstrap = missing[0], source.address
        return about.red(
            f"{topic}, which it sends to, does not exist on {bootstrap}",
            f"`kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 4`; the sink waits",
        )
    if missing:
        meant = {name: nearest(name, [other for other in names if not other.startswith("__")]) for name in missing}
        guess = next((f"did you mean {found}? " for found in meant.values() if found), "")
        return about.red(
            f"{listed(missing)} {'does' if len(missing) == 1 else 'do'} not exist on {source.address}",
            f"{guess}correct `from: {{kafka: …}}` of {one.table}, or create the topic",
        )
    gone = sorted(set(one.position) - set(held.topics))
    wrong = [*(f"topic {name} no longer exists" for name in gone), *problems(one.position, one.ids, held)]
    wrong = [text for text in wrong if "was removed from Kafka before it was landed" not in text]  # kafka.retention
    if wrong:
        return about.red(
            "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else ""),
            f"the table stops at it. To accept that and go on with what is there: "
            f"`penstock checkpoints reset {one.table} --to ledger`",
        )
    matched = read_topics(one, held)
    if source.pattern is not None and not matched:
        return about.warn(
            f"no topic of {source.address} matches the pattern '{source.pattern}'",
            f"correct `from: {{kafka: {{pattern: …}}}}` of {one.table}; it matches whole names",
        )
    if one.sends:
        return about.ok(f"{listed(sorted(matched))}, which it sends to, is there")
    return about.ok(f"{listed(sorted(matched))}: there, and the same as when it was read last")


def read_topics(one: Subscribed, held: TopicOffsets) -> list[str]:
    """Those that exist: it names them, its pattern matches them, or it has read them before."""
    pattern = one.source.pattern
    return [
        name
        for name in held.topics
        if name in one.position or name in one.source.topics or (pattern is not None and re.fullmatch(pattern, name))
    ]


def partitions(
    one: Subscribed, held: TopicOffsets, parallelism: int, *, usual_seconds: float | None, trigger_seconds: float | None
) -> Check:
    about = CheckSubject("kafka.partitions", one.table)
    number = sum(len(held.topics[name].partitions) for name in read_topics(one, held))
    tasks = max(number, one.source.min_partitions or 0)
    said = f"{count(number, 'partition')}, {count(parallelism, 'task')} at once"
    busy = bool(usual_seconds and trigger_seconds and usual_seconds > _BUSY * trigger_seconds)
    if 0 < tasks < parallelism and busy:
        return about.note(
            f"{said}: {count(parallelism - tasks, 'core')} idle, while a batch takes {span(usual_seconds or 0)} of the "
            f"{span(trigger_seconds or 0)} of its trigger",
            f"write min_partitions: {parallelism} in `from` of {one.table}; or give the topic more partitions",
        )
    if number > _MANY * parallelism:
        return about.note(
            f"{said}: a small batch is mostly the start of {number:,} tasks",
            f"a longer trigger for {one.table} makes fewer, larger batches; or give Spark more cores (spark: "
            "{master: …})",
        )
    return about.ok(said)


def consumers(capacity: str | None, number: int) -> list[Check]:
    """Over all tables: Spark keeps one consumer per table and partition, up to a limit."""
    if not capacity or not capacity.isdecimal() or not number:
        return []
    about = CheckSubject("kafka.consumers")
    said = f"{count(number, 'partition')} are read in all, {int(capacity):,} consumers are kept"
    if number <= int(capacity):
        return [about.ok(said)]
    return [about.warn(said, f"write spark: {{conf: {{spark.kafka.consumer.cache.capacity: {number}}}}}")]
