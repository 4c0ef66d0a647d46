"""Moving a table's position by hand: what can be chosen, by the kind of its source, and the commit that does it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import Conflict, PenstockError, TableChanged, Terminal, UsageError
from penstock.ledger import position
from penstock.ledger.checkpoint import folder_of, rebuild
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.generations import open_generation
from penstock.ledger.head import position_at, read_head
from penstock.ledger.pending import pending_replay, pending_rewind
from penstock.ledger.position import VERSIONS, Range, Version, parse_version
from penstock.ledger.source import Start
from penstock.operations.steps import MakeCheckpoint, OpenGeneration
from penstock.plan.quarantine import quarantine_of
from penstock.plan.sources import TopicsSource, VersionsSource, VersionStartPlan
from penstock.sources.delta_changes import resolve_version, table_id, unbroken
from penstock.sources.registry import open_client
from penstock.sources.topics import require_topics, resolve_offsets
from penstock.storage.locks import JvmLock, NoLock, acquire_commit, acquire_run, lock_path
from penstock.storage.stores import HadoopStore, LocalStore, store_of
from penstock.tables.columns import with_statistics
from penstock.tables.kinds import look_at_table
from penstock.tables.merge.tombstones import next_generation
from penstock.tables.session import TableSession, complete_last
from penstock.tables.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets, TopicInfo
    from penstock.plan.model import Plan, TablePlan
    from penstock.sources.topics import LogClient
    from penstock.storage.stores import Store

# A position that a person chooses for a table, and what follows from it.


@dataclass(frozen=True)
class ResetPlan:
    """What a reset would do. `skipped` records never land; `again` are read once more, so they are in the table twice
    unless its rows were removed; `dropped` topics no longer exist. Of a Delta table upstream they are its versions."""

    table: TablePlan
    to: str
    before: str | None
    """The position now; None if there is no table, or one without a ledger."""
    after: str
    skipped: tuple[Range, ...] = ()
    again: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    """Of what is read from there."""
    starts_over: tuple[str, ...] = ()
    """Set for a table that depends on Spark's state: it is emptied, and reads these tables from where they begin."""

    @property
    def steps(self) -> tuple[OpenGeneration, MakeCheckpoint]:
        opened = OpenGeneration(self.table, (self.after,), emptied=bool(self.starts_over))
        return opened, MakeCheckpoint(self.table)

    @property
    def note(self) -> str:
        said = [
            f"reset --to {self.to}",
            "emptied" if self.starts_over else "",
            f"skipped {', '.join(map(str, self.skipped))}" if self.skipped else "",
            f"again {', '.join(map(str, self.again))}" if self.again else "",
            f"dropped {', '.join(self.dropped)}" if self.dropped else "",
        ]
        return "; ".join(filter(None, said))


def tail_of(log: DeltaLog) -> LedgerHead | None:
    """None also for a table that others made: a reset is how to go on in it."""
    try:
        return read_head(log)
    except TableChanged:
        return None


def document(reset: ResetPlan) -> dict[str, Any]:
    def plain(found: tuple[Range, ...]) -> list[dict[str, Any]]:
        return [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in found]

    return {
        "table": reset.table.name,
        "to": reset.to,
        "before": json.loads(reset.before) if reset.before else None,
        "after": json.loads(reset.after),
        "skipped": plain(reset.skipped),
        "again": plain(reset.again),
        "dropped": list(reset.dropped),
        "emptied": bool(reset.starts_over),
        "steps": [step.describe() for step in reset.steps],
    }


# Positions in a Delta table upstream: its versions.


VERSION_TARGETS = "earliest, latest, starting, ledger, version:N of this table, or source:N of the table that it reads"


def plan_delta_reset(table: TablePlan, store: Store, to: str) -> ResetPlan:
    source = table.versions
    assert source is not None
    name = source.label
    upstream = DeltaLog(store_of(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    tail = tail_of(DeltaLog(store, table.uri, table.name))
    after = _chosen_version(table, source, upstream, versions, identity, tail, store, to)
    now = parse_version(tail.entry.after[0]) if tail else None
    skipped, again = _consequences(now, after)
    return ResetPlan(
        table=table,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=str(after),
        skipped=skipped,
        again=again,
        ids={name: identity},
    )


def _chosen_version(
    table: TablePlan,
    source: VersionsSource,
    upstream: DeltaLog,
    versions: list[int],
    identity: str,
    tail: LedgerHead | None,
    store: Store,
    to: str,
) -> Version:
    def start(starting: VersionStartPlan) -> Version:
        return resolve_version(starting, identity, versions, upstream, table.name)

    if to == "earliest":
        return start(VersionStartPlan("earliest"))
    if to == "latest":
        return start(VersionStartPlan("latest"))
    if to == "starting":
        return start(source.starting)
    if to.startswith("source:") and to[7:].isdigit():
        return start(VersionStartPlan("version", version=int(to[7:])))
    if to == "ledger" and tail is not None:
        return _nearest(parse_version(tail.entry.after[0]), identity, versions)
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(DeltaLog(store, table.uri, table.name), int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table.name}`")
        return _nearest(parse_version(entry.after[0]), identity, versions)
    hint = f"write {VERSION_TARGETS}" + ("" if tail else "; there is no ledger to go on from")
    raise UsageError(f"--to {to} is not a position", hint=hint)


def _nearest(wanted: Version, identity: str, versions: list[int]) -> Version:
    """A table made again is read from its start; what its log no longer has is skipped."""
    if wanted.table_id != identity or wanted.version > versions[-1] + 1:
        return Version(identity, versions[-1], snapshot=True)
    oldest = unbroken(versions)
    return wanted if wanted.snapshot or wanted.version >= oldest else Version(identity, oldest)


def _consequences(now: Version | None, after: Version) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Of a version that was read in part, the whole counts as read."""
    if now is None:
        return (), ()
    was = now.read_up_to + 1 if now.table_id == after.table_id else 0
    begins = 0 if after.snapshot and after.index < 0 else after.version
    if begins > was:
        return (Range(VERSIONS, 0, was, begins),), ()
    return (), (Range(VERSIONS, 0, begins, was),) if begins < was else ()


# Positions in Kafka topics: what the broker holds decides which can be chosen.


OFFSET_TARGETS = "earliest, latest, starting, ledger, version:N, or offsets as JSON"


def plan_topics_reset(
    table: TablePlan, store: Store, admin: LogClient, to: str, only: tuple[str, ...] = ()
) -> ResetPlan:
    """`only` limits the change to some topics; the others keep their position."""
    source = table.topics
    assert source is not None
    log = DeltaLog(store, table.uri, table.name)
    tail = tail_of(log)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    unknown = sorted(set(only) - set(topics))
    if unknown:
        raise UsageError(f"the table does not read topic {', '.join(unknown)}", hint=f"it reads {', '.join(topics)}")
    held = _Held(admin, topics, tail.entry.topics if tail else {}, committed=source.reads_committed)
    now = position.parse(tail.entry.after[0]) if tail else {}
    chosen = _chosen_offsets(source, table.name, log, tail, admin, held, to)
    after = {t: parts for t, parts in (held.nearest(now) if only else {}).items() if t not in only}
    after |= {t: parts for t, parts in chosen.items() if not only or t in only}
    skipped, again = held.consequences(now, after)
    return ResetPlan(
        table=table,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=position.dump(after),
        skipped=skipped,
        again=again,
        dropped=tuple(sorted(set(now) - set(topics))),
        ids={name: topics[name].id for name in after},
    )


class _Held:
    """What the broker holds of each topic now."""

    def __init__(
        self, admin: LogClient, topics: Mapping[str, TopicInfo], ids: Mapping[str, str], *, committed: bool
    ) -> None:
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


def _chosen_offsets(
    source: TopicsSource, table: str, log: DeltaLog, tail: LedgerHead | None, admin: LogClient, held: _Held, to: str
) -> Offsets:
    if to == "earliest":
        return held.first
    if to == "latest":
        return held.end
    if to == "starting":
        return resolve_offsets(source, admin, held.topics, table)
    if to == "ledger" and tail is not None:
        return held.nearest(position.parse(tail.entry.after[0]))
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(log, int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table}`")
        return held.nearest(position.parse(entry.after[0]))
    try:
        named = held.refuse_outside(position.parse(to))
    except (ValueError, AttributeError, TypeError):
        hint = f"write {OFFSET_TARGETS}" + ("" if tail else "; there is no ledger to go on from")
        raise UsageError(f"--to {to} is not a position", hint=hint) from None
    # A partition that is not named keeps its place: left out, it would be read from its start.
    kept = held.nearest(position.parse(tail.entry.after[0])) if tail else held.first
    return {topic: kept.get(topic, {}) | named.get(topic, {}) for topic in {**kept, **named}}


# Tables that rest on Spark's state have one way on: everything again, into an empty table.


def plan_stream_reset(table: TablePlan, store: Store, to: str) -> ResetPlan:
    assert table.stream is not None
    if to != "starting":
        raise UsageError(
            f"--to {to}: what Spark keeps of {table.name} is of one position, and of no other",
            hint=f"`penstock checkpoints reset {table.name} --to starting` empties the table and starts over",
        )
    begins = [_begin(table, source, store) for source in table.stream.inputs.values()]
    tail = tail_of(DeltaLog(store, table.uri, table.name))
    return ResetPlan(
        table=table,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=begins[0],
        starts_over=tuple(dict.fromkeys(source.table or source.uri for source in table.stream.inputs.values())),
    )


def _begin(table: TablePlan, source: VersionsSource, store: Store) -> str:
    name = source.table or source.uri
    upstream = DeltaLog(store_of(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    return str(resolve_version(source.starting, identity, versions, upstream, table.name))


# What a reset of a table would do, by the kind of its source.


def plan_reset(table: TablePlan, store: Store, to: str, only: tuple[str, ...] = ()) -> ResetPlan:
    """`only` names topics; those that are not named keep their position."""
    if table.stream is not None:
        return plan_stream_reset(table, store, to)
    if table.topics is not None:
        return plan_topics_reset(table, store, open_client(table.topics), to, only)
    if only:
        raise UsageError("--topic is for tables that read topics", hint=f"{table.name} reads {table.source.name}")
    return plan_delta_reset(table, store, to)


# Moving a table's position: one commit that opens a generation, then a checkpoint that begins there.


def run_reset(spark: SparkSession, plan: Plan, reset: ResetPlan) -> LedgerHead:
    """Refused while a runner works on the table. Idempotent in effect: killed anywhere, it can be run again."""
    table = reset.table
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    source = Sources(lambda _: store, spark).open(table)
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(JvmLock(spark, path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(JvmLock(spark, path))), table.name)
        head = _open_generation(TableSession(spark, table, store, source, NoLock(), not plan.local), reset)
        _make_checkpoint(spark, table, store, head)
        return head


def _open_generation(work: TableSession, reset: ResetPlan) -> LedgerHead:
    """The locks are held."""
    spark, table, store, source, log = work.spark, work.table, work.store, work.source, work.log
    tail = tail_of(log)
    if (tail.entry.after[0] if tail else None) != reset.before:
        raise Conflict(
            "the table moved on since the reset was planned",
            where=table.name,
            hint="run the command again: it shows what it would skip or read again now",
        )
    refuse_owed(table, tail)
    start = source.start() if reset.starts_over else Start((reset.after,), reset.ids)
    if tail is not None:
        tail, missing = _completed(work, tail)
        return open_generation(
            spark,
            log,
            tail,
            table.uri,
            after=start.position,
            topics=start.ids,
            subscription=source.subscription,
            definition=table.definition,
            note="; ".join(filter(None, (reset.note, missing))),
            emptied=bool(reset.starts_over),
            at_least=_later_than_all(work),
        )
    schema = look_at_table(spark, table, store, source).schema
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    return genesis(
        spark,
        log,
        table=table.name,
        uri=table.uri,
        schema=schema,
        partition_by=table.write.partition_by,
        cluster_by=table.write.cluster_by,
        properties=with_statistics(table, schema),
        position=start.position,
        definition=table.definition,
        topics=start.ids,
        subscription=source.subscription,
        generation=max(generations, default=0) + 1,
    )


def _later_than_all(work: TableSession) -> int:
    """Of a table that was put back to an older state the checkpoints, the quarantine and the tombstones are ahead of
    it. Opened in a generation of theirs, it would still seem to be so if this is killed before they are removed, and
    rejected rows would seem to be in the quarantine."""
    table, store = work.table, work.store
    found = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    place = quarantine_of(table.name, table.uri)
    if table.may_reject and (beside := tail_of(DeltaLog(store, place.uri, place.table))) is not None:
        found.append(beside.entry.generation)
    return max(max(found, default=0) + 1, next_generation(store, table))


def _completed(work: TableSession, tail: LedgerHead) -> tuple[LedgerHead, str | None]:
    """With what became of the rows of its last batch: no other entry would have that. And what of it is missing, if it
    was cut off and cannot be read any more: a reset is the way on from there."""
    try:
        return complete_last(work, tail), None
    except Exception as error:
        entry = tail.entry
        why = error.message if isinstance(error, PenstockError) else " ".join(str(error).split())[:200]
        missing = f"the rejected rows of batch {entry.generation}.{entry.batch} may be missing in quarantine"
        return work.counted(tail), f"{missing}: {why}"


def refuse_owed(table: TablePlan, tail: LedgerHead | None) -> None:
    """What a generation was opened for is not done: its position is not that of the rows."""
    for verb, owed in (("replay", pending_replay), ("rewind", pending_rewind)):
        if tail is not None and owed(tail.entry) is not None:
            raise Terminal(
                f"a {verb} of it was begun and is not done",
                where=table.name,
                hint=f"`penstock run` finishes it, `penstock {verb} {table.name} --abort` gives it up",
            )


def _make_checkpoint(spark: SparkSession, table: TablePlan, store: Store, head: LedgerHead) -> None:
    """Those of later generations are removed first: of a table that was restored they are ahead of what is now true."""
    for name in store.names(table.checkpoints):
        if name.isdigit() and int(name) >= head.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")
    rebuild(spark, store, table, folder_of(table.checkpoints, head.entry), head.entry)
