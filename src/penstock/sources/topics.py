"""Topics as the source of a table, whatever system stores them: where it starts, what was lost, the records of a
replay. A kind of source with numbered records in partitions only has to implement TopicsKind."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import DataLoss, Terminal, Transient
from penstock.ledger import position
from penstock.ledger.position import Range
from penstock.ledger.source import Move, ReplayInput, Start
from penstock.ledger.spans import GapAnswer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets, TopicInfo
    from penstock.ledger.source import Position, ReplayRequest
    from penstock.ledger.spans import Spans
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import TopicsSource
    from penstock.sources.registry import SourceContext


class LogClient(Protocol):
    """Requests about topics. Each raises Transient while the system is unavailable, Terminal if it refuses the user."""

    def names(self) -> list[str]:
        """Every topic that this user may see."""

    def topics(self, source: TopicsSource) -> dict[str, TopicInfo]:
        """The topics that a source reads and that exist now."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Ids and partitions; a topic that does not exist is left out."""

    def earliest(self, topics: Mapping[str, TopicInfo]) -> Offsets:
        """The first offset of each partition that can still be read."""

    def latest(self, topics: Mapping[str, TopicInfo], *, committed: bool = True) -> Offsets:
        """The next offset of each partition."""

    def at_time(self, topics: Mapping[str, TopicInfo], timestamp_ms: int) -> Offsets:
        """The first record at or after a time; the end of the partition if there is none."""

    def newest_times(self, topics: Mapping[str, TopicInfo]) -> dict[str, dict[int, int]]:
        """By topic and partition: the latest time of any record, in ms; partitions without a record are left out."""

    def first_times(self, source: TopicsSource, at: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """The time of the first record at or after each offset, in ms; left out where it cannot be found in time."""

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """By topic: its settings under Kafka's names, `retention.ms` for example; empty where the system has none."""


class TopicsKind(ABC):
    """A kind of source that is a log: topics with partitions whose records are numbered."""

    @abstractmethod
    def client(self, source: TopicsSource, *, timeout: float) -> LogClient:
        """`timeout` limits each request, in seconds."""

    @abstractmethod
    def stream(self, spark: SparkSession, source: TopicsSource, table: str) -> DataFrame:
        """The streaming DataFrame, with the columns of Spark's Kafka source. It must fail rather than skip records."""

    @abstractmethod
    def records(self, spark: SparkSession, source: TopicsSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
        """The records between two positions, as a batch."""

    def explain_gaps(
        self, source: TopicsSource, gaps: Mapping[tuple[str, int], Spans], progress: Callable[[float], None]
    ) -> dict[tuple[str, int], GapAnswer]:
        """Whether there are records at offsets that a table lacks, by topic and partition; all of them lie within what
        the source holds now. Asked only if the source `leaves_gaps`. A kind that cannot tell leaves them unverified."""
        reason = f"a source of the kind {source.kind} does not tell which of its offsets have no record"
        return {key: GapAnswer(unverifiable=spans, reason=reason) for key, spans in gaps.items()}

    def open(self, table: TablePlan, context: SourceContext) -> TopicsReader:
        source = table.topics
        assert source is not None
        return TopicsReader(self, source, context.client(source), table.name)


# Where a table starts, and whether the records that it has not read yet still exist.


def require_topics(source: TopicsSource, topics: Mapping[str, TopicInfo], table: str) -> None:
    """A pattern may match nothing yet; a named topic has to exist."""
    missing = [name for name in source.topics if name not in topics]
    if missing:
        raise Transient(
            f"topic {', '.join(missing)} does not exist on {source.address}",
            where=table,
            hint="create it, or correct `from: {kafka: …}`",
        )


def resolve_offsets(source: TopicsSource, admin: LogClient, topics: Mapping[str, TopicInfo], table: str) -> Offsets:
    """`starting` as offsets, for topics without a position: resolved once, from then on in the ledger."""
    starting = source.starting
    if starting.kind == "earliest":
        return admin.earliest(topics)
    if starting.kind == "latest":
        return admin.latest(topics, committed=source.reads_committed)
    if starting.kind == "timestamp":
        assert starting.timestamp_ms is not None
        return admin.at_time(topics, starting.timestamp_ms)
    return _configured_offsets(source, admin, topics, table)


def _configured_offsets(source: TopicsSource, admin: LogClient, topics: Mapping[str, TopicInfo], table: str) -> Offsets:
    first, end = admin.earliest(topics), admin.latest(topics, committed=source.reads_committed)
    offsets: Offsets = {}
    for topic, info in topics.items():
        configured = source.starting.offsets.get(topic, {})
        unknown = sorted(set(configured) - set(info.partitions))
        missing = sorted(set(info.partitions) - set(configured))
        if unknown or missing:
            raise Terminal(
                f"`starting: offsets` of {topic} does not fit its {len(info.partitions)} partitions: "
                + (f"no such partition {unknown}" if unknown else f"nothing said of partition {missing}"),
                where=table,
                hint="name every partition once; -2 stands for earliest, -1 for latest",
            )
        for partition, offset in configured.items():
            low, high = first[topic][partition], end[topic][partition]
            offset = {-2: low, -1: high}.get(offset, offset)
            if not low <= offset <= high:
                raise Terminal(
                    f"`starting: offsets` of {topic}-{partition} is {offset}; the broker holds [{low}, {high})",
                    where=table,
                    hint=f"write an offset from {low} to {high}, or -2 for earliest",
                )
            offsets.setdefault(topic, {})[partition] = offset
    return offsets


def refuse_lost(
    position: Offsets,
    ids: Mapping[str, str],
    topics: Mapping[str, TopicInfo],
    admin: LogClient,
    table: str,
    *,
    committed: bool = True,
) -> None:
    """Raises DataLoss if the broker no longer has the records after the position."""
    for topic in sorted(position):
        refuse_recreated(topic, ids, topics, position, table)
    first, end = admin.earliest(topics), admin.latest(topics, committed=committed)
    lost, beyond = [], []
    for topic, partitions in sorted(first.items()):  # new partitions are read from 0
        for partition in sorted(set(partitions) - set(position.get(topic, {}))):
            if partitions[partition] > 0:
                lost.append(Range(topic, partition, 0, partitions[partition]))
    for topic, partitions in sorted(position.items()):
        for partition, offset in sorted(partitions.items()):
            if partition not in first[topic]:
                beyond.append(f"{topic}-{partition} no longer exists")
            elif offset < first[topic][partition]:
                lost.append(Range(topic, partition, offset, first[topic][partition]))
            elif offset > end[topic][partition]:
                beyond.append(f"{topic}-{partition} ends at {end[topic][partition]}, the table is at {offset}")
    if lost:
        count = sum(lost_range.end - lost_range.start for lost_range in lost)
        raise DataLoss(
            f"{count} offsets were removed from Kafka before they were read: {', '.join(map(str, lost))}",
            where=table,
            hint="to accept the loss and continue with what is there: "
            f"`penstock checkpoints reset {table} --to ledger`",
        )
    if beyond:
        raise DataLoss(
            f"the topic lost records that the table has already read: {'; '.join(beyond)}",
            where=table,
            hint=f"to read what the topic holds now from its start: `penstock checkpoints reset {table} --to ledger`",
        )


def refuse_recreated(
    topic: str, ids: Mapping[str, str], topics: Mapping[str, TopicInfo], position: Offsets, table: str
) -> None:
    """Raises DataLoss for a topic that was deleted, or recreated: its offsets mean other records now."""
    if topic not in topics:
        raise DataLoss(
            f"topic {topic} no longer exists; the table had read it up to {position.get(topic)}",
            where=table,
            hint="take it out of `from` if that is meant; with a pattern, accept that it is gone by "
            f"`penstock checkpoints reset {table} --to ledger`",
        )
    if topic in ids and ids[topic] != topics[topic].id:
        raise DataLoss(
            f"topic {topic} was deleted and recreated (id {ids[topic]}, now {topics[topic].id}): "
            f"records after {position.get(topic)} of the old topic can no longer be read",
            where=table,
            hint="to accept that and read the new topic from its start: "
            f"`penstock checkpoints reset {table} --to ledger`",
        )


def first_readable_offsets(began: Offsets, after: Offsets, earliest: Offsets) -> Offsets:
    """The first readable offset of each partition: where the table began, or where the broker's records start."""
    return {
        topic: {
            partition: min(end, max(began.get(topic, {}).get(partition, 0), earliest.get(topic, {}).get(partition, 0)))
            for partition, end in partitions.items()
        }
        for topic, partitions in after.items()
    }


def count_lost(began: Offsets, first_readable: Offsets) -> int:
    """Offsets that the table has read and the broker no longer has."""
    return sum(
        max(0, offset - began.get(topic, {}).get(partition, 0))
        for topic, partitions in first_readable.items()
        for partition, offset in partitions.items()
    )


class TopicsReader:
    def __init__(self, kind: TopicsKind, source: TopicsSource, client: LogClient, table: str) -> None:
        self._kind = kind
        self._source = source
        self._admin = client
        self._table = table
        self._topics = client.topics(source)
        self._known_ids: dict[str, str] = {}

    @property
    def subscription(self) -> dict[str, Any]:
        return self._source.subscription(self._table)

    def start(self) -> Start:
        require_topics(self._source, self._topics, self._table)
        offsets = resolve_offsets(self._source, self._admin, self._topics, self._table)
        return Start((position.dump(offsets),), {name: topic.id for name, topic in self._topics.items()})

    def follow(self, entry: Entry) -> Move | None:
        """Topics that are new in the project start by `starting`; those removed from it leave the position and are
        parked, so that they continue there if they return. Topics that newly match an unchanged pattern are left to
        Spark, which reads them from their first record."""
        if dict(entry.subscription) == self.subscription:
            return None
        topics = self._topics
        require_topics(self._source, topics, self._table)
        offsets = position.parse(entry.after[0])
        removed = sorted(set(offsets) - set(topics))
        parked = {
            **entry.parked,
            **{name: {"id": entry.topics.get(name), "offsets": offsets[name]} for name in removed},
        }
        returning = {name: parked.pop(name) for name in topics if name in parked}
        new = {name: topic for name, topic in topics.items() if name not in offsets and name not in returning}
        after = {name: partitions for name, partitions in offsets.items() if name not in removed}
        after |= {
            name: {int(partition): offset for partition, offset in previous["offsets"].items()}
            for name, previous in returning.items()
        }
        after |= resolve_offsets(self._source, self._admin, new, self._table)
        ids = {**entry.topics, **{name: previous["id"] for name, previous in returning.items() if previous["id"]}}
        changes = [
            f"new topics {', '.join(sorted(new))}" if new else "",
            f"read again from where they were left: {', '.join(sorted(returning))}" if returning else "",
            f"no longer read: {', '.join(removed)}" if removed else "",
        ]
        return Move(
            position=(position.dump(after),),
            ids={name: ids.get(name, topics[name].id) for name in after},
            note="; ".join(filter(None, changes)) or "the subscription was written in another way",
            parked=parked,
        )

    def refuse_lost(self, entry: Entry) -> None:
        refuse_lost(
            position.parse(entry.after[0]),
            entry.topics,
            self._topics,
            self._admin,
            self._table,
            committed=self._source.reads_committed,
        )
        self._known_ids = dict(entry.topics)

    def ids(self, after: Position) -> Mapping[str, str]:
        """Refuses recreated topics: Spark's connector never checks topic ids, and a recreated topic that has outgrown
        the old one would silently lose its first records."""
        offsets = position.parse(after[0])
        topics = self._admin.describe(offsets)
        for topic in offsets:
            refuse_recreated(topic, self._known_ids, topics, offsets, self._table)
            self._known_ids[topic] = topics[topic].id
        return {topic: self._known_ids[topic] for topic in offsets}

    def stream(self, spark: SparkSession) -> DataFrame:
        return self._kind.stream(spark, self._source, self._table)

    def replay_input(self, spark: SparkSession, request: ReplayRequest) -> ReplayInput:
        end, began = position.parse(request.after[0]), position.parse(request.began[0])
        topics = self._admin.describe(end)
        for topic in end:
            refuse_recreated(topic, request.ids, topics, end, self._table)
        first_readable = first_readable_offsets(
            began, end, self._admin.earliest({topic: topics[topic] for topic in end})
        )
        left_out = count_lost(began, first_readable) or not set(began) <= set(end)
        rows = self._kind.records(spark, self._source, self._table, first_readable, end)
        return ReplayInput(rows, first_readable if left_out else None)

    def size(self, before: Position, after: Position) -> int:
        return sum(position.size(start, end) for start, end in zip(before, after, strict=True))

    def remarks(self, before: Position, after: Position) -> tuple[str, ...]:
        return ()
