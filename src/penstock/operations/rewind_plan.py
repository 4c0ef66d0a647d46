"""What a rewind would do, from the ledgers without a JVM; and running it, with the tables that have read what goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import Conflict, PenstockError, UsageError
from penstock.ledger.checkpoint import folder_of, start_over_hint
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import owes_jump, pending_halt, pending_replay, pending_rewind
from penstock.ledger.position import difference, parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.operations.replay_plan import downstream_of, run_rebuild, working_on
from penstock.operations.rewind import (
    earlier_version,
    is_past_undone,
    planned,
    refuse_files,
    refuse_gone,
    resume_position,
    rewind,
    stop_before_undone,
)
from penstock.operations.steps import HaltReader, RebuildTable, RestoreTable, rebuilds_after
from penstock.plan.build import readers_of
from penstock.plan.quarantine import quarantine_of
from penstock.storage.delta_rows import count_at
from penstock.storage.locks import acquire_commit, holder, lock_path
from penstock.storage.stores import HadoopStore, LocalStore
from penstock.tables.quarantine import version_of
from penstock.tables.session import is_complete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.operations.replay import Filled
    from penstock.operations.rewind import (
        EarlierVersion,
    )
    from penstock.operations.steps import Tell
    from penstock.plan.build import TableReader
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# How many rows a quarantine holds, and how many it would hold after its table went back.


def rejected_now_and_then(table: TablePlan, store: Store, then: EarlierVersion) -> tuple[int, int]:
    place = quarantine_of(table.name, table.uri)
    log = DeltaLog(store, place.uri, place.table)
    if not table.may_reject or not log.versions():
        return 0, 0
    return count_at(place.uri, None), count_at(place.uri, version_of(log, then.entry.key, then.until_ms))


# What a rewind would do, before it does it.


Fate = Literal["follows", "jumps", "past"]
"""follows: it reads the changes, and gets what is undone. jumps: it has read no row that goes; it steps over those.
past: it has."""


@dataclass(frozen=True)
class Behind:
    """A table or sink that reads the table."""

    reader: TableReader
    fate: Fate
    version: int
    """Up to which it has read."""

    @property
    def name(self) -> str:
        return self.reader.table.name

    @property
    def halts(self) -> bool:
        """It is stopped before, and steps over what is undone. What a sink has sent stays sent."""
        return self.fate == "jumps" or (self.fate == "past" and self.reader.how == "sent")


@dataclass(frozen=True)
class RewindPlan:
    table: TablePlan
    version: int
    newest: int
    time_ms: int
    """Of the version."""
    until_ms: int
    """When the first commit after it was made."""
    batches: int
    """That are undone."""
    rows: tuple[int, int]
    """Now and then, as the ledger counts them."""
    rejected: tuple[int, int]
    after: str
    """Where it goes on."""
    again: str
    """What it reads again, as far as the position tells."""
    running: int | None
    """The process that runs the table meanwhile."""
    owed: bool
    """A rewind of it was cut off: this one takes its place."""
    readers: tuple[Behind, ...]
    cascade: tuple[TableReader, ...]
    """Made anew as well, in this order."""
    takes_along: bool
    """Whether that was asked for, should a reader be past the version."""

    @property
    def steps(self) -> tuple[HaltReader | RestoreTable | RebuildTable, ...]:
        """Readers stop first, so that none reads on meanwhile."""
        return (
            *(HaltReader(reader.reader.table) for reader in self.readers if reader.halts),
            RestoreTable(self.table, self.version),
            *rebuilds_after(self.table.name, tuple(reader.table for reader in self.cascade)),
        )


def document(planned: RewindPlan) -> dict[str, Any]:
    return {
        "table": planned.table.name,
        "version": planned.version,
        "newest": planned.newest,
        "batches": planned.batches,
        "rows": {"now": planned.rows[0], "then": planned.rows[1]},
        "quarantine": {"now": planned.rejected[0], "then": planned.rejected[1]},
        "after": planned.after,
        "again": planned.again,
        "running": planned.running,
        "resumes": planned.owed,
        "readers": [
            {"table": one.name, "how": one.reader.how, "fate": one.fate, "read_up_to": one.version}
            for one in planned.readers
        ],
        "cascade": [one.table.name for one in planned.cascade],
        "steps": [step.describe() for step in planned.steps],
    }


# What a rewind of a table would do: without a JVM, from the ledgers.


def plan_rewind(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, before: datetime | None, cascade: bool
) -> RewindPlan:
    """UsageError where it cannot be done so."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    tail = read_head(log)
    if tail is None:
        raise UsageError(f"{table.name} was never made: there is nothing to undo", hint="`penstock run` makes it")
    if pending_replay(tail.entry) is not None:
        raise UsageError(
            f"a replay of {table.name} is not done yet",
            hint=f"`penstock run` finishes it, `penstock replay {table.name} --abort` gives it up",
        )
    tail = _counted(table, store, tail)
    to = version if version is not None else _before(log, before)
    then = earlier_version(log, tail, to)
    owed = pending_rewind(tail.entry)
    on = resume_position(then.entry, tail.entry)
    now = owed.position if owed is not None else tail.entry.after
    readers = tuple(filter(None, (_behind(one, store, to) for one in readers_of(plan, table.name))))
    planned = RewindPlan(
        table=table,
        version=to,
        newest=tail.version,
        time_ms=_time(log, to),
        until_ms=then.until_ms,
        batches=sum(1 for one in then.undone if one.entry is not None and one.entry.kind == "batch"),
        rows=(tail.counts.total, then.counts.total),
        rejected=rejected_now_and_then(table, store, then),
        after=on.after[0],
        again=", ".join(difference(one, other) for one, other in zip(on.after, now, strict=False)),
        running=holder(lock_path(plan.system, table.name, "run")) if plan.local else None,
        owed=owed is not None,
        readers=readers,
        cascade=_cascade(plan, readers, store) if cascade else (),
        takes_along=cascade,
    )
    _refuse_past(planned, cascade=cascade)
    return planned


def _refuse_kind(table: TablePlan) -> None:
    if table.sink is not None:
        raise UsageError(
            f"{table.name} is a sink: what it sent cannot be taken back",
            hint=f"`penstock checkpoints reset {table.name}` sends again from a position of your choice",
        )
    if table.stream is not None:
        raise UsageError(
            f"{table.name} rests on Spark's state, which is of now alone", hint=start_over_hint(table.name)
        )


def _counted(table: TablePlan, store: Store, tail: LedgerHead) -> LedgerHead:
    return replace(tail, row_counts=read_row_counts(store, folder_of(table.checkpoints, tail.entry), tail.entry.batch))


def _before(log: DeltaLog, before: datetime | None) -> int:
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


def _time(log: DeltaLog, version: int) -> int:
    commit = log.commit(version)
    return commit.timestamp_ms if commit is not None else 0


def _behind(reader: TableReader, store: Store, version: int) -> Behind | None:
    """None if it was never made: it will begin with what is there then."""
    table = reader.table
    tail = read_head(DeltaLog(store, table.uri, table.name))
    if tail is None:
        return None
    try:
        reached = max(parse_version(one).read_up_to for one in tail.entry.after)
    except (KeyError, ValueError) as error:
        raise PenstockError(f"how far {table.name} has read cannot be told: {error}") from None
    fate: Fate = "follows" if reader.how == "follows" else "jumps"
    if fate == "jumps" and (reached > version or reader.how == "state" or owes_jump(tail.entry)):
        fate = "past"  # also one that has yet to step over what an earlier rewind has undone
    return Behind(reader, fate, reached)


def _cascade(plan: Plan, readers: tuple[Behind, ...], store: Store) -> tuple[TableReader, ...]:
    """Those that have read what goes, and all that is made of them."""
    found: dict[str, TableReader] = {}
    for one in readers:
        if one.fate == "past" and one.reader.how in ("rebuilt", "recomputed"):
            found[one.name] = one.reader
            found |= {below.table.name: below for below in downstream_of(plan, one.name, store)}
    return tuple(found[table.name] for table in plan.tables if table.name in found)


def _refuse_past(planned: RewindPlan, *, cascade: bool) -> None:
    past = [one for one in planned.readers if one.fate == "past" or one.version > planned.version]
    if past and not cascade:
        said = ", ".join(f"{one.name} has read up to version {one.version}" for one in past)
        raise UsageError(
            f"{planned.table.name} cannot go back to version {planned.version} by itself: {said}",
            hint="--cascade takes them along, --dry-run with it says how",
        )


# Taking a table back to an earlier version, and along with it those that have read what goes.
#
# Readers that have not are stopped first, so that none reads on meanwhile; they step over what is undone at their
# next start. Then the table goes back, in one commit; then what is made of it is made anew, one table after the
# other.


@dataclass(frozen=True)
class RewindResult:
    table: TablePlan
    tail: LedgerHead
    filled: Filled | None = None
    """Of a table that was made anew."""


def check_rewind(spark: SparkSession, plan: Plan, asked: RewindPlan) -> None:
    """Raises where it could not be carried out; changes nothing."""
    with working_on(spark, plan, asked.table) as work:
        tail = work.end()
        found = planned(work, tail, asked.version)
        refuse_gone(work, tail.entry, found.goes_on)
        refuse_files(work, found)


def run_rewind(spark: SparkSession, plan: Plan, asked: RewindPlan, tell: Tell) -> Iterator[RewindResult]:
    """Killed anywhere, the next start of the tables finishes what was begun; what was to be rebuilt and is not is named
    by `status`."""
    check_rewind(spark, plan, asked)
    asked = _as_it_is_now(spark, plan, asked)
    readers = {reader.name: reader for reader in asked.readers}
    halted: dict[str, int] = {}
    committed: dict[str, int] = {}
    for step in asked.steps:
        name = step.table.name
        match step:
            case HaltReader():
                tell(name, "is stopped")
                halted[name] = _halt(spark, plan, readers[name], asked)
            case RestoreTable():
                tell(name, f"is restored to version {step.version}")
                with working_on(spark, plan, step.table) as work:
                    head = rewind(work, step.version, lambda: _refuse_gone_on(spark, plan, asked, halted))
                committed[name] = head.commit.version
                yield RewindResult(step.table, head)
            case RebuildTable():
                note = f"replay, after the rewind of {asked.table.name}"
                filled = run_rebuild(spark, plan, step, note, committed, tell)
                yield RewindResult(step.table, filled.tail, filled)


def _as_it_is_now(spark: SparkSession, plan: Plan, asked: RewindPlan) -> RewindPlan:
    """Readers go on while Spark starts: one that was to step over may be past by now, and is taken along then."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    return plan_rewind(plan, asked.table, store, version=asked.version, before=None, cascade=asked.takes_along)


def _halt(spark: SparkSession, plan: Plan, one: Behind, asked: RewindPlan) -> int:
    """The generation in which it waits."""
    with working_on(spark, plan, one.reader.table) as work:
        acquire_commit(work.lock, one.name)
        try:
            tail = work.end()
            if one.fate == "jumps" and is_past_undone(tail.entry.after[0], asked.version):
                raise _moved(one, asked)
            if pending_replay(tail.entry) is not None:
                raise Conflict(
                    "a replay of it is not done yet",
                    where=one.name,
                    hint=f"`penstock run` finishes it, `penstock replay {one.name} --abort` gives it up",
                )
            if not is_complete(work, tail):
                raise Conflict(
                    f"batch {tail.entry.generation}.{tail.entry.batch} was cut off before all of it was written",
                    where=one.name,
                    hint=f"`penstock run --once {one.name}` completes it; then rewind with --cascade",
                )
            return stop_before_undone(work, tail, asked.newest).entry.generation
        finally:
            work.lock.release()


def _refuse_gone_on(spark: SparkSession, plan: Plan, asked: RewindPlan, halted: dict[str, int]) -> None:
    """A runner that was just starting may have found nothing to wait for, and gone on."""
    for one in asked.readers:
        if one.name in halted:
            with working_on(spark, plan, one.reader.table) as work:
                entry = work.end().entry
            if entry.generation != halted[one.name] or pending_halt(entry) is None:
                raise _moved(one, asked)


def _moved(one: Behind, asked: RewindPlan) -> Conflict:
    return Conflict(
        f"it read on while {asked.table.name} was to go back to version {asked.version}",
        where=one.name,
        hint="nothing was changed. Give the command again: it says how far its readers are now",
    )
