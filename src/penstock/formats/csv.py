"""CSV lines and plain text.

A record is split by a function of the JVM, jar_data/java/penstock/csv: Spark's parser takes a half-quoted cell for
text, reads the first of two lines, and does not distinguish an empty text from a missing value. Every cell is read as
text and then converted by the same rules as JSON (docs/types.md): jar_data/java/penstock/json/Cells.java. A value that
does not fit is a fault of its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.formats.base import PARSED, Decoded, absent, case, reason
from penstock.spark.jvm import java_column, penstock_class
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.plan.stages import DecodePlan
    from penstock.spec.schema import Struct

CORRUPT = "__corrupt"
"""What is wrong with a record, in words; NULL if nothing is."""
TYPED = "__typed"
"""The columns of the schema, and the reason of a record that has a value which does not fit."""
_SHOWN = 80


@dataclass(frozen=True)
class CsvDecoder:
    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        fields, column = self.plan.schema.fields, quote(self.plan.column)
        parsed = cells(records.sparkSession, F.expr(column), [field.name for field in fields], self.plan.options)
        frame = with_types(records.withColumn(PARSED, parsed), self.plan.schema)
        bad = (
            f"{column} IS NULL OR {PARSED} IS NULL OR trim({column}) = '' OR {PARSED}.{CORRUPT} IS NOT NULL"
            f" OR {TYPED}.__reason IS NOT NULL"
        )
        columns = tuple((field.name, f"{TYPED}.{quote(field.name)}") for field in fields)
        return Decoded(frame, columns, f"({bad})", self._why())

    def _why(self) -> str:
        column = quote(self.plan.column)
        conditions = absent(self.plan.column, self.binary)
        conditions.append(
            (
                f"{PARSED} IS NULL OR {PARSED}.{CORRUPT} IS NOT NULL",
                reason("malformed_csv", f"concat({PARSED}.{CORRUPT}, ': ', left({column}, {_SHOWN}))"),
            )
        )
        return case(conditions, f"named_struct('reason', {TYPED}.__reason, 'detail', {TYPED}.__detail)")


def with_types(frame: DataFrame, schema: Struct) -> DataFrame:
    """Adds TYPED, made from the texts in PARSED."""
    spark = frame.sparkSession
    zone = spark.conf.get("spark.sql.session.timeZone")
    typed = penstock_class(spark, "Cells").column(java_column(F.col(PARSED)), schema.columns(), zone)
    return frame.withColumn(TYPED, JvmColumn(typed))


def cells(spark: SparkSession, text: Column, names: Sequence[str], options: Mapping[str, str]) -> Column:
    """The cells of a record as a struct of texts with these names, and CORRUPT."""
    return JvmColumn(penstock_class(spark, "Cells", "csv").column(java_column(text), list(names), dict(options)))


@dataclass(frozen=True)
class TextDecoder:
    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        column = quote(self.plan.column)
        name = self.plan.schema.fields[0].name if self.plan.schema else self.plan.column
        conditions = absent(self.plan.column, self.binary)[:-1]  # an empty text is a text
        why = case(conditions, reason("no_value", literal(f"{self.plan.column} is null")))
        return Decoded(records, ((name, column),), f"({column} IS NULL)", why)
