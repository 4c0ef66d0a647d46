"""Replaying a table, and what is made of it, one after the other. Each is one commit that its readers see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pyspark.sql import SparkSession

from penstock.engine.protocol.locks import JvmLock, Lock, NoLock, lock_path, owner
from penstock.engine.replay.fill import Filled, Work
from penstock.engine.replay.resume import abort, owed, replay
from penstock.engine.sources import Sources
from penstock.engine.store import HadoopStore, LocalStore, Store
from penstock.errors import LockHeld, Terminal
from penstock.ops.replay.model import Planned
from penstock.plan.model import Plan, TablePlan

Told = Callable[[str, str], None]
"""A table, and what is being done with it."""


def carry_out(spark: SparkSession, plan: Plan, planned: Planned, told: Told) -> Iterator[tuple[TablePlan, Filled]]:
    """Tables are done one by one. Killed in between, those that are done stay so, and `status` names the others."""
    note = "replay" if planned.at is None else f"replay of version {planned.at}"
    at: dict[str, int] = {}
    for table in (planned.table, *(reader.table for reader in planned.cascade)):
        version = planned.at if table is planned.table else at[_read_by(table, at)]
        with working_on(spark, plan, table) as work:
            filled = replay(work, version, note, lambda what, name=table.name: told(name, what))  # type: ignore[misc]
        at[table.name] = filled.tail.commit.version
        yield table, filled
        note = f"replay, after {planned.table.name}"


def give_up(spark: SparkSession, plan: Plan, table: TablePlan) -> int:
    """The generation with which the table goes on as it is."""
    with working_on(spark, plan, table) as work:
        tail = owed(work)
        if tail is None:
            raise Terminal("no replay of it is open", where=table.name, hint="there is nothing to abort")
        return abort(work, tail).entry.generation


@contextmanager
def working_on(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[Work]:
    """Beside the table's runner, but not beside another replay."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    alone: Lock = NoLock()
    commits: Lock = NoLock()
    try:
        if plan.local:
            path = lock_path(plan.system, table.name, "replay")
            alone = JvmLock(spark, path)
            if not alone.try_acquire():
                raise LockHeld(
                    f"another process replays it (process {owner(path).get('python', 'unknown')})",
                    where=table.name,
                    hint="wait for it: `penstock status`; if it hangs, end it and run this again",
                )
            alone.sign()
            commits = JvmLock(spark, lock_path(plan.system, table.name, "commit"))
        yield Work(spark, table, store, Sources(lambda _: store, spark).open(table), commits, not plan.local)
    finally:
        for lock in (commits, alone):
            with suppress(Exception):
                lock.close()


def _read_by(table: TablePlan, done: dict[str, int]) -> str:
    return next(name for name in table.upstream if name in done)
