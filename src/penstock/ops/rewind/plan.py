"""What a rewind of a table would do: without a JVM, from the ledgers."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from penstock.engine.delta.version import parse
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.fates import read_fates
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.locks import holder, lock_path
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.position import difference
from penstock.engine.replay.pending import pending_replay
from penstock.engine.rewind.goes_on import goes_on
from penstock.engine.rewind.pending import owes_jump, pending_rewind
from penstock.engine.rewind.then import then_at
from penstock.engine.state import begin_anew
from penstock.engine.store import Store
from penstock.errors import PenstockError, UsageError
from penstock.ops.cascade import cascade_of
from penstock.ops.rewind.model import Behind, Fate, Planned
from penstock.ops.rewind.rejected import rejected_now_and_then
from penstock.plan.model import Plan, TablePlan
from penstock.plan.readers import Reader, readers_of


def plan_rewind(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, before: datetime | None, cascade: bool
) -> Planned:
    """UsageError where it cannot be done so."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    tail = read_tail(log)
    if tail is None:
        raise UsageError(f"{table.name} was never made: there is nothing to undo", hint="`penstock run` makes it")
    if pending_replay(tail.entry) is not None:
        raise UsageError(
            f"a replay of {table.name} is not done yet",
            hint=f"`penstock run` finishes it, `penstock replay {table.name} --abort` gives it up",
        )
    tail = _counted(table, store, tail)
    to = version if version is not None else _before(log, before)
    then = then_at(log, tail, to)
    owed = pending_rewind(tail.entry)
    on = goes_on(then.entry, tail.entry)
    now = owed.position if owed is not None else tail.entry.after
    readers = tuple(filter(None, (_behind(one, store, to) for one in readers_of(plan, table.name))))
    planned = Planned(
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
        raise UsageError(f"{table.name} rests on Spark's state, which is of now alone", hint=begin_anew(table.name))


def _counted(table: TablePlan, store: Store, tail: Tail) -> Tail:
    return replace(tail, fates=read_fates(store, folder_of(table.checkpoints, tail.entry), tail.entry.batch))


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


def _behind(reader: Reader, store: Store, version: int) -> Behind | None:
    """None if it was never made: it will begin with what is there then."""
    table = reader.table
    tail = read_tail(DeltaLog(store, table.uri, table.name))
    if tail is None:
        return None
    try:
        reached = max(parse(one).read_up_to for one in tail.entry.after)
    except (KeyError, ValueError) as error:
        raise PenstockError(f"how far {table.name} has read cannot be told: {error}") from None
    fate: Fate = "follows" if reader.how == "follows" else "jumps"
    if fate == "jumps" and (reached > version or reader.how == "state" or owes_jump(tail.entry)):
        fate = "past"  # also one that has yet to step over what an earlier rewind has undone
    return Behind(reader, fate, reached)


def _cascade(plan: Plan, readers: tuple[Behind, ...], store: Store) -> tuple[Reader, ...]:
    """Those that have read what goes, and all that is made of them."""
    found: dict[str, Reader] = {}
    for one in readers:
        if one.fate == "past" and one.reader.how in ("rebuilt", "recomputed"):
            found[one.name] = one.reader
            found |= {below.table.name: below for below in cascade_of(plan, one.name, store)}
    return tuple(found[table.name] for table in plan.tables if table.name in found)


def _refuse_past(planned: Planned, *, cascade: bool) -> None:
    past = [one for one in planned.readers if one.fate == "past" or one.version > planned.version]
    if past and not cascade:
        said = ", ".join(f"{one.name} has read up to version {one.version}" for one in past)
        raise UsageError(
            f"{planned.table.name} cannot go back to version {planned.version} by itself: {said}",
            hint="--cascade takes them along, --dry-run with it says how",
        )
