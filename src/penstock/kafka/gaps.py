"""Asks the broker about offsets that a table lacks: did Kafka leave them empty, or were records lost?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.kafka.client import librdkafka
from penstock.ledger.spans import GapAnswer, Spans

if TYPE_CHECKING:
    from penstock.kafka.client import Place
    from penstock.plan.sources import KafkaSource

# Transaction markers, aborted transactions and compaction leave offsets without a record; a transactional topic has
# such a gap for every transaction. So a partition is read forward through neighbouring gaps, and only long stretches
# between two gaps are jumped over.


JUMP = 50_000
"""Records that are read rather than jumped over: a jump costs a round trip and discards what was fetched ahead."""
PATIENCE = 30.0
"""Seconds without an answer from the broker until the remaining gaps count as unverifiable."""
Progress = Callable[[float], None]


def isolation(source: KafkaSource) -> str:
    return {**source.cluster.options, **source.options}.get("isolation.level", "read_committed")


def look_up(
    source: KafkaSource, gaps: Mapping[Place, Spans], progress: Progress = lambda _: None, *, patience: float = PATIENCE
) -> dict[Place, GapAnswer]:
    """Every gap must lie within what the broker holds now."""
    open_gaps = {key: _PartitionGaps(key, spans) for key, spans in gaps.items() if spans}
    if not open_gaps:
        return {}
    settings: dict[str, Any] = {
        **librdkafka(source.cluster, source.options),
        "isolation.level": isolation(source),
        "group.id": "penstock-verify",  # the client demands one; it is never joined, and nothing is committed
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",  # an offset that retention removed meanwhile must be reported, not skipped
        "enable.partition.eof": "true",
        # Fetch little ahead, and continue fetching at once: the defaults wait a second after every jump.
        "queued.min.messages": "10000",
        "queued.max.messages.kbytes": "16384",
        "fetch.queue.backoff.ms": "10",
        "log_level": "0",
    }
    try:
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(*key, partition_gaps.at) for key, partition_gaps in open_gaps.items()])
            _read(consumer, open_gaps, progress, patience)
        finally:
            consumer.close()
    except KafkaException as error:
        for partition_gaps in open_gaps.values():
            if not partition_gaps.done:
                partition_gaps.give_up(str(error))
    return {key: partition_gaps.answer() for key, partition_gaps in open_gaps.items()}


def _read(consumer: Any, gaps: Mapping[Place, _PartitionGaps], progress: Progress, patience: float) -> None:
    total = sum(partition_gaps.total for partition_gaps in gaps.values())
    waiting = set(gaps)
    last_answer = time.monotonic()
    while waiting:
        messages = [
            message
            for message in consumer.consume(num_messages=500, timeout=0.1)
            if (message.topic(), message.partition()) in waiting
        ]
        if any(message.error() is None or message.error().code() == KafkaError._PARTITION_EOF for message in messages):
            last_answer = time.monotonic()
        elif time.monotonic() - last_answer > patience:
            for key in waiting:
                gaps[key].give_up(f"the broker gave no answer for {patience:.0f} s")
            return
        for message in messages:
            key = (message.topic(), message.partition())
            if key not in waiting:  # settled by an earlier one of these messages
                continue
            partition_gaps = gaps[key]
            error = message.error()
            if error is None:
                partition_gaps.record_at(message.offset())
            elif error.code() == KafkaError._PARTITION_EOF:
                partition_gaps.end_at(message.offset())
            else:
                partition_gaps.give_up(error.str())
            if partition_gaps.jump():
                try:
                    consumer.seek(TopicPartition(*key, partition_gaps.at))
                except KafkaException as cause:
                    partition_gaps.give_up(str(cause))
            if partition_gaps.done:
                waiting.discard(key)
                consumer.incremental_unassign([TopicPartition(*key)])
        progress(sum(partition_gaps.settled for partition_gaps in gaps.values()) / max(1, total))


class _PartitionGaps:
    """The gaps of one partition, settled from left to right as its records arrive."""

    def __init__(self, key: Place, spans: Spans) -> None:
        self.key = key
        self._spans = spans
        self._rest: Iterator[tuple[int, int]] = iter(spans)
        self._gap: tuple[int, int] | None = next(self._rest)
        self.at = self._gap[0]
        """The next offset that the broker has yet to deliver."""
        self._answer = GapAnswer()
        self.total = spans.size
        self.settled = 0

    @property
    def done(self) -> bool:
        return self._gap is None

    def jump(self) -> bool:
        """Move to the next gap if it is far; whether it was."""
        if self._gap is None or self._gap[0] - self.at <= JUMP:
            return False
        self.at = self._gap[0]
        return True

    def record_at(self, offset: int) -> None:
        """Records arrive in order, so everything between the last one and this one is empty. Records still in flight
        from before a jump lie before the next gap and change nothing."""
        self._settle_up_to(offset)
        if self._gap is not None and self._gap[0] <= offset < self._gap[1]:
            self._answer.lost.add(offset, offset + 1)
        self.at = max(self.at, offset + 1)
        self._settle_up_to(offset + 1)

    def end_at(self, offset: int) -> None:
        """The partition ends here: it has no more records."""
        self._settle_up_to(offset)
        if self._gap is not None:
            self.give_up(f"the broker's partition ends at {offset}")

    def give_up(self, reason: str) -> None:
        gap, self._gap = self._gap, None
        while gap is not None:
            self._answer.unverifiable.add(max(gap[0], min(self.at, gap[1])), gap[1])
            gap = next(self._rest, None)
        self._answer.reason = reason

    def answer(self) -> GapAnswer:
        answer = self._answer
        answer.empty = self._spans - answer.lost - answer.unverifiable
        return answer

    def _settle_up_to(self, offset: int) -> None:
        while self._gap is not None and self._gap[1] <= offset:
            self.settled += self._gap[1] - self._gap[0]
            self._gap = next(self._rest, None)
