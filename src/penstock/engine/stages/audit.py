"""One row per change of another table: who, what, when, before and after."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.transform import Transform
from penstock.plan.stages import AuditPlan

_TYPE, _VERSION, _TIME = "_change_type", "_commit_version", "_commit_timestamp"
_ALONE = "__alone"


def audit(plan: AuditPlan) -> Transform:
    def run(rows: DataFrame, lookups: Mapping[str, DataFrame], time_ms: int) -> DataFrame:
        return _told(rows, plan)

    return run


def _told(rows: DataFrame, plan: AuditPlan) -> DataFrame:
    """The two images of an update lie in one commit, and so in one batch; they belong together by the keys. An insert
    or a delete is a change by itself, even if its keys are there twice."""
    columns = [name for name in rows.columns if name not in (_TYPE, _VERSION, _TIME, SOURCE)]
    image = f"struct({', '.join(map(quote, columns))})"
    who = f"CAST(({plan.who}) AS STRING)" if plan.who is not None else "CAST(NULL AS STRING)"
    told = rows.selectExpr(
        *map(quote, plan.keys),
        _VERSION,
        _TIME,
        f"{_TYPE} AS __type",
        f"{image} AS __row",
        f"{who} AS __who",
        f"{SOURCE} AS __place",
        f"IF({_TYPE} IN ('insert', 'delete'), monotonically_increasing_id(), -1) AS {_ALONE}",
    )
    one = "struct(__row AS row, __who AS who, __place AS place)"
    pairs = told.groupBy(_VERSION, _TIME, *map(quote, plan.keys), _ALONE).agg(
        F.expr(f"collect_list(IF(__type IN ('delete', 'update_preimage'), {one}, NULL))").alias("before"),
        F.expr(f"collect_list(IF(__type IN ('insert', 'update_postimage'), {one}, NULL))").alias("after"),
    )
    changes = pairs.selectExpr(_VERSION, _TIME, *map(quote, plan.keys), "explode(arrays_zip(before, after)) AS change")
    kind = "CASE WHEN change.before IS NULL THEN 'insert' WHEN change.after IS NULL THEN 'delete' ELSE 'update' END"
    return changes.selectExpr(
        *map(quote, plan.keys),
        f"{kind} AS change_type",
        "coalesce(change.after, change.before).who AS changed_by",
        f"{_TIME} AS changed_at",
        f"{_VERSION} AS version",
        "change.before.row AS before",
        "change.after.row AS after",
        f"coalesce(change.after, change.before).place AS {SOURCE}",
    )
