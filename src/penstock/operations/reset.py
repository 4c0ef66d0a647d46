"""Reset: moves a table's position by hand, to one that its kind of source allows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import Conflict, PenstockError, TableChanged, Terminal, UsageError
from penstock.ledger import position
from penstock.ledger.checkpoint import checkpoint_folder, rebuild
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
from penstock.sources.delta_changes import oldest_unbroken, resolve_version, table_id
from penstock.sources.registry import open_client
from penstock.sources.topics import require_topics, resolve_offsets
from penstock.storage.locks import JvmLock, NoLock, acquire_commit, acquire_run, lock_path
from penstock.storage.stores import HadoopStore, LocalStore, source_store
from penstock.tables.columns import with_statistics
from penstock.tables.kinds import resolve_table
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

# A position that a person chooses for a table, and its consequences.


@dataclass(frozen=True)
class ResetPlan:
    """What a reset would do. `skipped` records never land; those in `again` are read a second time, so they are in the
    table twice unless its rows were removed; `dropped` topics no longer exist. For a Delta table upstream the ranges
    are versions."""

    table: TablePlan
    to: str
    before: str | None
    """The position now; None if there is no table, or one without a ledger."""
    after: str
    skipped: tuple[Range, ...] = ()
    read_again: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    ids: Mapping[str, str] = field(default_factory=dict)
    """Ids of the topics or the table that are read from there."""
    starts_over: tuple[str, ...] = ()
    """Set for a table that depends on Spark's state: it is emptied, and reads these tables from where they begin."""

    @property
    def steps(self) -> tuple[OpenGeneration, MakeCheckpoint]:
        opened = OpenGeneration(self.table, (self.after,), emptied=bool(self.starts_over))
        return opened, MakeCheckpoint(self.table)

    @property
    def note(self) -> str:
        parts = [
            f"reset --to {self.to}",
            "emptied" if self.starts_over else "",
            f"skipped {', '.join(map(str, self.skipped))}" if self.skipped else "",
            f"again {', '.join(map(str, self.read_again))}" if self.read_again else "",
            f"dropped {', '.join(self.dropped)}" if self.dropped else "",
        ]
        return "; ".join(filter(None, parts))


def head_of(log: DeltaLog) -> LedgerHead | None:
    """None also for a table that another program made: a reset is the way to continue in it."""
    try:
        return read_head(log)
    except TableChanged:
        return None


def document(reset_plan: ResetPlan) -> dict[str, Any]:
    def plain(ranges: tuple[Range, ...]) -> list[dict[str, Any]]:
        return [
            {
                "topic": offset_range.topic,
                "partition": offset_range.partition,
                "start": offset_range.start,
                "end": offset_range.end,
            }
            for offset_range in ranges
        ]

    return {
        "table": reset_plan.table.name,
        "to": reset_plan.to,
        "before": json.loads(reset_plan.before) if reset_plan.before else None,
        "after": json.loads(reset_plan.after),
        "skipped": plain(reset_plan.skipped),
        "again": plain(reset_plan.read_again),
        "dropped": list(reset_plan.dropped),
        "emptied": bool(reset_plan.starts_over),
        "steps": [step.describe() for step in reset_plan.steps],
    }


# Positions in a Delta table upstream: its versions.


VERSION_TARGETS = "earliest, latest, starting, ledger, version:N of this table, or source:N of the table that it reads"


def plan_delta_reset(table: TablePlan, store: Store, to: str) -> ResetPlan:
    source = table.versions
    assert source is not None
    name = source.label
    upstream = DeltaLog(source_store(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    head = head_of(DeltaLog(store, table.uri, table.name))
    after = _choose_version(table, source, upstream, versions, identity, head, store, to)
    current = parse_version(head.entry.after[0]) if head else None
    skipped, again = _consequences(current, after)
    return ResetPlan(
        table=table,
        to=to,
        before=head.entry.after[0] if head else None,
        after=str(after),
        skipped=skipped,
        read_again=again,
        ids={name: identity},
    )


def _choose_version(
    table: TablePlan,
    source: VersionsSource,
    upstream: DeltaLog,
    versions: list[int],
    identity: str,
    head: LedgerHead | None,
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
    if to == "ledger" and head is not None:
        return _nearest(parse_version(head.entry.after[0]), identity, versions)
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(DeltaLog(store, table.uri, table.name), int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table.name}`")
        return _nearest(parse_version(entry.after[0]), identity, versions)
    hint = f"write {VERSION_TARGETS}" + ("" if head else "; there is no ledger to go on from")
    raise UsageError(f"--to {to} is not a position", hint=hint)


def _nearest(version: Version, identity: str, versions: list[int]) -> Version:
    """The nearest position that exists: a recreated table is read from its start, versions that its log no longer has
    are skipped."""
    if version.table_id != identity or version.version > versions[-1] + 1:
        return Version(identity, versions[-1], snapshot=True)
    oldest = oldest_unbroken(versions)
    return version if version.snapshot or version.version >= oldest else Version(identity, oldest)


def _consequences(current: Version | None, after: Version) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """What is skipped and what is read again. A version that was read in part counts as read."""
    if current is None:
        return (), ()
    read_until = current.read_up_to + 1 if current.table_id == after.table_id else 0
    start = 0 if after.snapshot and after.index < 0 else after.version
    if start > read_until:
        return (Range(VERSIONS, 0, read_until, start),), ()
    return (), (Range(VERSIONS, 0, start, read_until),) if start < read_until else ()


# Positions in Kafka topics: only offsets that the broker holds can be chosen.


OFFSET_TARGETS = "earliest, latest, starting, ledger, version:N, or offsets as JSON"


def plan_topics_reset(
    table: TablePlan, store: Store, admin: LogClient, to: str, only: tuple[str, ...] = ()
) -> ResetPlan:
    """`only` limits the change to some topics; the others keep their position."""
    source = table.topics
    assert source is not None
    log = DeltaLog(store, table.uri, table.name)
    head = head_of(log)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    unknown = sorted(set(only) - set(topics))
    if unknown:
        raise UsageError(f"the table does not read topic {', '.join(unknown)}", hint=f"it reads {', '.join(topics)}")
    broker = _BrokerOffsets(admin, topics, head.entry.topics if head else {}, committed=source.reads_committed)
    current = position.parse(head.entry.after[0]) if head else {}
    chosen = _choose_offsets(source, table.name, log, head, admin, broker, to)
    after = {t: parts for t, parts in (broker.nearest(current) if only else {}).items() if t not in only}
    after |= {t: parts for t, parts in chosen.items() if not only or t in only}
    skipped, again = broker.consequences(current, after)
    return ResetPlan(
        table=table,
        to=to,
        before=head.entry.after[0] if head else None,
        after=position.dump(after),
        skipped=skipped,
        read_again=again,
        dropped=tuple(sorted(set(current) - set(topics))),
        ids={name: topics[name].id for name in after},
    )


class _BrokerOffsets:
    """The offsets that the broker holds of each topic now."""

    def __init__(
        self, admin: LogClient, topics: Mapping[str, TopicInfo], ids: Mapping[str, str], *, committed: bool
    ) -> None:
        self.topics = topics
        self.first, self.end = admin.earliest(topics), admin.latest(topics, committed=committed)
        self._recreated = {t for t in topics if ids.get(t, topics[t].id) != topics[t].id}

    def nearest(self, offsets: Offsets) -> Offsets:
        """The nearest position that the broker allows: removed offsets are skipped, a recreated topic is read from its
        start, a topic that no longer exists is dropped."""
        return {
            topic: {
                partition: self._nearest(topic, partition, offsets.get(topic, {}).get(partition, 0))
                for partition in self.first[topic]
            }
            for topic in self.topics
            if topic in offsets
        }

    def _nearest(self, topic: str, partition: int, offset: int) -> int:
        first, end = self.first[topic][partition], self.end[topic][partition]
        return first if topic in self._recreated or offset > end else max(first, offset)

    def refuse_outside(self, offsets: Offsets) -> Offsets:
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                low, high = self.first.get(topic, {}).get(partition, 0), self.end.get(topic, {}).get(partition, -1)
                if not low <= offset <= high:
                    range_text = f"the broker holds [{low}, {high})" if high >= 0 else "the table does not read that"
                    raise UsageError(
                        f"{topic}-{partition} at {offset}: {range_text}", hint="`--dry-run` shows a position"
                    )
        return offsets

    def consequences(self, current: Offsets, after: Offsets) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
        skipped, again = [], []
        for topic, partitions in sorted(after.items()):
            read_offsets = {} if topic in self._recreated else current.get(topic, {})
            for partition, offset in sorted(partitions.items()):
                read_until = read_offsets.get(partition, self.first[topic][partition] if current else offset)
                if offset > read_until:
                    skipped.append(Range(topic, partition, read_until, offset))
                elif offset < read_until:
                    again.append(Range(topic, partition, offset, read_until))
        return tuple(skipped), tuple(again)


def _choose_offsets(
    source: TopicsSource,
    table: str,
    log: DeltaLog,
    head: LedgerHead | None,
    admin: LogClient,
    broker: _BrokerOffsets,
    to: str,
) -> Offsets:
    if to == "earliest":
        return broker.first
    if to == "latest":
        return broker.end
    if to == "starting":
        return resolve_offsets(source, admin, broker.topics, table)
    if to == "ledger" and head is not None:
        return broker.nearest(position.parse(head.entry.after[0]))
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(log, int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table}`")
        return broker.nearest(position.parse(entry.after[0]))
    try:
        requested = broker.refuse_outside(position.parse(to))
    except (ValueError, AttributeError, TypeError):
        hint = f"write {OFFSET_TARGETS}" + ("" if head else "; there is no ledger to go on from")
        raise UsageError(f"--to {to} is not a position", hint=hint) from None
    # A partition that is not named keeps its position: left out, it would be read from its start.
    unchanged = broker.nearest(position.parse(head.entry.after[0])) if head else broker.first
    return {topic: unchanged.get(topic, {}) | requested.get(topic, {}) for topic in {**unchanged, **requested}}


# A table that depends on Spark's state can only start over: it reads everything again, into an empty table.


def plan_stream_reset(table: TablePlan, store: Store, to: str) -> ResetPlan:
    assert table.stream is not None
    if to != "starting":
        raise UsageError(
            f"--to {to}: what Spark keeps of {table.name} is of one position, and of no other",
            hint=f"`penstock checkpoints reset {table.name} --to starting` empties the table and starts over",
        )
    starts = [_start_position(table, source, store) for source in table.stream.inputs.values()]
    head = head_of(DeltaLog(store, table.uri, table.name))
    return ResetPlan(
        table=table,
        to=to,
        before=head.entry.after[0] if head else None,
        after=starts[0],
        starts_over=tuple(dict.fromkeys(source.table or source.uri for source in table.stream.inputs.values())),
    )


def _start_position(table: TablePlan, source: VersionsSource, store: Store) -> str:
    name = source.table or source.uri
    upstream = DeltaLog(source_store(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    return str(resolve_version(source.starting, identity, versions, upstream, table.name))


# Planning a reset, by the kind of the table's source.


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


def run_reset(spark: SparkSession, plan: Plan, reset_plan: ResetPlan) -> LedgerHead:
    """Refused while a runner works on the table. Idempotent in effect: killed anywhere, it can be run again."""
    table = reset_plan.table
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    source = Sources(lambda _: store, spark).open(table)
    with ExitStack() as locks:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(locks.enter_context(closing(JvmLock(spark, path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(locks.enter_context(closing(JvmLock(spark, path))), table.name)
        head = _open_generation(TableSession(spark, table, store, source, NoLock(), not plan.local), reset_plan)
        _make_checkpoint(spark, table, store, head)
        return head


def _open_generation(work: TableSession, reset_plan: ResetPlan) -> LedgerHead:
    """The caller holds the table's locks."""
    spark, table, store, source, log = work.spark, work.table, work.store, work.source, work.log
    head = head_of(log)
    if (head.entry.after[0] if head else None) != reset_plan.before:
        raise Conflict(
            "the table moved on since the reset was planned",
            where=table.name,
            hint="run the command again: it shows what it would skip or read again now",
        )
    refuse_open_work(table, head)
    start = source.start() if reset_plan.starts_over else Start((reset_plan.after,), reset_plan.ids)
    if head is not None:
        head, missing = _complete_last_batch(work, head)
        return open_generation(
            spark,
            log,
            head,
            table.uri,
            after=start.position,
            topics=start.ids,
            subscription=source.subscription,
            definition=table.definition,
            note="; ".join(filter(None, (reset_plan.note, missing))),
            emptied=bool(reset_plan.starts_over),
            at_least=_next_free_generation(work),
        )
    schema = resolve_table(spark, table, store, source).schema
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


def _next_free_generation(work: TableSession) -> int:
    """A generation later than those of the checkpoints, the quarantine and the tombstones: they are ahead of a table
    that was restored to an older state. Opened in one of their generations, it would still have them ahead if this is
    killed before they are removed, and rejected rows would seem to be in the quarantine."""
    table, store = work.table, work.store
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    quarantine_table = quarantine_of(table.name, table.uri)
    if (
        table.may_reject
        and (quarantine_head := head_of(DeltaLog(store, quarantine_table.uri, quarantine_table.table))) is not None
    ):
        generations.append(quarantine_head.entry.generation)
    return max(max(generations, default=0) + 1, next_generation(store, table))


def _complete_last_batch(work: TableSession, head: LedgerHead) -> tuple[LedgerHead, str | None]:
    """The head with the row counts of its last batch, which no other entry would have; and what may be missing, if that
    batch was cut off and cannot be read any more: a reset is the way on from there."""
    try:
        return complete_last(work, head), None
    except Exception as error:
        entry = head.entry
        why = error.message if isinstance(error, PenstockError) else " ".join(str(error).split())[:200]
        missing = f"the rejected rows of batch {entry.generation}.{entry.batch} may be missing in quarantine"
        return work.with_row_counts(head), f"{missing}: {why}"


def refuse_open_work(table: TablePlan, head: LedgerHead | None) -> None:
    """Terminal while a replay or a rewind is open: the table's position is not that of its rows."""
    for verb, find_pending in (("replay", pending_replay), ("rewind", pending_rewind)):
        if head is not None and find_pending(head.entry) is not None:
            raise Terminal(
                f"a {verb} of it was begun and is not done",
                where=table.name,
                hint=f"`penstock run` finishes it, `penstock {verb} {table.name} --abort` gives it up",
            )


def _make_checkpoint(spark: SparkSession, table: TablePlan, store: Store, head: LedgerHead) -> None:
    """Removes checkpoints of this and later generations first: those of a restored table are ahead of its ledger."""
    for name in store.names(table.checkpoints):
        if name.isdigit() and int(name) >= head.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")
    rebuild(spark, store, table, checkpoint_folder(table.checkpoints, head.entry), head.entry)
