"""Columns that Penstock adds to rows: where a row came from, what a change did, and whether a row of a merged table is
deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.sql_text import quote
from penstock.spec.table_kinds import MERGE_COLUMNS, SINCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.model import Input, TablePlan

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"


# A deleted row leaves a tombstone, so that a late change does not bring it back. Only the table's own writer sees it.


SEQUENCE, DELETED, DELETED_AT = MERGE_COLUMNS


def without_tombstones(rows: DataFrame) -> DataFrame:
    """The rows of a merged table as readers see them."""
    return alive(rows).drop(*MERGE_COLUMNS, SINCE)


def alive(rows: DataFrame) -> DataFrame:
    """The same rows with all their columns."""
    return rows.where(f"NOT {DELETED}")


# `_source`: where a row came from. It distinguishes rows with equal values, and `verify` counts by it.


SOURCE = "_source"
FILE, ROW = "__file", "__row"
"""For rows without coordinates: their reader adds the file, and the row's number in it if that is known."""


def with_source(records: DataFrame, input_plan: Input) -> DataFrame:
    if input_plan.coordinates == "carried":
        return records
    if input_plan.coordinates == "file":
        row = ROW if ROW in records.columns else "monotonically_increasing_id()"  # unique within a batch
        return records.selectExpr("*", f"named_struct('file', {FILE}, 'row', {row}) AS {SOURCE}").drop(FILE, ROW)
    topic, partition, offset = (quote(input_plan.raw[name]) for name in ("topic", "partition", "offset"))
    coordinates = f"named_struct('topic', {topic}, 'partition', {partition}, 'offset', {offset})"
    return records.selectExpr("*", f"{coordinates} AS {SOURCE}")


def with_own_source(rows: DataFrame, table: TablePlan) -> DataFrame:
    """For rows of the table itself. A copy of a table that landed a topic has the coordinates as columns, like it."""
    return with_source(rows, table.input) if table.stages is None else rows
