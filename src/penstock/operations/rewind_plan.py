"""Plans a rewind from the ledgers, without a JVM; runs it, with the tables that have read rows that are undone; and
gives up a replay or a rewind that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import Conflict, PenstockError, UsageError
from penstock.ledger.checkpoint import checkpoint_folder, start_over_hint
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import owes_jump, pending_halt, pending_replay, pending_rewind
from penstock.ledger.position import difference, parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.operations.quarantine_rows import quarantine_log
from penstock.operations.replay import abort as abort_replay
from penstock.operations.replay import open_replay_head
from penstock.operations.replay_plan import downstream_of, open_table_session, run_rebuild, session_store
from penstock.operations.rewind import abort as abort_rewind
from penstock.operations.rewind import (
    earlier_version,
    is_past_undone,
    plan_target,
    refuse_files,
    refuse_lost_source,
    resume_position,
    rewind,
    stop_before_undone,
)
from penstock.operations.staleness import refuse_open_work
from penstock.operations.status import runner
from penstock.operations.steps import HaltReader, OpenGeneration, RebuildTable, RestoreTable, rebuilds_after
from penstock.plan.build import readers_of
from penstock.plan.quarantine import quarantine_of
from penstock.storage.delta_rows import count_at
from penstock.storage.locks import acquire_commit
from penstock.tables.quarantine import version_of
from penstock.tables.session import is_complete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.ledger.pending import Replay, Rewind
    from penstock.operations.replay import FillResult
    from penstock.operations.rewind import EarlierVersion
    from penstock.operations.steps import Tell
    from penstock.plan.build import DownstreamTable
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

Fate = Literal["follows", "jumps", "past"]
"""follows: it reads changes, and gets those of the rewind. jumps: it has read no row that is undone, and skips those.
past: it has read such rows."""


@dataclass(frozen=True)
class RewindReader:
    """A table or sink that reads the table."""

    reader: DownstreamTable
    fate: Fate
    version: int
    """The last version that it has read."""

    @property
    def name(self) -> str:
        return self.reader.table.name

    @property
    def halts(self) -> bool:
        """Whether it is stopped first, and skips the undone versions. What a sink has sent stays sent."""
        return self.fate == "jumps" or (self.fate == "past" and self.reader.effect == "sent")


@dataclass(frozen=True)
class RewindPlan:
    table: TablePlan
    version: int
    newest: int
    time_ms: int
    """When the version was committed."""
    until_ms: int
    """When the first commit after it was made."""
    batches: int
    """Batches that are undone."""
    rows: tuple[int, int]
    """Now and then, as the ledger counts them."""
    rejected: tuple[int, int]
    after: str
    """The position at which it continues."""
    read_again: str
    """What it reads again, as far as the position shows."""
    running: int | None
    """The process that runs the table now."""
    resumes: bool
    """A rewind of it was cut off: this one takes its place."""
    readers: tuple[RewindReader, ...]
    cascade: tuple[DownstreamTable, ...]
    """Rebuilt as well, in this order."""
    cascades: bool
    """Whether --cascade was given: readers that are past the version are rebuilt."""

    @property
    def steps(self) -> tuple[HaltReader | RestoreTable | RebuildTable, ...]:
        """Readers stop first, so that none reads on meanwhile."""
        return (
            *(HaltReader(reader.reader.table) for reader in self.readers if reader.halts),
            RestoreTable(self.table, self.version),
            *rebuilds_after(self.table.name, tuple(reader.table for reader in self.cascade)),
        )


def document(rewind_plan: RewindPlan) -> dict[str, Any]:
    return {
        "table": rewind_plan.table.name,
        "version": rewind_plan.version,
        "newest": rewind_plan.newest,
        "batches": rewind_plan.batches,
        "rows": {"now": rewind_plan.rows[0], "then": rewind_plan.rows[1]},
        "quarantine": {"now": rewind_plan.rejected[0], "then": rewind_plan.rejected[1]},
        "after": rewind_plan.after,
        "again": rewind_plan.read_again,
        "running": rewind_plan.running,
        "resumes": rewind_plan.resumes,
        "readers": [
            {"table": reader.name, "how": reader.reader.effect, "fate": reader.fate, "read_up_to": reader.version}
            for reader in rewind_plan.readers
        ],
        "cascade": [reader.table.name for reader in rewind_plan.cascade],
        "steps": [step.describe() for step in rewind_plan.steps],
    }


def plan_rewind(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, before: datetime | None, cascade: bool
) -> RewindPlan:
    """UsageError if the table cannot be rewound this way."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    head = read_head(log)
    if head is None:
        raise UsageError(f"{table.name} was never made: there is nothing to undo", hint="`penstock run` makes it")
    refuse_open_work(table.name, head.entry, UsageError, "replay")
    folder = checkpoint_folder(table.checkpoints, head.entry)
    head = replace(head, row_counts=read_row_counts(store, folder, head.entry.batch))
    target = version if version is not None else _version_before(log, before)
    earlier, commit = earlier_version(log, head, target), log.commit(target)
    pending = pending_rewind(head.entry)
    resume = resume_position(earlier.entry, head.entry)
    current_position = pending.position if pending is not None else head.entry.after
    readers = tuple(filter(None, (_reader_state(reader, store, target) for reader in readers_of(plan, table.name))))
    rewind_plan = RewindPlan(
        table=table,
        version=target,
        newest=head.version,
        time_ms=commit.timestamp_ms if commit is not None else 0,
        until_ms=earlier.until_ms,
        batches=sum(1 for commit in earlier.undone if commit.entry is not None and commit.entry.kind == "batch"),
        rows=(head.counts.total, earlier.counts.total),
        rejected=rejected_now_and_then(table, store, earlier),
        after=resume.after[0],
        read_again=", ".join(
            difference(start, end) for start, end in zip(resume.after, current_position, strict=False)
        ),
        running=runner(plan, table),
        resumes=pending is not None,
        readers=readers,
        cascade=_tables_to_rebuild(plan, readers, store) if cascade else (),
        cascades=cascade,
    )
    _refuse_past(rewind_plan)
    return rewind_plan


def _refuse_kind(table: TablePlan) -> None:
    if table.sink is not None:
        raise UsageError(
            f"{table.name} is a sink: what it sent cannot be taken back",
            hint=f"`penstock checkpoints reset {table.name}` sends again from a position of your choice",
        )
    if table.stream is not None:
        raise UsageError(
            f"{table.name} depends on Spark's state, which has no earlier versions", hint=start_over_hint(table.name)
        )


def rejected_now_and_then(table: TablePlan, store: Store, earlier: EarlierVersion) -> tuple[int, int]:
    """How many rows the quarantine holds, and how many it would hold after the rewind."""
    log, uri = quarantine_log(table, store), quarantine_of(table.name, table.uri).uri
    if not table.may_reject or not log.versions():
        return 0, 0
    return count_at(uri, None), count_at(uri, version_of(log, earlier.entry.key, earlier.until_ms))


def _version_before(log: DeltaLog, before: datetime | None) -> int:
    if before is None:
        raise UsageError("to which version?", hint="write --version N, or --before TIME")
    oldest = None
    for commit in log.backwards():
        if commit.timestamp_ms < before.timestamp() * 1000:
            return commit.version
        oldest = commit.version
    raise UsageError(
        f"{log.table} has no version from before {before:%Y-%m-%d %H:%M:%S}",
        hint=f"the oldest that its log has is {oldest}: `penstock history {log.table}`",
    )


def _reader_state(reader: DownstreamTable, store: Store, version: int) -> RewindReader | None:
    """None if the reader was never created: it will begin with what the table has then."""
    table = reader.table
    head = read_head(DeltaLog(store, table.uri, table.name))
    if head is None:
        return None
    try:
        read_up_to = max(parse_version(position).read_up_to for position in head.entry.after)
    except (KeyError, ValueError) as error:
        raise PenstockError(f"how far {table.name} has read is unknown: {error}") from None
    fate: Fate = "follows" if reader.effect == "follows" else "jumps"
    if fate == "jumps" and (read_up_to > version or reader.effect == "state" or owes_jump(head.entry)):
        fate = "past"  # also one that has yet to skip what an earlier rewind has undone
    return RewindReader(reader, fate, read_up_to)


def _tables_to_rebuild(plan: Plan, readers: tuple[RewindReader, ...], store: Store) -> tuple[DownstreamTable, ...]:
    """Readers that have read rows that are undone, and all tables downstream of them."""
    rebuilt: dict[str, DownstreamTable] = {}
    for reader in readers:
        if reader.fate == "past" and reader.reader.effect in ("rebuilt", "recomputed"):
            rebuilt[reader.name] = reader.reader
            rebuilt |= {downstream.table.name: downstream for downstream in downstream_of(plan, reader.name, store)}
    return tuple(rebuilt[table.name] for table in plan.tables if table.name in rebuilt)


def _refuse_past(rewind_plan: RewindPlan) -> None:
    past = [reader for reader in rewind_plan.readers if reader.fate == "past" or reader.version > rewind_plan.version]
    if past and not rewind_plan.cascades:
        description = ", ".join(f"{reader.name} has read up to version {reader.version}" for reader in past)
        raise UsageError(
            f"{rewind_plan.table.name} cannot go back to version {rewind_plan.version} by itself: {description}",
            hint="--cascade takes them along, --dry-run with it says how",
        )


# Running a rewind, with the tables that have read rows that are undone.
#
# Readers that have not are stopped first, so that none reads on meanwhile; they skip what is undone at their next
# start. Then the table is restored, in one commit; then the tables downstream are rebuilt, one after the other.


@dataclass(frozen=True)
class RewindResult:
    table: TablePlan
    head: LedgerHead
    filled: FillResult | None = None
    """Set for a table that was rebuilt."""


def check_rewind(spark: SparkSession, plan: Plan, rewind_plan: RewindPlan) -> None:
    """Raises if the rewind could not be carried out; changes nothing."""
    with open_table_session(spark, plan, rewind_plan.table) as work:
        head = work.head()
        target = plan_target(work, head, rewind_plan.version)
        refuse_lost_source(work, head.entry, target.resume)
        refuse_files(work, target)


def run_rewind(spark: SparkSession, plan: Plan, rewind_plan: RewindPlan, tell: Tell) -> Iterator[RewindResult]:
    """Killed anywhere, the next start of the tables finishes what was begun; `status` names the tables that are not
    rebuilt yet."""
    check_rewind(spark, plan, rewind_plan)
    rewind_plan = _plan_again(spark, plan, rewind_plan)
    readers = {reader.name: reader for reader in rewind_plan.readers}
    halted: dict[str, int] = {}
    committed: dict[str, int] = {}
    for step in rewind_plan.steps:
        name = step.table.name
        match step:
            case HaltReader():
                tell(name, "is stopped")
                halted[name] = _halt(spark, plan, readers[name], rewind_plan)
            case RestoreTable():
                tell(name, f"is restored to version {step.version}")
                with open_table_session(spark, plan, step.table) as work:
                    head = rewind(work, step.version, lambda: _refuse_resumed_readers(spark, plan, rewind_plan, halted))
                committed[name] = head.commit.version
                yield RewindResult(step.table, head)
            case RebuildTable():
                note = f"replay, after the rewind of {rewind_plan.table.name}"
                filled = run_rebuild(spark, plan, step, note, committed, tell)
                yield RewindResult(step.table, filled.head, filled)


def _plan_again(spark: SparkSession, plan: Plan, rewind_plan: RewindPlan) -> RewindPlan:
    """The plan made again: readers read on while Spark starts, so one that was to skip the undone versions may
    have read them by now, and is rebuilt then."""
    table, version, cascade = rewind_plan.table, rewind_plan.version, rewind_plan.cascades
    return plan_rewind(plan, table, session_store(spark, plan), version=version, before=None, cascade=cascade)


def _halt(spark: SparkSession, plan: Plan, reader: RewindReader, rewind_plan: RewindPlan) -> int:
    """Returns the generation in which the reader waits."""
    with open_table_session(spark, plan, reader.reader.table) as work:
        acquire_commit(work.lock, reader.name)
        try:
            head = work.head()
            if reader.fate == "jumps" and is_past_undone(head.entry.after[0], rewind_plan.version):
                raise _moved_conflict(reader, rewind_plan)
            refuse_open_work(reader.name, head.entry, Conflict, "replay")
            if not is_complete(work, head):
                raise Conflict(
                    f"batch {head.entry.generation}.{head.entry.batch} was cut off before all of it was written",
                    where=reader.name,
                    hint=f"`penstock run --once {reader.name}` completes it; then rewind with --cascade",
                )
            return stop_before_undone(work, head, rewind_plan.newest).entry.generation
        finally:
            work.lock.release()


def _refuse_resumed_readers(spark: SparkSession, plan: Plan, rewind_plan: RewindPlan, halted: dict[str, int]) -> None:
    """Conflict if a reader continued: a runner that was just starting may have found nothing to wait for."""
    for reader in rewind_plan.readers:
        if reader.name in halted:
            with open_table_session(spark, plan, reader.reader.table) as work:
                entry = work.head().entry
            if entry.generation != halted[reader.name] or pending_halt(entry) is None:
                raise _moved_conflict(reader, rewind_plan)


def _moved_conflict(reader: RewindReader, rewind_plan: RewindPlan) -> Conflict:
    return Conflict(
        f"it read on while {rewind_plan.table.name} was to go back to version {rewind_plan.version}",
        where=reader.name,
        hint="nothing was changed. Give the command again: it says how far its readers are now",
    )


# `--abort` of a replay or a rewind that was cut off: the table keeps its rows and its position.


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
    pending: Replay | Rewind | None = None
    if head is not None:
        pending = pending_replay(head.entry) if verb == "replay" else pending_rewind(head.entry)
    if pending is None:
        raise _nothing_open_error(verb, table)
    return AbortPlan(verb, table, pending.position)


def run_abort(spark: SparkSession, plan: Plan, abort_plan: AbortPlan) -> int:
    """Returns the generation in which the table continues."""
    table = abort_plan.table
    with open_table_session(spark, plan, table) as work:
        if abort_plan.verb == "replay":
            head = open_replay_head(work)
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


def _nothing_open_error(verb: AbortedVerb, table: TablePlan) -> UsageError:
    return UsageError(f"no {verb} of {table.name} is open", hint="there is nothing to abort")
