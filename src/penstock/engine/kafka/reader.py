"""Topics as a source of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.covered import Asked, Covered
from penstock.engine.kafka.admin import Admin
from penstock.engine.kafka.covered import held_from, missing, records
from penstock.engine.kafka.source import read_stream
from penstock.engine.kafka.start import reads_committed, refuse_lost, refuse_recreated, require_topics, resolve
from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.source import Move, Position, Start
from penstock.engine.subscription import of_topics
from penstock.plan.model import KafkaSource


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
        offsets = resolve(self._source, self._admin, self._topics, self._table)
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
        after |= resolve(self._source, self._admin, new, self._table)
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

    def covered(self, spark: SparkSession, asked: Asked) -> Covered:
        end, began = position.parse(asked.after[0]), position.parse(asked.began[0])
        found = self._admin.describe(end)
        for topic in end:
            refuse_recreated(topic, asked.ids, found, end, self._table)
        held = held_from(began, end, self._admin.earliest({topic: found[topic] for topic in end}))
        left_out = missing(began, held) or not set(began) <= set(end)
        return Covered(records(spark, self._source, self._table, held, end), held if left_out else None)

    def size(self, before: Position, after: Position) -> int:
        return sum(position.size(one, other) for one, other in zip(before, after, strict=True))

    def remarks(self, before: Position, after: Position) -> tuple[str, ...]:
        return ()
