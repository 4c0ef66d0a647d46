"""Columns that Penstock adds to rows: where a row came from, what a change did, and whether a row of a merged table
is deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.sql_text import quote
from penstock.spec.table_kinds import OWN, SINCE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.model import Input, TablePlan

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"


# A deleted row leaves a tombstone, so that a change that comes late does not bring it back. Nobody else sees it.


SEQUENCE, DELETED, DELETED_AT = OWN


def living(rows: DataFrame) -> DataFrame:
    """The rows of a merged table as everybody but its own writer sees them."""
    return alive(rows).drop(*OWN, SINCE)


def alive(rows: DataFrame) -> DataFrame:
    """The same rows with all their columns."""
    return rows.where(f"NOT {DELETED}")


# `_source`: where a row came from. It is what tells rows apart that look alike, and what `verify` counts by.


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
