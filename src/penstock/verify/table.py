"""`verify`: the ledger's chain, the rows' coordinates and the source, each against the others.

A table is read at the newest version at the time of the look, so a running stream does not disturb it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.operations.broker import ask, question
from penstock.verify.bronze import BROKER_TIMEOUT, verify_landed
from penstock.verify.context import VerifyContext
from penstock.verify.coordinates import landed
from penstock.verify.derived_tables import verify_derived
from penstock.verify.ledger_walk import offsets_of
from penstock.verify.report import Report
from penstock.verify.rows import Rows
from penstock.verify.unread import runner_state

if TYPE_CHECKING:
    from penstock.ledger.head import LedgerHead
    from penstock.operations.broker import Question, TopicOffsets
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
    """One report per table, in their order. Nothing is raised because of a table or a broker: it is in the report.
    `known` are the other tables of the project. What needs Spark comes after it: `check_again`, or `left_out`."""
    named = {table.name: table for table in (*known, *tables)}
    tails: dict[str, LedgerHead] = {}
    reports = {table.name: Report(table.name, state=runner_state(table, store)) for table in tables}
    for table in tables:
        try:
            tail = read_head(DeltaLog(store, table.uri, table.name))
        except PenstockError as error:
            reports[table.name].problems.append(error.message)
            reports[table.name].hint = error.hint
            continue
        if tail is not None:
            tails[table.name] = tail
        else:
            reports[table.name].hint = _not_created(reports[table.name].state)
    # After the tails: a broker asked later is never behind what a table has read.
    held = _ask_brokers([table for table in tables if table.name in tails], tails)
    for table in tables:
        if table.name in tails:
            look = VerifyContext(table, store, tails[table.name], reports[table.name], progress, named)
            at = held[question(table.topics)] if table.topics is not None else None
            try:
                if at is not None and table.stages is None:
                    verify_landed(look, Rows(table.name, table.uri, landed(table.columns)), at)
                else:
                    verify_derived(look, at)
            except PenstockError as error:
                look.report.problems.append(error.message)
                look.report.hint = look.report.hint or error.hint
            except (ValueError, KeyError, TypeError) as error:  # a commit of its log, or of its source's, is damaged
                look.report.problems.append(f"its log, or that of its source, cannot be read: {error!r}")
    return [reports[table.name] for table in tables]


def _not_created(state: RunnerState) -> str:
    said = f"{state}; " if state.state not in ("never run", "finished", "stopped") else ""
    return f"{said}{state.hint or '`penstock run` creates it'}"


def _ask_brokers(tables: Sequence[TablePlan], tails: Mapping[str, LedgerHead]) -> dict[Question, TopicOffsets]:
    topics: dict[Question, set[str]] = {}
    patterns: dict[Question, set[str]] = {}
    sources: dict[Question, TopicsSource] = {}
    for table in tables:
        if (source := table.topics) is not None:
            asked = question(source)
            sources[asked] = source
            topics.setdefault(asked, set()).update(offsets_of(tails[table.name].entry.after), source.topics)
            patterns.setdefault(asked, set()).update([source.pattern] if source.pattern else [])
    return {
        one: ask(source, topics[one], timeout=BROKER_TIMEOUT, patterns=patterns[one]) for one, source in sources.items()
    }
