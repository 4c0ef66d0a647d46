"""What a replay would change in a table, and in its quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.aggregate.groups import group_names
from penstock.engine.merge.tombstones import DELETED_AT, SEQUENCE
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.preview import preview
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.store import Store
from penstock.ops.replay.carry_out import working_on
from penstock.ops.replay.difference import Difference, difference
from penstock.ops.replay.difference import document as difference_document
from penstock.ops.replay.model import Planned
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of

REASON = "error_reason"


@dataclass(frozen=True)
class Outlook:
    rows: Difference
    rejected_now: dict[str, int] = field(default_factory=dict)
    """Rows in quarantine by reason."""
    rejected_then: dict[str, int] = field(default_factory=dict)


def document(outlook: Outlook) -> dict[str, Any]:
    return {
        **difference_document(outlook.rows),
        "quarantine": {"now": outlook.rejected_now, "then": outlook.rejected_then},
    }


def dry_run(spark: SparkSession, plan: Plan, planned: Planned) -> Outlook:
    table = planned.table
    with working_on(spark, plan, table) as work:
        tail = read_tail(work.log)
        assert tail is not None
        with preview(work, tail, planned.at, (planned.after,)) as shown:
            found = difference(shown.now, shown.then, told_apart_by(table), table.write.partition_by, _times(table))
            then: dict[str, int] = {}
            if shown.rejected is not None:
                counted = shown.rejected.groupBy("why.reason").count().collect()
                then = {str(row[0]): int(row[1]) for row in counted}
    return Outlook(found, _quarantined(spark, work.store, table), then)


def told_apart_by(table: TablePlan) -> Sequence[str]:
    if table.aggregate is not None:
        return group_names(table.aggregate)
    if table.write.merge is not None:
        merge = table.write.merge
        return [*merge.keys, *([SEQUENCE] if merge.history == "scd2" else [])]
    if table.stages is None:
        return [table.columns[name] for name in ("topic", "partition", "offset")] if table.columns else []
    return [SOURCE] if table.write.source and table.input.stable else []


def _times(table: TablePlan) -> list[str]:
    landed = table.columns.get("ingestion_timestamp") if table.stages is None else None
    return [DELETED_AT, *([landed] if landed else [])]


def _quarantined(spark: SparkSession, store: Store, table: TablePlan) -> dict[str, int]:
    place = quarantine_of(table.name, table.uri)
    if not table.may_reject or not DeltaLog(store, place.uri, place.table).versions():
        return {}
    rows = spark.read.format("delta").load(place.uri)
    return {str(row[0]): int(row[1]) for row in rows.groupBy(REASON).count().collect()}
