"""The table being verified, and the steps that several kinds of tables share: walking its ledger, asking Kafka about
its position and its gaps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.spans import Spans
from penstock.operations.broker import (
    fetch_offsets,
    merge_offsets,
    missing_topics,
    partition_lags,
    position_problems,
)
from penstock.verify.data_files import count_problems, damaged_files
from penstock.verify.gaps import explain_gaps
from penstock.verify.ledger_walk import by_partition, offsets_of, read_chain
from penstock.verify.report import beginning_in_topics
from penstock.verify.unread import unread_of_topics

if TYPE_CHECKING:
    from penstock.ledger.head import LedgerHead
    from penstock.operations.broker import TopicOffsets
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.coordinates import Coordinates, Key
    from penstock.verify.ledger_walk import Chain, RowsAt
    from penstock.verify.report import Report

BROKER_TIMEOUT = 10.0
Progress = Callable[[str, str, float], None]
"""Called with the table, the current activity and the fraction of it that is done."""


@dataclass(frozen=True)
class VerifyContext:
    table: TablePlan
    store: Store
    head: LedgerHead
    report: Report
    progress: Progress
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    """All known tables, by name."""

    def step(self, activity: str) -> Callable[[float], None]:
        self.progress(self.table.name, activity, 0.0)
        return lambda fraction: self.progress(self.table.name, activity, fraction)

    @property
    def start_position(self) -> tuple[str, ...]:
        """Where the table began to read; () if that is no longer known. Use it after `walk`, which finds it in older
        entries."""
        chain = self.report.chain
        return self.head.entry.began or (chain.start_position if chain is not None else ())

    def walk(self, rows_at: RowsAt) -> Chain:
        """Read the ledger and check the data files. `rows_at` is called for versions where people changed the table by
        hand."""
        report, head, table = self.report, self.head, self.table
        report.version, report.generation, report.batch = head.version, head.entry.generation, head.entry.batch
        report.definition = head.entry.pins.definition
        log = DeltaLog(self.store, table.uri, table.name)
        chain = report.chain = read_chain(log, head.version, rows_at, self.step("reading the ledger"))
        _report_foreign_commits(chain, report)
        if head.entry.unfinished:
            report.doubts.append(
                "a replay or rewind of it was begun and is not finished: `penstock run` finishes it; its rows are "
                "still those from before"
            )
        report.problems += count_problems(self.store, table, chain.first_version, head.version)
        self.step("looking at its files")
        report.problems += self.damaged_files(table.uri, head.version)
        return chain

    def damaged_files(self, uri: str, version: int | None) -> list[str]:
        """Data files that are missing or not as the log says. A log that cannot be read is reported elsewhere."""
        try:
            return [f"data file {description}" for description in damaged_files(self.store, uri, version)]
        except Exception:
            return []


def _report_foreign_commits(chain: Chain, report: Report) -> None:
    if chain.earlier_rows:
        report.doubts.append(
            f"{chain.earlier_rows:,} rows were in the table before its ledger began: they were not looked into"
        )
    for commit in chain.foreign:
        label = f"version {commit.version} ({commit.operation})"
        if commit.undecided:
            report.problems.append(f"{label} changed rows outside Penstock and awaits a decision")
            report.hint = f"`penstock checkpoints reset {report.table} --help` says how to decide"
        elif commit.accepted_in is not None:
            report.notes.append(f"{label} changed rows outside Penstock, accepted in version {commit.accepted_in}")
        else:
            report.notes.append(f"{label} added {commit.rows:,} rows that are not in the ledger")


# For tables that read Kafka.


def report_position(context: VerifyContext, broker_offsets: TopicOffsets) -> None:
    report, entry = context.report, context.head.entry
    position, source = offsets_of(entry.after), context.table.topics
    assert source is not None
    report.broker_problem, report.lags = broker_offsets.problem, partition_lags(position, broker_offsets)
    report.unread = unread_of_topics(source, entry, report.lags, broker_offsets)
    report.beginning = beginning_in_topics(source, context.start_position, broker_offsets)
    report.doubts += [report.beginning.doubt] if report.beginning.doubt else []
    report.problems += position_problems(position, entry.topics, broker_offsets)
    report.notes += [
        f"topic {topic} no longer exists at the broker" for topic in missing_topics(position, broker_offsets)
    ]


def ask_about_gaps(context: VerifyContext, chain: Chain, broker_offsets: TopicOffsets) -> None:
    source, report = context.table.topics, context.report
    assert source is not None
    progress = context.step("asking Kafka about offsets that the table lacks")
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
    report, start_offsets = context.report, by_partition(offsets_of(context.head.entry.began))
    explanation = f"the chain is known from version {chain.known_from} on: older commits were cleaned up"
    unclear: dict[Key, Spans] = {}
    for key, end in chain.assumed.items():
        start, present = start_offsets.get(key), coordinates.present.get(key)
        if start is None:
            chain.expected.forget_before(key, min(present.start, end) if present else end)
        else:
            chain.expected.forget_before(key, start)
            unclear[key] = Spans([(start, end)])
    if start_offsets:
        report.notes.append(f"{explanation}. What was landed before is proven by its rows, from where the table began")
        chain.unclear.append((f"{explanation}: a decision to skip them would no longer be in the log", unclear))
    else:
        report.doubts.append(f"{explanation}. Of what was landed before, the first offset is taken from the table")
    total = context.head.counts.total
    if coordinates.rows < total and not chain.foreign:
        report.doubts.append(f"the ledger counted {total:,} rows, the table holds {coordinates.rows:,}")
