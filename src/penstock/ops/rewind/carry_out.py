"""Taking a table back to an earlier version, and along with it those that have read what goes.

Readers that have not are stopped first, so that none reads on meanwhile; they step over what is undone at their next
start. Then the table goes back, in one commit; then what is made of it is made anew, one table after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pyspark.sql import SparkSession

from penstock.engine.completing import is_complete
from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.replay.fill import Filled
from penstock.engine.replay.pending import pending_replay
from penstock.engine.replay.resume import replay
from penstock.engine.rewind.jump import halt, is_past
from penstock.engine.rewind.pending import pending_halt, pending_rewind
from penstock.engine.rewind.rewinding import give_up, planned, refuse_files, rewind
from penstock.engine.rewind.source_there import refuse_gone
from penstock.engine.store import HadoopStore, LocalStore, Store
from penstock.errors import Conflict, UsageError
from penstock.ops.replay.carry_out import working_on
from penstock.ops.rewind.model import Behind, Planned
from penstock.ops.rewind.plan import plan_rewind
from penstock.plan.model import Plan, TablePlan

Told = Callable[[str, str], None]
"""A table, and what is being done with it."""


@dataclass(frozen=True)
class Done:
    table: TablePlan
    tail: Tail
    filled: Filled | None = None
    """Of a table that was made anew."""


def look(spark: SparkSession, plan: Plan, asked: Planned) -> None:
    """Raises where it could not be carried out; changes nothing."""
    with working_on(spark, plan, asked.table) as work:
        tail = work.end()
        found = planned(work, tail, asked.version)
        refuse_gone(work, tail.entry, found.goes_on)
        refuse_files(work, found)


def carry_out(spark: SparkSession, plan: Plan, asked: Planned, told: Told) -> Iterator[Done]:
    """Killed anywhere, the next start of the tables finishes what was begun; what was to be made anew and is not is
    named by `status`."""
    table = asked.table
    look(spark, plan, asked)
    asked = _as_it_is_now(spark, plan, asked)
    halted = {}
    for one in asked.readers:
        if one.halts:
            told(one.name, "is stopped")
            halted[one.name] = _halt(spark, plan, one, asked)
    with working_on(spark, plan, table) as work:
        told(table.name, f"goes back to version {asked.version}")
        tail = rewind(work, asked.version, lambda: _refuse_gone_on(spark, plan, asked, halted))
    yield Done(table, tail)
    at = {table.name: tail.commit.version}
    for reader in asked.cascade:
        name = reader.table.name
        version = at[next(one for one in reader.table.upstream if one in at)]
        note = f"replay, after the rewind of {table.name}"
        with working_on(spark, plan, reader.table) as work:
            filled = replay(work, version, note, lambda what, name=name: told(name, what))  # type: ignore[misc]
        at[name] = filled.tail.commit.version
        yield Done(reader.table, filled.tail, filled)


def _as_it_is_now(spark: SparkSession, plan: Plan, asked: Planned) -> Planned:
    """Readers go on while Spark starts: one that was to step over may be past by now, and is taken along then."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    return plan_rewind(plan, asked.table, store, version=asked.version, before=None, cascade=asked.takes_along)


def abort(spark: SparkSession, plan: Plan, table: TablePlan) -> int:
    """The generation with which the table goes on as it is."""
    with working_on(spark, plan, table) as work:
        acquire_commit(work.lock, table.name)
        try:
            tail = work.end()
            if pending_rewind(tail.entry) is None:
                raise UsageError(f"no rewind of {table.name} is open", hint="there is nothing to abort")
            return give_up(work, tail).entry.generation
        finally:
            work.lock.release()


def _halt(spark: SparkSession, plan: Plan, one: Behind, asked: Planned) -> int:
    """The generation in which it waits."""
    with working_on(spark, plan, one.reader.table) as work:
        acquire_commit(work.lock, one.name)
        try:
            tail = work.end()
            if one.fate == "jumps" and is_past(tail.entry.after[0], asked.version):
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
            return halt(work, tail, asked.newest).entry.generation
        finally:
            work.lock.release()


def _refuse_gone_on(spark: SparkSession, plan: Plan, asked: Planned, halted: dict[str, int]) -> None:
    """A runner that was just starting may have found nothing to wait for, and gone on."""
    for one in asked.readers:
        if one.name in halted:
            with working_on(spark, plan, one.reader.table) as work:
                entry = work.end().entry
            if entry.generation != halted[one.name] or pending_halt(entry) is None:
                raise _moved(one, asked)


def _moved(one: Behind, asked: Planned) -> Conflict:
    return Conflict(
        f"it read on while {asked.table.name} was to go back to version {asked.version}",
        where=one.name,
        hint="nothing was changed. Give the command again: it says how far its readers are now",
    )
