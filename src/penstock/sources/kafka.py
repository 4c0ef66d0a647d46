"""Kafka topics as the source of a table: where it starts, the stream, and the records of a replay."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaClass

from penstock.errors import DataLoss, Terminal, Transient
from penstock.kafka.client import java, reads_committed
from penstock.ledger import position
from penstock.ledger.position import Range
from penstock.ledger.source import Move, ReplayInput, Start, of_topics
from penstock.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.kafka.client import Admin, TopicInfo
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets
    from penstock.ledger.source import Position, ReplayRequest
    from penstock.plan.model import KafkaSource

# A table's Kafka source as Spark reads it.


_OWN, _SPARKS = "penstock.kafka.Records", "kafka"


def record_format(spark: SparkSession) -> str:
    """Spark's Kafka source, as Penstock's own jar reads it: Spark's own stops for ever at a record whose timestamp, a
    number of its producer's, it cannot hold. A session that somebody else has made may lack the jar."""
    jvm = jvm_of(spark)
    return _OWN if isinstance(jvm.penstock.kafka.Records, JavaClass) else _SPARKS


def options(source: KafkaSource, table: str) -> dict[str, str]:
    found = {f"kafka.{name}": value for name, value in java(source.cluster, source.options).items()}
    if source.pattern is not None:
        # Anchored: Spark looks for a match anywhere in a name, we and everybody else mean the whole name.
        found["subscribePattern"] = f"^(?:{source.pattern})$"
    else:
        found["subscribe"] = ",".join(source.topics)
    if source.max_per_trigger is not None:
        found["maxOffsetsPerTrigger"] = str(source.max_per_trigger)
    if source.min_partitions is not None:
        found["minPartitions"] = str(source.min_partitions)
    return found | {
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "groupIdPrefix": f"penstock-{table}",
        # Never used: every start is from a seeded checkpoint. If one were not, this reads too much rather than too
        # little, and the chain check refuses it.
        "startingOffsets": "earliest",
    }


def read_stream(spark: SparkSession, source: KafkaSource, table: str) -> DataFrame:
    return spark.readStream.format(record_format(spark)).options(**options(source, table)).load()


# The records of topics between two positions, as rows for a batch: as far as the broker still has them.


_OF_STREAMS = ("subscribe", "subscribePattern", "maxOffsetsPerTrigger")


def held_from(began: Offsets, after: Offsets, earliest: Offsets) -> Offsets:
    """The first offset of each partition that can be read: where the table began, or where the broker begins."""
    return {
        topic: {
            partition: min(end, max(began.get(topic, {}).get(partition, 0), earliest.get(topic, {}).get(partition, 0)))
            for partition, end in partitions.items()
        }
        for topic, partitions in after.items()
    }


def missing(began: Offsets, held: Offsets) -> int:
    """Offsets that the table has read and the broker no longer has."""
    return sum(
        max(0, offset - began.get(topic, {}).get(partition, 0))
        for topic, partitions in held.items()
        for partition, offset in partitions.items()
    )


def records(spark: SparkSession, source: KafkaSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
    asked = {name: value for name, value in options(source, table).items() if name not in _OF_STREAMS}
    asked |= {
        "assign": json.dumps({topic: sorted(partitions) for topic, partitions in end.items()}),
        "startingOffsets": _offsets(first),
        "endingOffsets": _offsets(end),
    }
    return spark.read.format(record_format(spark)).options(**asked).load()


def _offsets(offsets: Offsets) -> str:
    return json.dumps({topic: {str(p): o for p, o in sorted(parts.items())} for topic, parts in offsets.items()})


# Where a source begins, and whether what it was promised is still there.


def require_topics(source: KafkaSource, found: Mapping[str, TopicInfo], table: str) -> None:
    """A pattern may match nothing yet; a named topic has to exist."""
    missing = [name for name in source.topics if name not in found]
    if missing:
        raise Transient(
            f"topic {', '.join(missing)} does not exist on {source.cluster.bootstrap}",
            where=table,
            hint="create it, or correct `from: {kafka: …}`",
        )


def resolve_offsets(source: KafkaSource, admin: Admin, topics: Mapping[str, TopicInfo], table: str) -> Offsets:
    """`starting` as offsets, for topics that have no position yet: resolved once, then in the ledger."""
    starting = source.starting
    if starting.kind == "earliest":
        return admin.earliest(topics)
    if starting.kind == "latest":
        return admin.latest(topics, committed=reads_committed(source))
    if starting.kind == "timestamp":
        assert starting.timestamp_ms is not None
        return admin.at_time(topics, starting.timestamp_ms)
    return _explicit(source, admin, topics, table)


def _explicit(source: KafkaSource, admin: Admin, topics: Mapping[str, TopicInfo], table: str) -> Offsets:
    first, end = admin.earliest(topics), admin.latest(topics, committed=reads_committed(source))
    found: Offsets = {}
    for topic, described in topics.items():
        given = source.starting.offsets.get(topic, {})
        unknown = sorted(set(given) - set(described.partitions))
        missing = sorted(set(described.partitions) - set(given))
        if unknown or missing:
            raise Terminal(
                f"`starting: offsets` of {topic} does not fit its {len(described.partitions)} partitions: "
                + (f"no such partition {unknown}" if unknown else f"nothing said of partition {missing}"),
                where=table,
                hint="name every partition once; -2 stands for earliest, -1 for latest",
            )
        for partition, offset in given.items():
            low, high = first[topic][partition], end[topic][partition]
            offset = {-2: low, -1: high}.get(offset, offset)
            if not low <= offset <= high:
                raise Terminal(
                    f"`starting: offsets` of {topic}-{partition} is {offset}; the broker holds [{low}, {high})",
                    where=table,
                    hint=f"write an offset from {low} to {high}, or -2 for earliest",
                )
            found.setdefault(topic, {})[partition] = offset
    return found


def refuse_lost(
    position: Offsets,
    ids: Mapping[str, str],
    found: Mapping[str, TopicInfo],
    admin: Admin,
    table: str,
    *,
    committed: bool = True,
) -> None:
    """Raises DataLoss where the broker no longer has what comes after the position."""
    for topic in sorted(position):
        refuse_recreated(topic, ids, found, position, table)
    first, end = admin.earliest(found), admin.latest(found, committed=committed)
    lost, beyond = [], []
    for topic, partitions in sorted(first.items()):  # partitions that are new to us are read from 0
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
        count = sum(r.end - r.start for r in lost)
        raise DataLoss(
            f"{count} offsets were removed from Kafka before they were read: {', '.join(map(str, lost))}",
            where=table,
            hint=f"to accept the loss and go on with what is there: `penstock checkpoints reset {table} --to ledger`",
        )
    if beyond:
        raise DataLoss(
            f"the topic lost records that the table has already read: {'; '.join(beyond)}",
            where=table,
            hint=f"to read what the topic holds now from its start: `penstock checkpoints reset {table} --to ledger`",
        )


def refuse_recreated(
    topic: str, ids: Mapping[str, str], found: Mapping[str, TopicInfo], position: Offsets, table: str
) -> None:
    """A topic that is gone, or was deleted and made again: its offsets mean other records now."""
    if topic not in found:
        raise DataLoss(
            f"topic {topic} no longer exists; the table had read it up to {position.get(topic)}",
            where=table,
            hint="take it out of `from` if that is meant; with a pattern, accept that it is gone by "
            f"`penstock checkpoints reset {table} --to ledger`",
        )
    if topic in ids and ids[topic] != found[topic].id:
        raise DataLoss(
            f"topic {topic} was deleted and made again (id {ids[topic]}, now {found[topic].id}): "
            f"records after {position.get(topic)} of the old topic can no longer be read",
            where=table,
            hint="to accept that and read the new topic from its start: "
            f"`penstock checkpoints reset {table} --to ledger`",
        )


# Topics as a source of a table.


class KafkaReader:
    def __init__(self, source: KafkaSource, admin: Admin, table: str) -> None:
        self._source = source
        self._admin = admin
        self._table = table
        self._topics = admin.topics(source)
        self._known: dict[str, str] = {}

    @property
    def subscription(self) -> dict[str, Any]:
        return of_topics(self._source)

    def start(self) -> Start:
        require_topics(self._source, self._topics, self._table)
        offsets = resolve_offsets(self._source, self._admin, self._topics, self._table)
        return Start((position.dump(offsets),), {name: topic.id for name, topic in self._topics.items()})

    def follow(self, entry: Entry) -> Move | None:
        """Topics newly named in the project begin by `starting`; those taken out of it leave the position and are
        remembered, so that they go on there if they come back. Topics that newly match an unchanged pattern are left to
        Spark, which reads them from their first record."""
        if dict(entry.subscription) == self.subscription:
            return None
        topics = self._topics
        require_topics(self._source, topics, self._table)
        offsets = position.parse(entry.after[0])
        gone = sorted(set(offsets) - set(topics))
        parked = {**entry.parked, **{name: {"id": entry.topics.get(name), "offsets": offsets[name]} for name in gone}}
        back = {name: parked.pop(name) for name in topics if name in parked}
        new = {name: topic for name, topic in topics.items() if name not in offsets and name not in back}
        after = {name: parts for name, parts in offsets.items() if name not in gone}
        after |= {name: {int(p): o for p, o in was["offsets"].items()} for name, was in back.items()}
        after |= resolve_offsets(self._source, self._admin, new, self._table)
        ids = {**entry.topics, **{name: was["id"] for name, was in back.items() if was["id"]}}
        said = [
            f"new topics {', '.join(sorted(new))}" if new else "",
            f"read again from where they were left: {', '.join(sorted(back))}" if back else "",
            f"no longer read: {', '.join(gone)}" if gone else "",
        ]
        return Move(
            position=(position.dump(after),),
            ids={name: ids.get(name, topics[name].id) for name in after},
            note="; ".join(filter(None, said)) or "the subscription was written in another way",
            parked=parked,
        )

    def refuse_lost(self, entry: Entry) -> None:
        refuse_lost(
            position.parse(entry.after[0]),
            entry.topics,
            self._topics,
            self._admin,
            self._table,
            committed=reads_committed(self._source),
        )
        self._known = dict(entry.topics)

    def ids(self, after: Position) -> Mapping[str, str]:
        """Spark's connector never looks at topic ids, and a topic made again that has outgrown the old one would lose
        its first records without a word."""
        offsets = position.parse(after[0])
        found = self._admin.describe(offsets)
        for topic in offsets:
            refuse_recreated(topic, self._known, found, offsets, self._table)
            self._known[topic] = found[topic].id
        return {topic: self._known[topic] for topic in offsets}

    def stream(self, spark: SparkSession) -> DataFrame:
        return read_stream(spark, self._source, self._table)

    def covered(self, spark: SparkSession, asked: ReplayRequest) -> ReplayInput:
        end, began = position.parse(asked.after[0]), position.parse(asked.began[0])
        found = self._admin.describe(end)
        for topic in end:
            refuse_recreated(topic, asked.ids, found, end, self._table)
        held = held_from(began, end, self._admin.earliest({topic: found[topic] for topic in end}))
        left_out = missing(began, held) or not set(began) <= set(end)
        return ReplayInput(records(spark, self._source, self._table, held, end), held if left_out else None)

    def size(self, before: Position, after: Position) -> int:
        return sum(position.size(one, other) for one, other in zip(before, after, strict=True))

    def remarks(self, before: Position, after: Position) -> tuple[str, ...]:
        return ()


# Kafka as a source: client properties, what the broker knows, what Spark is told.
