"""Positions in Kafka topics: what the broker holds decides which can be chosen."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.kafka.admin import Admin, Topic
from penstock.engine.kafka.start import reads_committed, require_topics, resolve
from penstock.engine.protocol import position
from penstock.engine.protocol.ledger import Tail, position_at
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.position import Offsets, Range
from penstock.engine.store import Store
from penstock.errors import UsageError
from penstock.ops.reset.model import Reset, tail_of
from penstock.plan.model import KafkaSource, TablePlan

TARGETS = "earliest, latest, starting, ledger, version:N, or offsets as JSON"


def plan_kafka_reset(table: TablePlan, store: Store, admin: Admin, to: str, only: tuple[str, ...] = ()) -> Reset:
    """`only` limits the change to some topics; the others keep their position."""
    source = table.source
    assert isinstance(source, KafkaSource)
    log = DeltaLog(store, table.uri, table.name)
    tail = tail_of(log)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    unknown = sorted(set(only) - set(topics))
    if unknown:
        raise UsageError(f"the table does not read topic {', '.join(unknown)}", hint=f"it reads {', '.join(topics)}")
    held = _Held(admin, topics, tail.entry.topics if tail else {}, committed=reads_committed(source))
    now = position.parse(tail.entry.after[0]) if tail else {}
    chosen = _chosen(source, table.name, log, tail, admin, held, to)
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
        ids={name: topics[name].id for name in after},
    )


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


def _chosen(
    source: KafkaSource, table: str, log: DeltaLog, tail: Tail | None, admin: Admin, held: _Held, to: str
) -> Offsets:
    if to == "earliest":
        return held.first
    if to == "latest":
        return held.end
    if to == "starting":
        return resolve(source, admin, held.topics, table)
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
        hint = f"write {TARGETS}" + ("" if tail else "; there is no ledger to go on from")
        raise UsageError(f"--to {to} is no position", hint=hint) from None
    # A partition that is not named keeps its place: left out, it would be read from its start.
    kept = held.nearest(position.parse(tail.entry.after[0])) if tail else held.first
    return {topic: kept.get(topic, {}) | named.get(topic, {}) for topic in {**kept, **named}}
