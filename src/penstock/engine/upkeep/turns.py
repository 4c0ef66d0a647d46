"""Taking turns on a local lake: with other commands that look after files, and with the batches of the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

from pyspark.sql import SparkSession

from penstock.engine.protocol.locks import JvmLock, acquire_commit, lock_path, owner
from penstock.errors import LockHeld
from penstock.plan.model import Plan

Hold = Callable[[], AbstractContextManager[None]]
"""While it is held the table has no batch."""
_PATIENCE = 600.0


@contextmanager
def alone(spark: SparkSession, plan: Plan, table: str) -> Iterator[None]:
    """Nobody else looks after the files of the table meanwhile: a vacuum would take what an optimize has just written
    and not committed for files that nobody needs. Raises LockHeld."""
    if not plan.local:
        yield
        return
    path = lock_path(plan.system, table, "upkeep")
    with closing(JvmLock(spark, path)) as lock:
        if not lock.try_acquire():
            by = owner(path)
            raise LockHeld(
                f"another command looks after its files (process {by.get('python')}, since {by.get('since')})",
                where=table,
                hint="wait for it, then run this again",
            )
        lock.sign()
        yield


def held_still(spark: SparkSession, plan: Plan, table: str) -> Hold:
    """For a command beside a runner: the table's batches wait, each for two minutes at most, then they try again."""

    @contextmanager
    def hold() -> Iterator[None]:
        if not plan.local:
            yield
            return
        with closing(JvmLock(spark, lock_path(plan.system, table, "commit"))) as lock:
            acquire_commit(lock, table, patience=_PATIENCE)
            yield

    return hold
