"""CSV lines and plain text.

Every field is read as text and then converted by the rules that JSON has (docs/types.md), in the JVM:
jar_data/java/penstock/json/Cells.java. A value that does not fit is a fault of its record: the parser would round it,
or make NULL of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.engine.identifiers import quote
from penstock.engine.stages.decode import PARSED, Decoded, absent, case, literal, reason
from penstock.engine.stages.json import own_class
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import Struct

CORRUPT = "__corrupt"
TYPED = "__typed"
"""The columns of the schema, and the reason of a line that has a value which does not fit."""
_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
_SHOWN = 80


@dataclass(frozen=True)
class CsvDecoder:
    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        fields, column = self.plan.schema.fields, quote(self.plan.column)
        wanted = ", ".join(f"{quote(field.name)} STRING" for field in fields)
        parsed = F.from_csv(F.expr(column), F.lit(f"{wanted}, {CORRUPT} STRING"), {**_OPTIONS, **self.plan.options})
        frame = with_types(records.withColumn(PARSED, or_null(records, parsed)), self.plan.schema)
        bad = (
            f"{column} IS NULL OR {PARSED} IS NULL OR trim({column}) = '' OR {PARSED}.{CORRUPT} IS NOT NULL"
            f" OR {self._zero} OR {TYPED}.__reason IS NOT NULL"
        )
        columns = tuple((field.name, f"{TYPED}.{quote(field.name)}") for field in fields)
        return Decoded(frame, columns, f"({bad})", self._why(len(fields)))

    @property
    def _zero(self) -> str:
        """Whether a line may have lost a NUL character: Spark's parser drops them from a last field in quotes."""
        column, sign = quote(self.plan.column), self.plan.options.get("quote", '"')
        return f"(contains({column}, chr(0)) AND contains({column}, {literal(sign)}))"

    def _why(self, count: int) -> str:
        column = quote(self.plan.column)
        conditions = absent(self.plan.column, self.binary)
        zero = literal("a NUL character in a line with quotes: ")
        conditions.append((self._zero, reason("malformed_csv", f"concat({zero}, left({column}, {_SHOWN}))")))
        conditions.append(
            (
                f"{PARSED} IS NULL OR {PARSED}.{CORRUPT} IS NOT NULL",
                reason("malformed_csv", f"concat('not {count} fields: ', left({column}, {_SHOWN}))"),
            )
        )
        return case(conditions, f"named_struct('reason', {TYPED}.__reason, 'detail', {TYPED}.__detail)")


def with_types(frame: DataFrame, schema: Struct) -> DataFrame:
    """With TYPED, made of the texts in PARSED."""
    spark = frame.sparkSession
    zone = spark.conf.get("spark.sql.session.timeZone")
    made = own_class(spark, "Cells").column(F.col(PARSED)._jc, schema.columns(), zone)
    return frame.withColumn(TYPED, JvmColumn(made))


def or_null(records: DataFrame, parsed: Column) -> Column:
    """NULL where Spark's parser raises, as it does for a line of more than 20,480 fields: that would stop the table."""
    return JvmColumn(own_class(records.sparkSession, "Cells").orNull(parsed._jc))


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
