"""Replays in this process, as the command does them, and what tables hold before and after."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.storage.stores import LocalStore
from tests.integration.run_plan import rows_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan
    from penstock.tables.session import TableSession

OF_THE_BATCH = ("generation", "batch", "error_timestamp", "definition", "ingestion_timestamp", "_deleted_at")
"""Columns that say when, and in which batch, a row was written."""


def work_on(spark: SparkSession, plan: Plan, name: str, *, remote: bool = False) -> TableSession:
    """`remote`: as on a store that has none of our locks."""
    from penstock.storage.locks import JvmLock, Lock, NoLock, lock_path
    from penstock.tables.session import TableSession
    from penstock.tables.stream import Sources

    table = plan.table(name)
    assert table is not None
    store = LocalStore()
    lock: Lock = NoLock() if remote else JvmLock(spark, lock_path(plan.system, name, "commit"))
    return TableSession(spark, table, store, Sources(lambda _: store, spark).open(table), lock, idempotent=remote)


def replayed(spark: SparkSession, plan: Plan, name: str, at: int | None = None, *, remote: bool = False) -> Any:
    from penstock.operations.replay import replay

    work = work_on(spark, plan, name, remote=remote)
    try:
        return replay(work, at, "test")
    finally:
        work.lock.close()


def content(plan: Plan, name: str) -> Counter[str]:
    """As a multiset, without what says when a row was written."""
    table = plan.table(name)
    assert table is not None
    return _counted(table.uri)


def rejected(plan: Plan, name: str) -> Counter[str]:
    table = plan.table(name)
    assert table is not None
    return _counted(f"{table.uri}__quarantine")


def _counted(uri: str) -> Counter[str]:
    return Counter(
        json.dumps({name: str(value) for name, value in row.items() if name not in OF_THE_BATCH}, sort_keys=True)
        for row in rows_at(uri)
    )
