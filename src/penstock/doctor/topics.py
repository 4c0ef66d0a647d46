"""Brokers and topics: do they answer, do they exist, are they unchanged, do they fit the machine?"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from penstock.doctor.check import CheckSubject, count, listed, span
from penstock.errors import PenstockError
from penstock.operations.broker import TopicOffsets, fetch_offsets, position_problems
from penstock.plan.sources import KafkaSource, StartingPlan, TopicsSource
from penstock.sources.registry import open_client
from penstock.spec.base_model import nearest

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.ledger.position import Offsets
    from penstock.plan.model import TablePlan

# What one cluster answers about the topics that tables read: offsets, how long records are kept, the newest records.
#
# Asked once for all tables of a cluster. That a broker is away, or does not tell this user, is part of the answer,
# never raised.


TIMEOUT = 2.5
"""Seconds for which a broker that is away may delay the answer, as in `status`."""
T = TypeVar("T")
_KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "delete.retention.ms": "86400000",
}


@dataclass(frozen=True)
class TopicRetention:
    """How long a topic keeps its records."""

    retention_ms: int | None = None
    """None: for ever."""
    retention_bytes: int | None = None
    """Per partition; None: no limit."""
    compacts: bool = False
    tombstones_ms: int | None = 86_400_000
    """How long a compacted topic keeps the record that marks a key as deleted; None: for ever."""
    by_broker: bool = False
    """Records get their times from the broker's clock, not the producers'."""


@dataclass(frozen=True)
class ClusterAnswer:
    offsets: TopicOffsets = field(default_factory=TopicOffsets)
    """`offsets.problem` is set, and all else empty, if no broker answered."""
    retention: Mapping[str, TopicRetention] = field(default_factory=dict)
    retention_unknown: str | None = None
    newest_ms: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic -> partition -> time of its newest record, in ms."""
    newest_unknown: str | None = None
    names: tuple[str, ...] = ()
    """All topics of the cluster; filled only if a topic is missing or a pattern has to be matched."""


def topics_of(table: TablePlan) -> TopicsSource | None:
    """The topics that a table reads, or that a sink sends to, as a source to ask about; None without topics."""
    if table.topics is not None:
        return table.topics
    sent_to = table.sink.topic_sent_to if table.sink is not None else None
    if sent_to is None:
        return None
    cluster, topic = sent_to
    return KafkaSource(cluster, (topic,), None, StartingPlan("earliest"), None, None)


def parse_topic_retention(settings: Mapping[str, str]) -> TopicRetention:
    """Parses the settings of a topic as the broker gives them; one that it leaves out has Kafka's default."""
    settings = {**_KAFKA_DEFAULTS, **settings}
    policies = {policy.strip() for policy in settings["cleanup.policy"].split(",")}
    deletes = "delete" in policies
    return TopicRetention(
        retention_ms=_limit(settings["retention.ms"]) if deletes else None,
        retention_bytes=_limit(settings["retention.bytes"]) if deletes else None,
        compacts="compact" in policies,
        tombstones_ms=_limit(settings["delete.retention.ms"]),
        by_broker=settings.get("message.timestamp.type") == "LogAppendTime",
    )


def _limit(text: str) -> int | None:
    """-1 is Kafka's word for no limit."""
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number >= 0 else None


def ask_cluster(source: TopicsSource, topics: Iterable[str], patterns: Collection[str]) -> ClusterAnswer:
    """`topics` are those that tables name or have read. One that does not exist is left out of the answer."""
    admin = open_client(source, timeout=TIMEOUT)
    topic_names, names = set(topics), tuple[str, ...]()
    try:
        if patterns:
            names = tuple(admin.names())
            topic_names |= {name for name in names if any(re.fullmatch(pattern, name) for pattern in patterns)}
        offsets = fetch_offsets(source, topic_names, timeout=TIMEOUT)
        if not names and not offsets.problem and set(offsets.topics) != topic_names:
            names = tuple(admin.names())
    except PenstockError as error:
        return ClusterAnswer(TopicOffsets(problem=error.message))
    if offsets.problem:
        return ClusterAnswer(offsets)
    kept_by_topic, kept_unknown = _answer_or_problem(
        lambda: {topic: parse_topic_retention(kept) for topic, kept in admin.settings(offsets.topics).items()}
    )
    newest_ms, newest_unknown = _answer_or_problem(lambda: admin.newest_times(offsets.topics))
    return ClusterAnswer(offsets, kept_by_topic or {}, kept_unknown, newest_ms or {}, newest_unknown, names)


def _answer_or_problem(ask: Callable[[], T]) -> tuple[T | None, str | None]:
    """A user may lack a right, and brokers before 3.0 do not know the newest times."""
    try:
        return ask(), None
    except PenstockError as error:
        return None, error.message


# The checks of brokers and topics.


_BUSY_SHARE = 0.5
"""Share of its trigger beyond which a table could use more cores."""
_MANY_PER_CORE = 20
"""Partitions per core beyond which a small batch spends most of its time starting tasks."""


@dataclass(frozen=True)
class Subscription:
    """A table and what it reads."""

    table: str
    source: TopicsSource
    position: Offsets
    """{} if the table was never created."""
    ids: Mapping[str, str]
    sends: bool = False
    """It is a sink that writes to the topic."""


def check_broker(cluster: str, address: str, problem: str | None, tables: Sequence[str]) -> Check:
    """One finding per cluster, however many tables read it."""
    check = CheckSubject("kafka.answers")
    if problem is None:
        return check.ok(f"{address} ({cluster}) answers")
    if " refused: " in problem:
        fix = f"check `security` of the cluster {cluster}: its user, its password, and the rights of the user"
    else:
        fix = "is it running, and is `bootstrap` right? `penstock kafka start` runs one for development"
    return check.red(f"{problem}; {listed(tables)} {'depends' if len(tables) == 1 else 'depend'} on it", fix)


def topics(subscribed: Subscription, offsets: TopicOffsets, names: Sequence[str]) -> Check:
    """`names` are all topics of the cluster; needed only if one that the table names is missing."""
    check = CheckSubject("kafka.topics", subscribed.table)
    source = subscribed.source
    missing = [name for name in source.topics if name not in offsets.topics]
    if missing and subscribed.sends:
        topic, bootstrap = missing[0], source.address
        return check.red(
            f"{topic}, which it sends to, does not exist on {bootstrap}",
            f"`kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 4`; the sink waits",
        )
    if missing:
        users_topics = [name for name in names if not name.startswith("__")]
        suggestions = (nearest(name, users_topics) for name in missing)
        guess = next((f"did you mean {suggestion}? " for suggestion in suggestions if suggestion), "")
        return check.red(
            f"{listed(missing)} {'does' if len(missing) == 1 else 'do'} not exist on {source.address}",
            f"{guess}correct `from: {{kafka: …}}` of {subscribed.table}, or create the topic",
        )
    removed = sorted(set(subscribed.position) - set(offsets.topics))
    differences = [
        *(f"topic {name} no longer exists" for name in removed),
        *position_problems(subscribed.position, subscribed.ids, offsets),
    ]
    # Lost records are a finding of kafka.retention.
    differences = [text for text in differences if "was removed from Kafka before it was landed" not in text]
    if differences:
        return check.red(
            "; ".join(differences[:3]) + (f"; and {len(differences) - 3} more" if len(differences) > 3 else ""),
            f"the table stops at it. To accept that and continue with what is there: "
            f"`penstock checkpoints reset {subscribed.table} --to ledger`",
        )
    matched = read_topics(subscribed, offsets)
    if source.pattern is not None and not matched:
        return check.warn(
            f"no topic of {source.address} matches the pattern '{source.pattern}'",
            f"correct `from: {{kafka: {{pattern: …}}}}` of {subscribed.table}; it matches whole names",
        )
    if subscribed.sends:
        return check.ok(f"{listed(sorted(matched))}, which it sends to, is there")
    return check.ok(f"{listed(sorted(matched))}: there, and the same as when it was read last")


def read_topics(subscribed: Subscription, offsets: TopicOffsets) -> list[str]:
    """The existing topics that the table names, that its pattern matches, or that it has read before."""
    pattern = subscribed.source.pattern
    return [
        name
        for name in offsets.topics
        if name in subscribed.position
        or name in subscribed.source.topics
        or (pattern is not None and re.fullmatch(pattern, name))
    ]


def partitions(
    subscribed: Subscription,
    offsets: TopicOffsets,
    parallelism: int,
    *,
    usual_seconds: float | None,
    trigger_seconds: float | None,
) -> Check:
    check = CheckSubject("kafka.partitions", subscribed.table)
    partition_count = sum(len(offsets.topics[name].partitions) for name in read_topics(subscribed, offsets))
    tasks = max(partition_count, subscribed.source.min_partitions or 0)
    text = f"{count(partition_count, 'partition')}, {count(parallelism, 'task')} at once"
    busy = bool(usual_seconds and trigger_seconds and usual_seconds > _BUSY_SHARE * trigger_seconds)
    if 0 < tasks < parallelism and busy:
        return check.note(
            f"{text}: {count(parallelism - tasks, 'core')} idle, while a batch takes {span(usual_seconds or 0)} of the "
            f"{span(trigger_seconds or 0)} of its trigger",
            f"write min_partitions: {parallelism} in `from` of {subscribed.table}; or give the topic more partitions",
        )
    if partition_count > _MANY_PER_CORE * parallelism:
        return check.note(
            f"{text}: a small batch is mostly the start of {partition_count:,} tasks",
            f"a longer trigger for {subscribed.table} makes fewer, larger batches; or give Spark more cores (spark: "
            "{master: …})",
        )
    return check.ok(text)


def consumers(capacity: str | None, partition_count: int) -> list[Check]:
    """Over all tables: Spark keeps one consumer per table and partition, up to a limit."""
    if not capacity or not capacity.isdecimal() or not partition_count:
        return []
    check = CheckSubject("kafka.consumers")
    text = f"{count(partition_count, 'partition')} are read in all, {int(capacity):,} consumers are kept"
    if partition_count <= int(capacity):
        return [check.ok(text)]
    return [check.warn(text, f"write spark: {{conf: {{spark.kafka.consumer.cache.capacity: {partition_count}}}}}")]
