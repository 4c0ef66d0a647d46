"""Checks a table that reads Kafka: its ledger, its rows and the broker are compared with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.operations import broker
from penstock.operations.broker import fetch_offsets, merge_offsets, partition_lags
from penstock.verify.coordinates import Spans, compare
from penstock.verify.gaps import explain_gaps
from penstock.verify.ledger_walk import offsets_of
from penstock.verify.report import Partition, beginning_in_topics
from penstock.verify.rows import read_at, rows_at
from penstock.verify.unread import unread_of_topics

if TYPE_CHECKING:
    from penstock.operations.broker import TopicOffsets
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Coordinates, Key
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.rows import CoordinateTable

BROKER_TIMEOUT = 10.0


def verify_landed(context: VerifyContext, rows: CoordinateTable, broker_offsets: TopicOffsets) -> None:
    chain = context.walk(rows_at(rows))
    report_position(context, broker_offsets)
    report = context.report
    try:
        within = {key: levels[0] for key, levels in chain.expected.levels.items()}
        coordinates = read_at(rows, context.head.version, within, context.step("reading the coordinates of every row"))
    except PenstockError as error:
        report.problems.append(error.message)
        report.hint = error.hint
        return
    report.rows, report.rows_without_coordinates = coordinates.rows, coordinates.without - chain.earlier_without
    adjust_expected_before_log(context, chain, coordinates)
    differences = compare(chain.expected, coordinates)
    report.partitions = [
        Partition(*key, chain.expected.once(key), difference) for key, difference in differences.items()
    ]
    ask_about_gaps(context, chain, broker_offsets)


def report_position(context: VerifyContext, broker_offsets: TopicOffsets) -> None:
    report, entry = context.report, context.head.entry
    position, source = offsets_of(entry.after), context.table.topics
    assert source is not None
    report.broker_problem, report.lags = broker_offsets.problem, partition_lags(position, broker_offsets)
    report.unread = unread_of_topics(source, entry, report.lags, broker_offsets)
    report.beginning = beginning_in_topics(source, context.start_position, broker_offsets)
    report.doubts += [report.beginning.doubt] if report.beginning.doubt else []
    report.problems += broker.position_problems(position, entry.topics, broker_offsets)
    report.notes += [
        f"topic {topic} no longer exists at the broker" for topic in broker.missing_topics(position, broker_offsets)
    ]


def ask_about_gaps(context: VerifyContext, chain: Chain, broker_offsets: TopicOffsets) -> None:
    source, report = context.table.topics, context.report
    assert source is not None
    progress: Callable[[float], None] = context.step("asking Kafka about offsets that the table lacks")
    position = offsets_of(context.head.entry.after)
    dropped_topics = {partition.topic for partition in report.partitions if partition.difference.gaps} - set(position)
    if dropped_topics:  # topics that the table no longer reads
        broker_offsets = merge_offsets(broker_offsets, fetch_offsets(source, dropped_topics, timeout=BROKER_TIMEOUT))
    explain_gaps(source, report, chain, broker_offsets, progress)


def adjust_expected_before_log(context: VerifyContext, chain: Chain, coordinates: Coordinates) -> None:
    """Log retention removes old entries. What was read before the oldest one left is expected from where the table
    began, if its entries record that; else only from the first offset in the table, and nothing earlier is proven. The
    ledger's running count shows whether rows are missing before that."""
    if chain.from_genesis:
        return
    report, start_offsets = context.report, offsets_of(context.head.entry.began)
    explanation = f"the chain is known from version {chain.known_from} on: older commits were cleaned up"
    unclear: dict[Key, Spans] = {}
    for topic, partitions in chain.assumed.items():
        for partition, end in partitions.items():
            key, start = (topic, partition), start_offsets.get(topic, {}).get(partition)
            present = coordinates.present.get(key)
            first = min(present.start, end) if present else end
            chain.expected.forget_before(key, first if start is None else start)
            if start is not None:
                unclear[key] = Spans([(start, end)]) if start < end else Spans()
    if start_offsets:
        report.notes.append(f"{explanation}. What was landed before is proven by its rows, from where the table began")
        chain.unclear.append((f"{explanation}: a decision to skip them would no longer be in the log", unclear))
    else:
        report.doubts.append(f"{explanation}. Of what was landed before, the first offset is taken from the table")
    total = context.head.counts.total
    if coordinates.rows < total and not chain.foreign:
        report.doubts.append(f"the ledger counted {total:,} rows, the table holds {coordinates.rows:,}")
