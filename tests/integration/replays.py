"""Replays in this process, as the command does them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.engine.store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.replay.fill import Work
    from penstock.plan.model import Plan


def work_on(spark: SparkSession, plan: Plan, name: str) -> Work:
    from penstock.engine.protocol.locks import JvmLock, lock_path
    from penstock.engine.replay.fill import Work
    from penstock.engine.sources import Sources

    table = plan.table(name)
    assert table is not None
    store = LocalStore()
    lock = JvmLock(spark, lock_path(plan.system, name, "commit"))
    return Work(spark, table, store, Sources(lambda _: store, spark).open(table), lock, idempotent=False)


def replayed(spark: SparkSession, plan: Plan, name: str, at: int | None = None) -> Any:
    from penstock.engine.replay.resume import replay

    return replay(work_on(spark, plan, name), at, "test")
