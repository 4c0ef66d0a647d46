"""`verify`: the ledger's chain, the rows' coordinates and the source, each compared with the others.

A table is read at the version that is newest when `verify` looks at it, so a running stream does not disturb it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.operations.broker import fetch_offsets, request_key
from penstock.verify.context import (
    BROKER_TIMEOUT,
    VerifyContext,
    adjust_expected_before_log,
    ask_about_gaps,
    report_position,
)
from penstock.verify.coordinates import CoordinateTable, compare, landed, read_at, rows_at
from penstock.verify.derived_tables import verify_derived
from penstock.verify.ledger_walk import offsets_of
from penstock.verify.report import Partition, Report
from penstock.verify.unread import runner_state

if TYPE_CHECKING:
    from penstock.ledger.head import LedgerHead
    from penstock.operations.broker import RequestKey, TopicOffsets
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import TopicsSource
    from penstock.storage.stores import Store
    from penstock.verify.context import Progress
    from penstock.verify.unread import RunnerState


def verify(
    tables: Sequence[TablePlan],
    store: Store,
    progress: Progress = lambda *_: None,
    known: Sequence[TablePlan] = (),
) -> list[Report]:
    """One report per table, in their order. Errors of a table or a broker are not raised: they are in its report.
    `known` are the other tables of the project. Checks that need Spark come afterwards: `run_spark_checks`, or
    `mark_not_made`."""
    tables_by_name = {table.name: table for table in (*known, *tables)}
    heads: dict[str, LedgerHead] = {}
    reports = {table.name: Report(table.name, state=runner_state(table, store)) for table in tables}
    for table in tables:
        try:
            head = read_head(DeltaLog(store, table.uri, table.name))
        except PenstockError as error:
            reports[table.name].problems.append(error.message)
            reports[table.name].hint = error.hint
            continue
        if head is not None:
            heads[table.name] = head
        else:
            reports[table.name].hint = _creation_hint(reports[table.name].state)
    # After the ledger heads: a broker asked later is never behind what a table has read.
    broker_offsets = _ask_brokers([table for table in tables if table.name in heads], heads)
    for table in tables:
        if table.name in heads:
            context = VerifyContext(table, store, heads[table.name], reports[table.name], progress, tables_by_name)
            topic_offsets = broker_offsets[request_key(table.topics)] if table.topics is not None else None
            try:
                if topic_offsets is not None and table.stages is None:
                    verify_landed(context, CoordinateTable(table.name, table.uri, landed(table.columns)), topic_offsets)
                else:
                    verify_derived(context, topic_offsets)
            except PenstockError as error:
                context.report.problems.append(error.message)
                context.report.hint = context.report.hint or error.hint
            except (ValueError, KeyError, TypeError) as error:  # a commit of its log, or of its source's, is damaged
                context.report.problems.append(f"its log, or that of its source, cannot be read: {error!r}")
    return [reports[table.name] for table in tables]


def verify_landed(context: VerifyContext, rows: CoordinateTable, broker_offsets: TopicOffsets) -> None:
    """Compare the ledger, the rows and the broker of a table that lands topics with each other."""
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


def _creation_hint(state: RunnerState) -> str:
    prefix = f"{state}; " if state.state not in ("never run", "finished", "stopped") else ""
    return f"{prefix}{state.hint or '`penstock run` creates it'}"


def _ask_brokers(tables: Sequence[TablePlan], heads: Mapping[str, LedgerHead]) -> dict[RequestKey, TopicOffsets]:
    topics: dict[RequestKey, set[str]] = {}
    patterns: dict[RequestKey, set[str]] = {}
    sources: dict[RequestKey, TopicsSource] = {}
    for table in tables:
        if (source := table.topics) is not None:
            broker_question = request_key(source)
            sources[broker_question] = source
            topics.setdefault(broker_question, set()).update(offsets_of(heads[table.name].entry.after), source.topics)
            patterns.setdefault(broker_question, set()).update([source.pattern] if source.pattern else [])
    return {
        broker_question: fetch_offsets(
            source, topics[broker_question], timeout=BROKER_TIMEOUT, patterns=patterns[broker_question]
        )
        for broker_question, source in sources.items()
    }
