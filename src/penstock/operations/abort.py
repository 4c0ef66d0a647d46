"""Gives up a replay or a rewind that was cut off: the table keeps its rows and its position."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import UsageError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import pending_replay, pending_rewind
from penstock.operations.replay import abort as abort_replay
from penstock.operations.replay import open_replay_head as open_replay_of
from penstock.operations.replay_plan import open_table_session
from penstock.operations.rewind import abort as abort_rewind
from penstock.operations.steps import OpenGeneration
from penstock.storage.locks import acquire_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.pending import Replay, Rewind
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

AbortedVerb = Literal["replay", "rewind"]


@dataclass(frozen=True)
class AbortPlan:
    verb: AbortedVerb
    table: TablePlan
    position: tuple[str, ...]
    """The table's position before, from which it continues."""

    @property
    def steps(self) -> tuple[OpenGeneration, ...]:
        return (OpenGeneration(self.table, self.position),)


def abort_document(abort_plan: AbortPlan) -> dict[str, Any]:
    return {
        "table": abort_plan.table.name,
        "position": list(abort_plan.position),
        "steps": [step.describe() for step in abort_plan.steps],
    }


def plan_abort(verb: AbortedVerb, table: TablePlan, store: Store) -> AbortPlan:
    """Raises UsageError if there is nothing to give up."""
    head = read_head(DeltaLog(store, table.uri, table.name))
    pending = _pending_work(verb, head.entry) if head is not None else None
    if pending is None:
        raise _nothing_open_error(verb, table)
    return AbortPlan(verb, table, pending.position)


def run_abort(spark: SparkSession, plan: Plan, abort_plan: AbortPlan) -> int:
    """Returns the generation in which the table continues."""
    table = abort_plan.table
    with open_table_session(spark, plan, table) as work:
        if abort_plan.verb == "replay":
            head = open_replay_of(work)
            if head is None:
                raise _nothing_open_error(abort_plan.verb, table)
            return abort_replay(work, head).entry.generation
        acquire_commit(work.lock, table.name)
        try:
            head = work.head()
            if pending_rewind(head.entry) is None:
                raise _nothing_open_error(abort_plan.verb, table)
            return abort_rewind(work, head).entry.generation
        finally:
            work.lock.release()


def _pending_work(verb: AbortedVerb, entry: Entry) -> Replay | Rewind | None:
    return pending_replay(entry) if verb == "replay" else pending_rewind(entry)


def _nothing_open_error(verb: AbortedVerb, table: TablePlan) -> UsageError:
    return UsageError(f"no {verb} of {table.name} is open", hint="there is nothing to abort")
