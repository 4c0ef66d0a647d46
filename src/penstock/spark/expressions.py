"""Expressions that may raise on a row, guarded; and a few known rows as a DataFrame."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.spark.jvm import java_column, java_frame, penstock_class
from penstock.spark.sql_types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

# A few rows that this process already has, as a DataFrame.
#
# `createDataFrame` passes them through a Python process of the executor, which takes a second to start, and fails if
# the machine's `python3` is not the one that runs this process.


def known_rows(spark: SparkSession, columns: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """In one partition. `columns` as `path: STRING, size: BIGINT`."""
    return spark.sql(
        f"SELECT inline(from_json(:rows, 'ARRAY<STRUCT<{columns}>>'))", args={"rows": json.dumps(list(rows))}
    )


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    columns = [F.lit(None).cast(sql_type(field.dataType)).alias(field.name) for field in schema.fields]
    return spark.range(0, numPartitions=1).select(*columns)


# Expressions that may raise on a row, guarded; and rows on which nothing is evaluated too early.
#
# Python's side of jar_data/java/penstock/isolation.


_PACKAGE = "isolation"
_MAKES_MAPS = re.compile(r"\b(map|map_from_arrays|map_from_entries|map_concat|str_to_map|transform_keys)\s*\(", re.I)


def attempt(spark: SparkSession, expression: str) -> Column:
    """The value of an expression, NULL on rows on which it raises."""
    return JvmColumn(penstock_class(spark, "Attempt", _PACKAGE).column(_jvm_column(spark, expression)))


def error_of(spark: SparkSession, expression: str) -> Column:
    """The error that an expression raises on a row, in one line; NULL if it has a value."""
    return JvmColumn(penstock_class(spark, "ErrorOf", _PACKAGE).column(_jvm_column(spark, expression)))


def with_fence(rows: DataFrame) -> DataFrame:
    """The same rows; no later expression is moved before the filter that chose them."""
    spark = rows.sparkSession
    return DataFrame(penstock_class(spark, "Fence", _PACKAGE).around(java_frame(rows)), spark)


def selected(rows: DataFrame, where: str) -> DataFrame:
    """The rows that meet a condition, and those on which it raises: what happens to these is decided later."""
    plain = rows.where(where)
    if cannot_raise(plain):
        return plain
    spark = rows.sparkSession
    return rows.where(F.coalesce(attempt(spark, where), error_of(spark, where).isNotNull()))


def cannot_raise(filtered: DataFrame) -> bool:
    """Whether the condition of a filter is made of nothing but comparisons of columns and values."""
    return bool(penstock_class(filtered.sparkSession, "Failures", _PACKAGE).cannotRaise(java_frame(filtered)))


def _jvm_column(spark: SparkSession, expression: str) -> Any:
    column = java_column(F.expr(f"({expression})"))
    return penstock_class(spark, "Interpreted", _PACKAGE).column(column) if _MAKES_MAPS.search(expression) else column
