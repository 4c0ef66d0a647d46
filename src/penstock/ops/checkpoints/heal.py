"""A checkpoint rebuilt from the ledger now, without waiting for a start.

On a local lake under both locks of the table, as every writer takes them. On an object store there are none: there a
runner that works is known by what it said last, and each start makes a checkpoint of its own anyway.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.locks import ProcessLock, acquire_commit, acquire_run, holder, lock_path, owner
from penstock.engine.store import Store
from penstock.errors import LockHeld, Terminal
from penstock.observe.state import read_state
from penstock.ops.checkpoints.look import Look, look
from penstock.ops.status import ALIVE, is_gone
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class Healing:
    table: str
    folder: str
    entry: Entry
    why: str | None
    """What is wrong with the checkpoint; None: it is in step with the ledger, and nothing is to be done."""


def plan_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """What a heal would do; None if there is no table. Raises what a start would raise, and LockHeld while a runner
    works on the table."""
    _refuse_runner(plan, table, store)
    return _judge(look(table, store))


def carry_out(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """The same, done; what was found wrong is in the answer. Killed anywhere, it can be run again: a folder that is
    half made is no checkpoint, and one that is missing is made."""
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(ProcessLock(path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(ProcessLock(path))), table.name)
        else:
            _refuse_runner(plan, table, store)
        found = _judge(look(table, store))
        if found is None or found.why is None:
            return found
        heal(store, found.folder, found.entry)
        after = look(table, store)
        if not after.in_step:
            raise Terminal(
                f"the checkpoint was rebuilt, and is still not in step with the ledger: {after.why or after.refusal}",
                where=table.name,
                hint="somebody else writes to it: find out who, and run this again",
            )
        return found


def _judge(seen: Look) -> Healing | None:
    if seen.refusal is not None:
        raise seen.refusal
    if seen.entry is None or seen.folder is None:
        return None
    if seen.table.stream is not None and seen.why is not None:
        raise Terminal(
            f"its checkpoint holds Spark's first, empty state, which Spark alone makes: {seen.why}",
            where=seen.table.name,
            hint=f"no row was written yet: `penstock run {seen.table.name}` begins it",
        )
    return Healing(seen.table.name, seen.folder, seen.entry, seen.why)


def _refuse_runner(plan: Plan, table: TablePlan, store: Store) -> None:
    if plan.local:
        path = lock_path(plan.system, table.name, "run")
        if holder(path) is not None:
            by = owner(path)
            raise _held(table.name, f"process {by.get('python')}, since {by.get('since')}")
        return
    said = read_state(store, plan.system, table.name)
    if said is not None and said.state in ALIVE and not is_gone(said):
        raise _held(table.name, f"process {said.process} on {said.host}, {said.state} since {said.since}")


def _held(table: str, who: str) -> LockHeld:
    return LockHeld(
        f"another penstock process works on this table ({who})",
        where=table,
        hint="a running table needs no heal: it compares its checkpoint when it starts. Stop that process first",
    )
