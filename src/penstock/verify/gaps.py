"""Offsets that a table lacks: the broker tells those that Kafka left empty from records that were lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.kafka.client import kafka_source, librdkafka
from penstock.verify.coordinates import Spans

if TYPE_CHECKING:
    from penstock.ledger.position import Offsets
    from penstock.operations.broker import TopicOffsets
    from penstock.plan.sources import KafkaSource, TopicsSource
    from penstock.verify.coordinates import Key
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.report import Partition, Report

# Offsets that the table lacks, looked up at the broker: is there a record, or did Kafka itself leave the offset
# empty?
#
# Transaction markers, aborted transactions and compaction leave offsets without a record; a transactional topic has
# such a gap for every transaction. So a partition is read forward through neighbouring gaps, and only long stretches
# between two gaps are jumped over.


JUMP = 50_000
"""Records that are rather read than jumped over: a jump costs a round trip and throws away what was fetched ahead."""
PATIENCE = 30.0
"""Seconds without a word from the broker until the remaining gaps count as unverifiable."""
Progress = Callable[[float], None]


@dataclass
class GapAnswer:
    """What became of one partition's gaps."""

    lost: Spans = field(default_factory=Spans)
    """The broker has a record there."""
    empty: Spans = field(default_factory=Spans)
    """Kafka's own: the broker holds this range and has no record there."""
    unverifiable: Spans = field(default_factory=Spans)
    reason: str | None = None


def isolation(source: KafkaSource) -> str:
    return {**source.cluster.options, **source.options}.get("isolation.level", "read_committed")


def look_up(
    source: KafkaSource, gaps: Mapping[Key, Spans], progress: Progress = lambda _: None, *, patience: float = PATIENCE
) -> dict[Key, GapAnswer]:
    """Every gap must lie within what the broker holds now."""
    open_gaps = {key: _Gaps(key, spans) for key, spans in gaps.items() if spans}
    if not open_gaps:
        return {}
    settings: dict[str, Any] = {
        **librdkafka(source.cluster, source.options),
        "isolation.level": isolation(source),
        "group.id": "penstock-verify",  # the client demands one; it is never joined, and nothing is committed
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",  # an offset that has aged out meanwhile must be said, not jumped over
        "enable.partition.eof": "true",
        # Little is fetched ahead, and fetching goes on at once: the defaults wait a second after every jump.
        "queued.min.messages": "10000",
        "queued.max.messages.kbytes": "16384",
        "fetch.queue.backoff.ms": "10",
        "log_level": "0",
    }
    try:
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(*key, one.at) for key, one in open_gaps.items()])
            _read(consumer, open_gaps, progress, patience)
        finally:
            consumer.close()
    except KafkaException as error:
        for one in open_gaps.values():
            if not one.done:
                one.give_up(str(error))
    return {key: one.answer() for key, one in open_gaps.items()}


def _read(consumer: Any, gaps: Mapping[Key, _Gaps], progress: Progress, patience: float) -> None:
    total = sum(one.total for one in gaps.values())
    waiting = set(gaps)
    heard = time.monotonic()
    while waiting:
        messages = consumer.consume(num_messages=500, timeout=0.1)
        if any(message.error() is None or message.error().code() == KafkaError._PARTITION_EOF for message in messages):
            heard = time.monotonic()
        elif time.monotonic() - heard > patience:
            for key in waiting:
                gaps[key].give_up(f"the broker gave no answer for {patience:.0f} s")
            return
        for message in messages:
            key = (message.topic(), message.partition())
            if key not in waiting:
                continue
            one = gaps[key]
            error = message.error()
            if error is None:
                one.record_at(message.offset())
            elif error.code() == KafkaError._PARTITION_EOF:
                one.end_at(message.offset())
            else:
                one.give_up(error.str())
            if one.done:
                waiting.discard(key)
                consumer.incremental_unassign([TopicPartition(*key)])
            elif one.far:
                one.jump()
                try:
                    consumer.seek(TopicPartition(*key, one.at))
                except KafkaException as cause:
                    one.give_up(str(cause))
                    waiting.discard(key)
        progress(sum(one.settled for one in gaps.values()) / max(1, total))


class _Gaps:
    """The gaps of one partition, settled from left to right as its records come by."""

    def __init__(self, key: Key, spans: Spans) -> None:
        self.key = key
        self._spans = spans
        self._rest: Iterator[tuple[int, int]] = iter(spans)
        self._gap: tuple[int, int] | None = next(self._rest)
        self.at = self._gap[0]
        """The next offset that the broker has still to show."""
        self._found = GapAnswer()
        self.total = spans.size
        self.settled = 0

    @property
    def done(self) -> bool:
        return self._gap is None

    @property
    def far(self) -> bool:
        return self._gap is not None and self._gap[0] - self.at > JUMP

    def jump(self) -> None:
        if self._gap is not None:
            self.at = self._gap[0]

    def record_at(self, offset: int) -> None:
        """Records come in their order, so everything between the last one and this one is empty. What was still under
        way from before a jump lies before the next gap and changes nothing."""
        self._seen_up_to(offset)
        if self._gap is not None and self._gap[0] <= offset < self._gap[1]:
            self._found.lost.add(offset, offset + 1)
        self.at = max(self.at, offset + 1)
        self._seen_up_to(offset + 1)

    def end_at(self, offset: int) -> None:
        """The partition ends here: no record comes any more."""
        self._seen_up_to(offset)
        if self._gap is not None:
            self.give_up(f"the broker's partition ends at {offset}")

    def give_up(self, reason: str) -> None:
        gap, self._gap = self._gap, None
        while gap is not None:
            self._found.unverifiable.add(max(gap[0], min(self.at, gap[1])), gap[1])
            gap = next(self._rest, None)
        self._found.reason = reason

    def answer(self) -> GapAnswer:
        found = self._found
        found.empty = self._spans - found.lost - found.unverifiable
        return found

    def _seen_up_to(self, offset: int) -> None:
        while self._gap is not None and self._gap[1] <= offset:
            self.settled += self._gap[1] - self._gap[0]
            self._gap = next(self._rest, None)


# Offsets that a table lacks: Kafka tells those that it left empty itself from records that were lost.


def explain_gaps(
    source: TopicsSource, report: Report, chain: Chain, held: TopicOffsets, progress: Callable[[float], None]
) -> None:
    askable: dict[Key, Spans] = {}
    for one in report.partitions:
        if one.difference.gaps:
            askable[one.key] = _askable(one, chain, held)
    answers: Mapping[Key, GapAnswer] = {}
    if not source.leaves_gaps:
        answers = {key: GapAnswer(lost=spans) for key, spans in askable.items()}
    elif any(askable.values()):
        answers = look_up(kafka_source(source), askable, progress)
    for one in report.partitions:
        answer = answers.get(one.key, GapAnswer())
        one.lost, one.empty = answer.lost, answer.empty
        if answer.unverifiable:
            one.unverifiable = one.unverifiable | answer.unverifiable
            one.reasons.append(answer.reason or "the broker gave no answer")
    _unclear(report, chain)


def _askable(one: Partition, chain: Chain, held: TopicOffsets) -> Spans:
    """The part of a partition's gaps that the broker still holds; the rest is noted as unverifiable, with why."""

    def cannot(spans: Spans, reason: str) -> None:
        if spans:
            one.unverifiable = one.unverifiable | spans
            one.reasons.append(reason)

    gaps, (topic, partition) = one.difference.gaps, one.key
    if held.problem:
        cannot(gaps, held.problem)
        return Spans()
    topics = held.topics
    if topic not in topics or partition not in topics[topic].partitions:
        cannot(gaps, f"{topic}-{partition} does not exist at the broker")
        return Spans()
    under = chain.expected.under.get(one.key, {})
    now = under.get(topics[topic].id, Spans()) | under.get("", Spans())
    cannot(gaps - now, f"they were read from an earlier topic {topic}, which was deleted")
    earliest, latest = _held(held.earliest, one.key), _held(held.latest, one.key)
    cannot(gaps & now & Spans([(0, earliest)]), f"the broker's first offset is {earliest}: retention took them")
    cannot(gaps & now & Spans([(latest, max(latest, one.expected.end))]), f"the broker's partition ends at {latest}")
    return gaps & now & Spans([(earliest, latest)])


def _held(offsets: Offsets, key: Key) -> int:
    return offsets[key[0]][key[1]]


def _unclear(report: Report, chain: Chain) -> None:
    """Offsets that an accepted change may have removed are no proof of a loss."""
    for why, among in chain.unclear:
        for one in report.partitions:
            doubtful = one.lost & among.get(one.key, Spans())
            if doubtful:
                one.lost, one.unverifiable = one.lost - doubtful, one.unverifiable | doubtful
                one.reasons.append(why)
