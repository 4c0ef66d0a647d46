"""Brokers and topics: do they answer, are they there, are they what they were, do they fit the machine?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.engine.protocol.position import Offsets
from penstock.ops.broker import Held
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import count, listed, span
from penstock.ops.verify.standing import problems
from penstock.plan.model import Cluster, KafkaSource
from penstock.spec.finding import nearest

_BUSY = 0.5
"""Part of its trigger from which on a table may use more cores."""
_MANY = 20
"""Partitions per core from which on most of a small batch is the start of tasks."""


@dataclass(frozen=True)
class Subscribed:
    """A table and what it reads."""

    table: str
    source: KafkaSource
    position: Offsets
    """{}: it was never made."""
    ids: Mapping[str, str]
    sends: bool = False
    """It is a sink: it writes to the topic."""


def answers(cluster: Cluster, problem: str | None, tables: Sequence[str]) -> Check:
    """One finding per cluster, however many tables read it."""
    about = About("kafka.answers")
    if problem is None:
        return about.ok(f"{cluster.bootstrap} ({cluster.name}) answers")
    if " refused: " in problem:
        fix = f"check `security` of the cluster {cluster.name}: the user, the password of today, and the user's rights"
    else:
        fix = "is it running, and is `bootstrap` right? `penstock kafka start` runs one for development"
    return about.red(f"{problem}; {listed(tables)} {'depends' if len(tables) == 1 else 'depend'} on it", fix)


def topics(one: Subscribed, held: Held, names: Sequence[str]) -> Check:
    """`names` are all topics of the cluster, if one of the named is missing."""
    about = About("kafka.topics", one.table)
    source = one.source
    missing = [name for name in source.topics if name not in held.topics]
    if missing and one.sends:
        topic, bootstrap = missing[0], source.cluster.bootstrap
        return about.red(
            f"{topic}, which it sends to, does not exist on {bootstrap}",
            f"`kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 4`; the sink waits",
        )
    if missing:
        meant = {name: nearest(name, [other for other in names if not other.startswith("__")]) for name in missing}
        guess = next((f"did you mean {found}? " for found in meant.values() if found), "")
        return about.red(
            f"{listed(missing)} {'does' if len(missing) == 1 else 'do'} not exist on {source.cluster.bootstrap}",
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
            f"no topic of {source.cluster.bootstrap} matches the pattern '{source.pattern}'",
            f"correct `from: {{kafka: {{pattern: …}}}}` of {one.table}; it matches whole names",
        )
    if one.sends:
        return about.ok(f"{listed(sorted(matched))}, which it sends to, is there")
    return about.ok(f"{listed(sorted(matched))}: there, and the same as when it was read last")


def read_topics(one: Subscribed, held: Held) -> list[str]:
    """Those that exist: it names them, its pattern matches them, or it has read them before."""
    pattern = one.source.pattern
    return [
        name
        for name in held.topics
        if name in one.position or name in one.source.topics or (pattern is not None and re.fullmatch(pattern, name))
    ]


def partitions(
    one: Subscribed, held: Held, parallelism: int, *, usual_seconds: float | None, trigger_seconds: float | None
) -> Check:
    about = About("kafka.partitions", one.table)
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
    about = About("kafka.consumers")
    said = f"{count(number, 'partition')} are read in all, {int(capacity):,} consumers are kept"
    if number <= int(capacity):
        return [about.ok(said)]
    return [about.warn(said, f"write spark: {{conf: {{spark.kafka.consumer.cache.capacity: {number}}}}}")]
