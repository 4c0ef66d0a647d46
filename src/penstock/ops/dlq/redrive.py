"""`dlq redrive`: rejected rows run once more."""

from __future__ import annotations

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.redrive.records import refuse_kind
from penstock.engine.redrive.redrive import Redriven
from penstock.engine.redrive.redrive import redrive as run_again
from penstock.engine.stages.decode import literal
from penstock.engine.store import Store
from penstock.errors import UsageError
from penstock.ops.replay.carry_out import working_on
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of


def asked_for(reason: str | None, where: str | None) -> str | None:
    """The condition upon rows of the quarantine; None: all."""
    parts = [f"error_reason = {literal(reason)}"] if reason is not None else []
    parts += [f"({where})"] if where is not None else []
    return " AND ".join(parts) or None


def refuse_without(table: TablePlan, store: Store) -> None:
    """UsageError where nothing can be redriven; before Spark is started."""
    refuse_kind(table)
    place = quarantine_of(table.name, table.uri)
    if not DeltaLog(store, place.uri, place.table).versions():
        raise UsageError(f"{table.name} has no quarantine yet", hint="it is made with the table: `penstock run`")


def chosen_rows(spark: SparkSession, plan: Plan, table: TablePlan, condition: str | None) -> dict[str, int]:
    """Rows of the quarantine that would be run again, by reason."""
    rows = spark.read.format("delta").load(quarantine_of(table.name, table.uri).uri)
    try:
        found = (rows.where(condition) if condition else rows).groupBy("error_reason").count().collect()
    except (AnalysisException, ParseException) as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "it cannot be read")
        raise UsageError(
            f"--where is no condition upon these rows: {said}", hint=f"columns: {', '.join(rows.columns)}"
        ) from None
    return {str(row[0]): int(row[1]) for row in found}


def redrive(spark: SparkSession, plan: Plan, table: TablePlan, condition: str | None) -> list[Redriven]:
    with working_on(spark, plan, table) as work:
        return run_again(work, condition)
