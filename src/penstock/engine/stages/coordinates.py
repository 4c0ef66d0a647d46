"""`_source`: where a row came from. It is what tells rows apart that look alike, and what `verify` counts by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.identifiers import quote
from penstock.plan.model import Input, TablePlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE = "_source"
FILE, ROW = "__file", "__row"
"""Of rows without coordinates: their reader adds the file, and the place in it if that is known."""


def with_source(records: DataFrame, brought: Input) -> DataFrame:
    if brought.coordinates == "carried":
        return records
    if brought.coordinates == "file":
        row = ROW if ROW in records.columns else "monotonically_increasing_id()"  # tells those of one batch apart
        return records.selectExpr("*", f"named_struct('file', {FILE}, 'row', {row}) AS {SOURCE}").drop(FILE, ROW)
    topic, partition, offset = (quote(brought.raw[name]) for name in ("topic", "partition", "offset"))
    place = f"named_struct('topic', {topic}, 'partition', {partition}, 'offset', {offset})"
    return records.selectExpr("*", f"{place} AS {SOURCE}")


def with_own_source(rows: DataFrame, table: TablePlan) -> DataFrame:
    """Rows of the table itself. A copy of a table that landed a topic has the coordinates as columns, like that one."""
    return with_source(rows, table.input) if table.stages is None else rows
