"""Offsets that a table lacks: Kafka tells those that it left empty itself from records that were lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.engine.protocol.position import Offsets
from penstock.ops.broker import Held
from penstock.ops.verify.broker_gaps import Answer, look_up
from penstock.ops.verify.chain import Chain
from penstock.ops.verify.expected import Key
from penstock.ops.verify.report import Partition, Report
from penstock.ops.verify.spans import Spans
from penstock.plan.model import KafkaSource


def explain_gaps(
    source: KafkaSource, report: Report, chain: Chain, held: Held, progress: Callable[[float], None]
) -> None:
    askable: dict[Key, Spans] = {}
    for one in report.partitions:
        if one.difference.gaps:
            askable[one.key] = _askable(one, chain, held)
    answers: Mapping[Key, Answer] = look_up(source, askable, progress) if any(askable.values()) else {}
    for one in report.partitions:
        answer = answers.get(one.key, Answer())
        one.lost, one.empty = answer.lost, answer.empty
        if answer.unverifiable:
            one.unverifiable = one.unverifiable | answer.unverifiable
            one.reasons.append(answer.reason or "the broker gave no answer")
    _unclear(report, chain)


def _askable(one: Partition, chain: Chain, held: Held) -> Spans:
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
