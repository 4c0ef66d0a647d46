"""Getting a table ready to run: made if it is new, compared with its source, its checkpoint with its ledger."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine import bronze
from penstock.engine.kafka.admin import Admin, Topic
from penstock.engine.kafka.start import reads_committed, refuse_lost, refuse_recreated, require_topics, resolve
from penstock.engine.protocol import position
from penstock.engine.protocol.checkpoint import MARKER, read_checkpoint, why_rebuild
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.genesis import genesis
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.ledger import Tail, read_tail, refuse_foreign_changes, refuse_gap
from penstock.engine.protocol.locks import Lock, acquire_commit
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.open import carry_forward, open_generation
from penstock.engine.protocol.write import Target
from penstock.engine.store import Store
from penstock.errors import TableChanged
from penstock.plan.model import KafkaSource, TablePlan

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ready:
    """All that a query over the table needs."""

    target: Target
    tail: Tail
    topic_ids: Callable[[tuple[str, ...]], Mapping[str, str]]


def prepare(
    spark: SparkSession,
    table: TablePlan,
    store: Store,
    admin: Admin,
    lock: Lock,
    *,
    idempotent: bool,
    say: Say,
    distrust: bool = False,
    own: int | None = None,
) -> Ready:
    """Raises where a person has to decide; heals by itself whatever cannot lose or double a row, and says so.
    `distrust` rebuilds the checkpoint though it looks whole: Spark could not go on from it. `own` is the generation
    that this runner has written before, on stores without our locks."""
    log = DeltaLog(store, table.uri, table.name)
    subscription = subscription_of(table.source)
    topics = admin.topics(table.source)
    acquire_commit(lock, table.name)
    try:
        tail = _read_tail(log, store, table)
        if tail is None:
            tail = _create(spark, table, store, admin, log, topics, subscription, say)
        else:
            refuse_foreign_changes(tail, log)
            refuse_gap(tail, log)
            _refuse_other_columns(spark, table)
        refuse_ahead(store, table, tail.entry)
        reason = why_rebuild(read_checkpoint(store, checkpoint_folder(table, tail.entry)), tail.entry)
        found = tail
        tail = _follow_subscription(spark, table, admin, log, tail, topics, say)
        refuse_lost(
            position.parse(tail.entry.after[0]),
            tail.entry.topics,
            topics,
            admin,
            table.name,
            committed=reads_committed(table.source),
        )
        tail = carry_forward(spark, log, tail, table.uri)
        if idempotent:
            tail = _take_over(spark, table, log, tail, own)
        folder = checkpoint_folder(table, tail.entry)
        if reason is None and distrust:
            reason = "Spark could not go on from it"
        if reason is not None or tail.entry.generation != found.entry.generation:
            heal(store, folder, tail.entry)
        if reason is not None and found.entry.kind != "genesis":
            say(f"checkpoint rebuilt from the ledger at batch {found.entry.generation}.{found.entry.batch}: {reason}")
    finally:
        lock.release()
    target = Target(
        table=table.name,
        uri=table.uri,
        checkpoint=folder,
        definition=table.definition,
        subscription=subscription,
        store=store,
        log=log,
        lock=lock,
        idempotent=idempotent,
    )
    return Ready(target, tail, _TopicIds(admin, table, tail.entry.topics))


def _read_tail(log: DeltaLog, store: Store, table: TablePlan) -> Tail | None:
    try:
        return read_tail(log)
    except TableChanged as error:
        generations = sorted(int(name) for name in store.names(table.checkpoints) if name.isdigit())
        found = read_checkpoint(store, f"{table.checkpoints}/{generations[-1]}") if generations else None
        planned = found.offsets[max(found.offsets)] if found and found.offsets else None
        if planned is None:
            raise
        said = f"{error.message}. The table that was there had been read up to {', '.join(planned.after)}"
        raise TableChanged(said, where=error.where, hint=error.hint) from None


def subscription_of(source: KafkaSource) -> dict[str, Any]:
    return {"pattern": source.pattern} if source.pattern is not None else {"topics": sorted(source.topics)}


def checkpoint_folder(table: TablePlan, entry: Entry) -> str:
    return f"{table.checkpoints}/{entry.generation}"


def refuse_ahead(store: Store, table: TablePlan, entry: Entry) -> None:
    """A checkpoint of this ledger in a later generation than the table's: the table was put back to an older state."""
    for name in store.names(table.checkpoints):
        if (
            name.isdigit()
            and int(name) > entry.generation
            and f'"{entry.ledger}"' in (store.read(f"{table.checkpoints}/{name}/{MARKER}") or "")
        ):
            raise TableChanged(
                f"there is a checkpoint of generation {name}, but the table ends with generation {entry.generation}: "
                "the table was put back to an older state",
                where=table.name,
                hint=f"`penstock checkpoints reset {table.name} --to ledger` goes on from the table as it is: "
                f"{', '.join(entry.after)}",
            )


class _TopicIds:
    """Asked in every batch: Spark's connector never looks at topic ids, and a topic made again that has outgrown the
    old one would lose its first records without a word."""

    def __init__(self, admin: Admin, table: TablePlan, known: Mapping[str, str]) -> None:
        self._admin = admin
        self._table = table.name
        self._known = dict(known)

    def __call__(self, after: tuple[str, ...]) -> Mapping[str, str]:
        offsets = position.parse(after[0])
        found = self._admin.describe(offsets)
        for topic in offsets:
            refuse_recreated(topic, self._known, found, offsets, self._table)
            self._known[topic] = found[topic].id
        return {topic: self._known[topic] for topic in offsets}


def _create(
    spark: SparkSession,
    table: TablePlan,
    store: Store,
    admin: Admin,
    log: DeltaLog,
    topics: Mapping[str, Topic],
    subscription: Mapping[str, Any],
    say: Say,
) -> Tail:
    if any(name.isdigit() for name in store.names(table.checkpoints)):
        raise TableChanged(
            f"the table is gone ({table.uri} holds no Delta log), but its checkpoints are still there",
            where=table.name,
            hint="put the table back; or make it anew from `starting`: "
            f"`penstock checkpoints reset {table.name} --to starting`",
        )
    require_topics(table.source, topics, table.name)
    start = position.dump(resolve(table.source, admin, topics, table.name))
    tail = genesis(
        spark,
        log,
        table=table.name,
        uri=table.uri,
        schema=bronze.schema(table),
        properties=table.properties,
        position=(start,),
        definition=table.definition,
        topics={name: topic.id for name, topic in topics.items()},
        subscription=subscription,
    )
    say(f"table created, starting at {start}")
    return tail


def _follow_subscription(
    spark: SparkSession,
    table: TablePlan,
    admin: Admin,
    log: DeltaLog,
    tail: Tail,
    topics: Mapping[str, Topic],
    say: Say,
) -> Tail:
    """Topics newly named in the project begin by `starting`; those taken out of it leave the position and are
    remembered, so that they go on there if they come back. Topics that newly match an unchanged pattern are left to
    Spark, which reads them from their first record."""
    subscription = subscription_of(table.source)
    entry = tail.entry
    if dict(entry.subscription) == subscription:
        return tail
    require_topics(table.source, topics, table.name)
    offsets = position.parse(entry.after[0])
    gone = sorted(set(offsets) - set(topics))
    parked = {**entry.parked, **{name: {"id": entry.topics.get(name), "offsets": offsets[name]} for name in gone}}
    back = {name: parked.pop(name) for name in topics if name in parked}
    new = {name: topic for name, topic in topics.items() if name not in offsets and name not in back}
    after = {name: parts for name, parts in offsets.items() if name not in gone}
    after |= {name: {int(p): o for p, o in was["offsets"].items()} for name, was in back.items()}
    after |= resolve(table.source, admin, new, table.name)
    ids = {**entry.topics, **{name: was["id"] for name, was in back.items() if was["id"]}}
    said = [
        f"new topics {', '.join(sorted(new))}" if new else "",
        f"read again from where they were left: {', '.join(sorted(back))}" if back else "",
        f"no longer read: {', '.join(gone)}" if gone else "",
    ]
    note = "; ".join(filter(None, said)) or "the subscription was written in another way"
    tail = open_generation(
        spark,
        log,
        tail,
        table.uri,
        after=(position.dump(after),),
        topics={name: ids.get(name, topics[name].id) for name in after},
        subscription=subscription,
        definition=table.definition,
        note=note,
        parked=parked,
    )
    say(f"generation {tail.entry.generation} opened: {note}")
    return tail


def _take_over(spark: SparkSession, table: TablePlan, log: DeltaLog, tail: Tail, own: int | None) -> Tail:
    """Without our locks each runner opens a generation of its own, with a checkpoint of its own: two that shared one
    could each commit its rows under the other's offsets. The newest goes on, at its next batch the other one ends."""
    entry = tail.entry
    if own is not None and entry.generation > own:
        raise TableChanged(
            f"another runner has taken this table over ({entry.note or entry.kind}, generation {entry.generation})",
            where=table.name,
            hint="nothing was lost or doubled: that one goes on. Stop it before you start this one again",
        )
    if own == entry.generation or (entry.kind == "genesis" and own is None):
        return tail
    return open_generation(
        spark,
        log,
        tail,
        table.uri,
        after=entry.after,
        topics=entry.topics,
        subscription=entry.subscription,
        definition=table.definition,
        note=f"a runner started on {socket.gethostname()}, process {os.getpid()}",
    )


def _refuse_other_columns(spark: SparkSession, table: TablePlan) -> None:
    wanted = {(f.name.lower(), f.dataType.simpleString()) for f in bronze.schema(table).fields}
    there = {
        (f.name.lower(), f.dataType.simpleString()) for f in spark.read.format("delta").load(table.uri).schema.fields
    }
    missing = sorted(f"{name} {kind}" for name, kind in wanted - there)
    if missing:
        raise TableChanged(
            f"the table has no column {', '.join(missing)}; it has {', '.join(f'{n} {k}' for n, k in sorted(there))}",
            where=table.name,
            hint="`columns` and `payload` are fixed when the table is made: write them as they were, or a new table",
        )
