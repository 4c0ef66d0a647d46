"""`checkpoints reset`: the position of a table chosen by a person, with the consequence shown first.

What a refusal leads to. It is one commit: an entry that opens the next generation at the chosen position; the
checkpoint follows from it as after every start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine import bronze
from penstock.engine.kafka.admin import Admin, Topic
from penstock.engine.kafka.reader import subscription_of
from penstock.engine.kafka.start import reads_committed, require_topics, resolve
from penstock.engine.protocol import position
from penstock.engine.protocol.genesis import genesis
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.ledger import Tail, position_at, read_tail
from penstock.engine.protocol.locks import JvmLock, acquire_commit, acquire_run, lock_path
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.open import open_generation
from penstock.engine.protocol.position import Offsets, Range
from penstock.engine.store import HadoopStore, LocalStore, Store
from penstock.engine.table import checkpoint_folder
from penstock.errors import Conflict, TableChanged, UsageError
from penstock.plan.model import Plan, TablePlan

TARGETS = "earliest, latest, starting, ledger, version:N, or offsets as JSON"


@dataclass(frozen=True)
class Reset:
    """What a reset would do. `skipped` records never land; `again` are read once more, so they are in the table twice
    unless its rows were removed; `dropped` topics no longer exist."""

    table: str
    to: str
    before: str | None
    """The position now; None if there is no table, or one without a ledger."""
    after: str
    skipped: tuple[Range, ...]
    again: tuple[Range, ...]
    dropped: tuple[str, ...]

    @property
    def note(self) -> str:
        said = [
            f"reset --to {self.to}",
            f"skipped {', '.join(map(str, self.skipped))}" if self.skipped else "",
            f"again {', '.join(map(str, self.again))}" if self.again else "",
            f"dropped {', '.join(self.dropped)}" if self.dropped else "",
        ]
        return "; ".join(filter(None, said))


def plan_reset(table: TablePlan, store: Store, admin: Admin, to: str, only: tuple[str, ...] = ()) -> Reset:
    """`only` limits the change to some topics; the others keep their position."""
    log = DeltaLog(store, table.uri, table.name)
    tail = _tail(log)
    topics = admin.topics(table.source)
    require_topics(table.source, topics, table.name)
    unknown = sorted(set(only) - set(topics))
    if unknown:
        raise UsageError(f"the table does not read topic {', '.join(unknown)}", hint=f"it reads {', '.join(topics)}")
    held = _Held(admin, topics, tail.entry.topics if tail else {}, committed=reads_committed(table.source))
    now = position.parse(tail.entry.after[0]) if tail else {}
    chosen = _chosen(table, log, tail, admin, held, to)
    after = {t: parts for t, parts in (held.nearest(now) if only else {}).items() if t not in only}
    after |= {t: parts for t, parts in chosen.items() if not only or t in only}
    skipped, again = held.consequences(now, after)
    return Reset(
        table=table.name,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=position.dump(after),
        skipped=skipped,
        again=again,
        dropped=tuple(sorted(set(now) - set(topics))),
    )


def carry_out(spark: SparkSession, plan: Plan, table: TablePlan, reset: Reset, admin: Admin) -> Tail:
    """Refused while a runner works on the table. Idempotent in effect: killed anywhere, it can be run again."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    topics = {name: topic.id for name, topic in admin.topics(table.source).items()}
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(JvmLock(spark, path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(JvmLock(spark, path))), table.name)
        tail = _commit(spark, table, store, reset, {t: topics[t] for t in position.parse(reset.after)})
        _forget_later_checkpoints(store, table, tail)
        heal(store, checkpoint_folder(table, tail.entry), tail.entry)
        return tail


def _commit(spark: SparkSession, table: TablePlan, store: Store, reset: Reset, topics: Mapping[str, str]) -> Tail:
    log = DeltaLog(store, table.uri, table.name)
    tail = _tail(log)
    if (tail.entry.after[0] if tail else None) != reset.before:
        raise Conflict(
            "the table moved on since the reset was planned",
            where=table.name,
            hint="run the command again: it shows what it would skip or read again now",
        )
    subscription = subscription_of(table.source)
    if tail is not None:
        return open_generation(
            spark,
            log,
            tail,
            table.uri,
            after=(reset.after,),
            topics=topics,
            subscription=subscription,
            definition=table.definition,
            note=reset.note,
        )
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    return genesis(
        spark,
        log,
        table=table.name,
        uri=table.uri,
        schema=bronze.schema(table),
        properties=table.properties,
        position=(reset.after,),
        definition=table.definition,
        topics=topics,
        subscription=subscription,
        generation=max(generations, default=0) + 1,
    )


def _tail(log: DeltaLog) -> Tail | None:
    try:
        return read_tail(log)
    except TableChanged:
        return None


class _Held:
    """What the broker holds of each topic now."""

    def __init__(self, admin: Admin, topics: Mapping[str, Topic], ids: Mapping[str, str], *, committed: bool) -> None:
        self.topics = topics
        self.first, self.end = admin.earliest(topics), admin.latest(topics, committed=committed)
        self._recreated = {t for t in topics if ids.get(t, topics[t].id) != topics[t].id}

    def nearest(self, wanted: Offsets) -> Offsets:
        """A position as near as the broker allows: what is gone is skipped, a topic made again is read from its start,
        one that does not exist any more is dropped."""
        return {
            topic: {
                partition: self._nearest(topic, partition, wanted.get(topic, {}).get(partition, 0))
                for partition in self.first[topic]
            }
            for topic in self.topics
            if topic in wanted
        }

    def _nearest(self, topic: str, partition: int, offset: int) -> int:
        first, end = self.first[topic][partition], self.end[topic][partition]
        return first if topic in self._recreated or offset > end else max(first, offset)

    def refuse_outside(self, wanted: Offsets) -> Offsets:
        for topic, partitions in wanted.items():
            for partition, offset in partitions.items():
                low, high = self.first.get(topic, {}).get(partition, 0), self.end.get(topic, {}).get(partition, -1)
                if not low <= offset <= high:
                    holds = f"the broker holds [{low}, {high})" if high >= 0 else "the table does not read that"
                    raise UsageError(f"{topic}-{partition} at {offset}: {holds}", hint="`--dry-run` shows a position")
        return wanted

    def consequences(self, now: Offsets, after: Offsets) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        skipped, again = [], []
        for topic, partitions in sorted(after.items()):
            known = {} if topic in self._recreated else now.get(topic, {})
            for partition, offset in sorted(partitions.items()):
                was = known.get(partition, self.first[topic][partition] if now else offset)
                if offset > was:
                    skipped.append(Range(topic, partition, was, offset))
                elif offset < was:
                    again.append(Range(topic, partition, offset, was))
        return tuple(skipped), tuple(again)


def _chosen(table: TablePlan, log: DeltaLog, tail: Tail | None, admin: Admin, held: _Held, to: str) -> Offsets:
    if to == "earliest":
        return held.first
    if to == "latest":
        return held.end
    if to == "starting":
        return resolve(table.source, admin, held.topics, table.name)
    if to == "ledger" and tail is not None:
        return held.nearest(position.parse(tail.entry.after[0]))
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(log, int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table.name}`")
        return held.nearest(position.parse(entry.after[0]))
    try:
        named = held.refuse_outside(position.parse(to))
    except (ValueError, AttributeError, TypeError):
        hint = f"write {TARGETS}" + ("" if tail else "; there is no ledger to go on from")
        raise UsageError(f"--to {to} is no position", hint=hint) from None
    # A partition that is not named keeps its place: left out, it would be read from its start.
    kept = held.nearest(position.parse(tail.entry.after[0])) if tail else held.first
    return {topic: kept.get(topic, {}) | named.get(topic, {}) for topic in {**kept, **named}}


def _forget_later_checkpoints(store: Store, table: TablePlan, tail: Tail) -> None:
    """Of a table that was put back to an older state: they are ahead of what is now the truth."""
    for name in store.names(table.checkpoints):
        if name.isdigit() and int(name) >= tail.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")


def document(reset: Reset) -> dict[str, Any]:
    def plain(found: tuple[Range, ...]) -> list[dict[str, Any]]:
        return [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in found]

    return {
        "table": reset.table,
        "to": reset.to,
        "before": json.loads(reset.before) if reset.before else None,
        "after": json.loads(reset.after),
        "skipped": plain(reset.skipped),
        "again": plain(reset.again),
        "dropped": list(reset.dropped),
    }
