"""Tells offsets that a source itself left empty from records that were lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from penstock.ledger.spans import GapAnswer, Spans
from penstock.sources.registry import topics_kind

if TYPE_CHECKING:
    from penstock.operations.broker import TopicOffsets
    from penstock.plan.sources import TopicsSource
    from penstock.verify.coordinates import Key
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.report import Partition, Report

Progress = Callable[[float], None]


def explain_gaps(
    source: TopicsSource, report: Report, chain: Chain, broker_offsets: TopicOffsets, progress: Progress
) -> None:
    askable: dict[Key, Spans] = {}
    for partition in report.partitions:
        if partition.difference.gaps:
            askable[partition.key] = _askable_gaps(partition, chain, broker_offsets)
    answers: Mapping[Key, GapAnswer] = {}
    if not source.leaves_gaps:
        answers = {key: GapAnswer(lost=spans) for key, spans in askable.items()}
    elif any(askable.values()):
        answers = topics_kind(source).explain_gaps(source, askable, progress)
    for partition in report.partitions:
        answer = answers.get(partition.key, GapAnswer())
        partition.lost, partition.empty = answer.lost, answer.empty
        partition.mark_unverifiable(answer.unverifiable, answer.reason or "the broker gave no answer")
    _mark_unclear(report, chain)


def _askable_gaps(partition: Partition, chain: Chain, broker_offsets: TopicOffsets) -> Spans:
    """The part of a partition's gaps that the broker still holds; the rest is marked as unverifiable, with the
    reason."""
    gaps, (topic, number) = partition.difference.gaps, partition.key
    if broker_offsets.problem:
        partition.mark_unverifiable(gaps, broker_offsets.problem)
        return Spans()
    topics = broker_offsets.topics
    if topic not in topics or number not in topics[topic].partitions:
        partition.mark_unverifiable(gaps, f"{topic}-{number} does not exist at the broker")
        return Spans()
    by_topic_id = chain.expected.by_topic_id.get(partition.key, {})
    current = by_topic_id.get(topics[topic].id, Spans()) | by_topic_id.get("", Spans())
    partition.mark_unverifiable(gaps - current, f"they were read from an earlier topic {topic}, which was deleted")
    earliest, latest = broker_offsets.earliest[topic][number], broker_offsets.latest[topic][number]
    gaps = gaps & current
    partition.mark_unverifiable(
        gaps & Spans([(0, earliest)]), f"the broker's first offset is {earliest}: retention took them"
    )
    partition.mark_unverifiable(
        gaps & Spans([(latest, max(latest, partition.expected.end))]), f"the broker's partition ends at {latest}"
    )
    return gaps & Spans([(earliest, latest)])


def _mark_unclear(report: Report, chain: Chain) -> None:
    """Mark offsets that an accepted change may have removed as unverifiable: they do not prove a loss."""
    for reason, unclear_spans in chain.unclear:
        for partition in report.partitions:
            doubtful = partition.lost & unclear_spans.get(partition.key, Spans())
            partition.lost = partition.lost - doubtful
            partition.mark_unverifiable(doubtful, reason)
