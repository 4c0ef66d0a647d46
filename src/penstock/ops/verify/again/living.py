"""The rows of a merged table that everybody sees, without what it remembers of deleted ones."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.engine.merge.changes import values_of
from penstock.engine.merge.tombstones import alive
from penstock.plan.stages import MergePlan


def living_rows(rows: DataFrame) -> DataFrame:
    return alive(rows)


def own_values(columns: Sequence[str], merge: MergePlan) -> list[str]:
    """Columns that its changes give: neither its keys nor those that the merge adds."""
    return values_of(columns, merge)
