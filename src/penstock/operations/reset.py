"""Reset: moves a table's position by hand, to one that its kind of source allows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import Conflict, PenstockError, TableChanged, Terminal, UsageError
from penstock.ledger import position
from penstock.ledger.checkpoint import checkpoint_folder, rebuild
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.generations import open_generation
from penstock.ledger.head import position_at, read_head
from penstock.ledger.position import VERSIONS, Range, Version, parse_version
from penstock.ledger.source import Start
from penstock.operations.heal import table_locks
from penstock.operations.prepare import create_table
from penstock.operations.quarantine_rows import quarantine_log
from penstock.operations.replay_plan import session_store
from penstock.operations.staleness import refuse_open_work
from penstock.operations.steps import MakeCheckpoint, OpenGeneration
from penstock.plan.sources import TopicsSource, VersionsSource, VersionStartPlan
from penstock.sources.delta_changes import oldest_unbroken, resolve_version, table_id
from penstock.sources.registry import open_client
from penstock.sources.topics import require_topics, resolve_offsets
from penstock.storage.locks import JvmLock, NoLock
from penstock.storage.stores import source_store
from penstock.tables.kinds import resolve_table
from penstock.tables.merge.tombstones import next_generation
from penstock.tables.session import TableSession, complete_last
from penstock.tables.stream import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets, TopicInfo
    from penstock.plan.model import Plan, TablePlan
    from penstock.sources.topics import LogClient
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class ResetPlan:
    """What a reset would do. `skipped` records never land; those in `read_again` are read a second time, so they are in
    the table twice unless its rows were removed; `dropped` topics no longer exist. For a Delta table upstream the
    ranges are versions."""

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
    return {
        "table": reset_plan.table.name,
        "to": reset_plan.to,
        "before": json.loads(reset_plan.before) if reset_plan.before else None,
        "after": json.loads(reset_plan.after),
        "skipped": list(map(asdict, reset_plan.skipped)),
        "again": list(map(asdict, reset_plan.read_again)),
        "dropped": list(reset_plan.dropped),
        "emptied": bool(reset_plan.starts_over),
        "steps": [step.describe() for step in reset_plan.steps],
    }


# Positions in a Delta table upstream: its versions.


VERSION_TARGETS = "earliest, latest, starting, ledger, version:N of this table, or source:N of the table that it reads"


def plan_delta_reset(table: TablePlan, store: Store, to: str) -> ResetPlan:
    source = table.versions
    assert source is not None
    upstream = _read_upstream(table, source, store)
    log = DeltaLog(store, table.uri, table.name)
    head = head_of(log)
    after = _choose_version(source, upstream, log, head, to)
    current = parse_version(head.entry.after[0]) if head else None
    skipped, again = _consequences(current, after)
    return ResetPlan(
        table=table,
        to=to,
        before=head.entry.after[0] if head else None,
        after=str(after),
        skipped=skipped,
        read_again=again,
        ids={source.label: upstream.identity},
    )


@dataclass(frozen=True)
class _Upstream:
    """The Delta table that a table reads, as it is now."""

    reader: str
    """The table that reads it."""
    log: DeltaLog
    versions: list[int]
    identity: str

    def resolve(self, starting: VersionStartPlan) -> Version:
        return resolve_version(starting, self.identity, self.versions, self.log, self.reader)

    def nearest(self, version: Version) -> Version:
        """The nearest position that exists: a recreated table is read from its start, versions that its log no longer
        has are skipped."""
        if version.table_id != self.identity or version.version > self.versions[-1] + 1:
            return Version(self.identity, self.versions[-1], snapshot=True)
        oldest = oldest_unbroken(self.versions)
        return version if version.snapshot or version.version >= oldest else Version(self.identity, oldest)


def _read_upstream(table: TablePlan, source: VersionsSource, store: Store) -> _Upstream:
    log = DeltaLog(source_store(source, store), source.uri, source.label)
    versions = log.versions()
    identity = table_id(log, versions)
    if identity is None:
        raise Terminal(f"the table {source.label} is not there", where=table.name, hint="put it back, or run it first")
    return _Upstream(table.name, log, versions, identity)


def _choose_version(
    source: VersionsSource, upstream: _Upstream, log: DeltaLog, head: LedgerHead | None, to: str
) -> Version:
    if to == "earliest":
        return upstream.resolve(VersionStartPlan("earliest"))
    if to == "latest":
        return upstream.resolve(VersionStartPlan("latest"))
    if to == "starting":
        return upstream.resolve(source.starting)
    if to.startswith("source:") and to[7:].isdigit():
        return upstream.resolve(VersionStartPlan("version", version=int(to[7:])))
    if (recorded := _recorded_position(log, head, to)) is not None:
        return upstream.nearest(parse_version(recorded))
    raise _no_position_error(to, VERSION_TARGETS, head)


def _recorded_position(log: DeltaLog, head: LedgerHead | None, to: str) -> str | None:
    """The position of `ledger` or `version:N` in the table's ledger; None for another `to`."""
    if to == "ledger" and head is not None:
        return head.entry.after[0]
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(log, int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {log.table}`")
        return entry.after[0]
    return None


def _no_position_error(to: str, targets: str, head: LedgerHead | None) -> UsageError:
    hint = f"write {targets}" + ("" if head else "; there is no ledger to continue from")
    return UsageError(f"--to {to} is not a position", hint=hint)


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
    if (recorded := _recorded_position(log, head, to)) is not None:
        return broker.nearest(position.parse(recorded))
    try:
        requested = broker.refuse_outside(position.parse(to))
    except (ValueError, AttributeError, TypeError):
        raise _no_position_error(to, OFFSET_TARGETS, head) from None
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
    sources = table.stream.inputs.values()
    starts = [_read_upstream(table, source, store).resolve(source.starting) for source in sources]
    head = head_of(DeltaLog(store, table.uri, table.name))
    return ResetPlan(
        table=table,
        to=to,
        before=head.entry.after[0] if head else None,
        after=str(starts[0]),
        starts_over=tuple(dict.fromkeys(source.label for source in sources)),
    )


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
    table, store = reset_plan.table, session_store(spark, plan)
    source = Sources(lambda _: store, spark).open(table)
    head: LedgerHead | None = None
    with table_locks(plan, table, partial(JvmLock, spark)):
        work = TableSession(spark, table, store, source, NoLock(), not plan.local)
        for step in reset_plan.steps:
            match step:
                case OpenGeneration():
                    head = _open_generation(work, reset_plan, step)
                case MakeCheckpoint():
                    assert head is not None
                    _make_checkpoint(spark, table, store, head)
    assert head is not None
    return head


def _open_generation(work: TableSession, reset_plan: ResetPlan, step: OpenGeneration) -> LedgerHead:
    """The caller holds the table's locks."""
    spark, table, store, source, log = work.spark, work.table, work.store, work.source, work.log
    head = head_of(log)
    if (head.entry.after[0] if head else None) != reset_plan.before:
        raise Conflict(
            "the table moved on since the reset was planned",
            where=table.name,
            hint="run the command again: it shows what it would skip or read again now",
        )
    if head is not None:
        refuse_open_work(table.name, head.entry, Terminal, "replay", "rewind")
    start = source.start() if step.emptied else Start(step.position, reset_plan.ids)
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
            emptied=step.emptied,
            at_least=_next_free_generation(work),
        )
    schema = resolve_table(spark, table, store, source).schema
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    return create_table(work, schema, start, generation=max(generations, default=0) + 1)


def _next_free_generation(work: TableSession) -> int:
    """A generation later than those of the checkpoints, the quarantine and the tombstones: they are ahead of a table
    that was restored to an older state. Opened in one of their generations, it would still have them ahead if this is
    killed before they are removed, and rejected rows would seem to be in the quarantine."""
    table, store = work.table, work.store
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    if table.may_reject and (quarantine_head := head_of(quarantine_log(table, store))) is not None:
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


def _make_checkpoint(spark: SparkSession, table: TablePlan, store: Store, head: LedgerHead) -> None:
    """Removes checkpoints of this and later generations first: those of a restored table are ahead of its ledger."""
    for name in store.names(table.checkpoints):
        if name.isdigit() and int(name) >= head.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")
    rebuild(spark, store, table, checkpoint_folder(table.checkpoints, head.entry), head.entry)
