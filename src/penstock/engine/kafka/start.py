"""Where a source begins, and whether what it was promised is still there."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.kafka.admin import Admin, Topic
from penstock.engine.protocol.position import Offsets, Range
from penstock.errors import DataLoss, Terminal, Transient
from penstock.plan.model import KafkaSource


def require_topics(source: KafkaSource, found: Mapping[str, Topic], table: str) -> None:
    """A pattern may match nothing yet; a named topic has to exist."""
    missing = [name for name in source.topics if name not in found]
    if missing:
        raise Transient(
            f"topic {', '.join(missing)} does not exist on {source.cluster.bootstrap}",
            where=table,
            hint="create it, or correct `from: {kafka: …}`",
        )


def resolve(source: KafkaSource, admin: Admin, topics: Mapping[str, Topic], table: str) -> Offsets:
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


def _explicit(source: KafkaSource, admin: Admin, topics: Mapping[str, Topic], table: str) -> Offsets:
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


def reads_committed(source: KafkaSource) -> bool:
    """Else the position may lie beyond what a reader of committed records sees, as long as a transaction is open."""
    return source.options.get("isolation.level") != "read_uncommitted"


def refuse_lost(
    position: Offsets,
    ids: Mapping[str, str],
    found: Mapping[str, Topic],
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
    topic: str, ids: Mapping[str, str], found: Mapping[str, Topic], position: Offsets, table: str
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
