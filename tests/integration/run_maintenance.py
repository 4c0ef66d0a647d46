"""optimize and vacuum in the session of the tests, as the commands do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.maintenance.optimize import optimize as optimize_table
from penstock.maintenance.retention import files_needed, needs
from penstock.maintenance.tables import exclusive_maintenance, maintained_tables, paused_batches
from penstock.maintenance.vacuum import list_removable
from penstock.maintenance.vacuum import vacuum as vacuum_table
from penstock.storage.stores import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.maintenance.optimize import Optimized
    from penstock.maintenance.vacuum import Vacuumed
    from penstock.plan.model import Plan, TablePlan


def table_of(plan: Plan, name: str) -> TablePlan:
    found = plan.table(name)
    assert found is not None
    return found


def optimize(spark: SparkSession, plan: Plan, name: str, *, full: bool = False) -> Optimized:
    table = table_of(plan, name)
    pause_batches = paused_batches(spark, plan, name)
    with exclusive_maintenance(spark, plan, name):
        return optimize_table(
            spark,
            plan,
            table,
            maintained_tables(table)[0],
            LocalStore(),
            by="a test",
            pause_batches=pause_batches,
            full=full,
            concurrent=True,
        )


def vacuum(spark: SparkSession, plan: Plan, name: str, *, hours: float = 0) -> Vacuumed:
    """With this retention asked for."""
    table = table_of(plan, name)
    pause_batches = paused_batches(spark, plan, name)
    retain = round(hours * 3_600_000)
    with exclusive_maintenance(spark, plan, name):
        return vacuum_table(
            spark,
            plan,
            table,
            maintained_tables(table)[0],
            LocalStore(),
            by="a test",
            pause_batches=pause_batches,
            retain_ms=retain,
        )


def would_be_lost(spark: SparkSession, plan: Plan, name: str, now_ms: int) -> set[str]:
    """Files that somebody needs, and that Delta's VACUUM would delete if it were told an hour."""
    table = table_of(plan, name)
    found = needs(plan, table, maintained_tables(table)[0], LocalStore(), now_ms)
    return set(files_needed(LocalStore(), table.uri, found)) & set(list_removable(spark, table.uri, 1))
