"""JSON objects. Spark's parser does not report half of what can be wrong with a record, so Penstock has its own parser:
a function of the JVM, jar_data/java/penstock/json, that gives the typed values or, for a faulty record, its fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.errors import SetupError
from penstock.formats.base import PARSED, Decoded, absent, case
from penstock.spark.jvm import java_column, jvm_of
from penstock.spark.sql_text import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.plan.stages import DecodePlan

RESCUED = "_rescued"
UNKNOWN = f"{PARSED}.__unknown"
"""The first field of a record, at any depth, that the schema does not name."""
_HINT = "let Penstock make the session, or put {jar} onto the driver's class path: spark.driver.extraClassPath"


@dataclass(frozen=True)
class JsonDecoder:
    plan: DecodePlan
    binary: str | None
    """The column that holds payloads that are not UTF-8."""
    expected: tuple[str, ...] = ()
    """Fields of the object that the schema does not name, and that are not unknown."""
    deep: bool = False
    """Unknown fields of nested objects are rescued too, by their paths."""

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        columns = [(field.name, f"{PARSED}.{quote(field.name)}") for field in self.plan.schema.fields]
        if self.plan.rescue:
            columns.append((RESCUED, f"{PARSED}.__rescued"))
        why = case(
            absent(self.plan.column, self.binary),
            f"named_struct('reason', {PARSED}.__reason, 'detail', {PARSED}.__detail)",
        )
        frame = records.withColumn(PARSED, self._parsed(records))
        return Decoded(frame, tuple(columns), f"({PARSED}.__reason IS NOT NULL)", why)

    def _parsed(self, records: DataFrame) -> Column:
        assert self.plan.schema is not None
        spark = records.sparkSession
        decoder = penstock_class(spark, "Decoder")
        text = F.expr(quote(self.plan.column))
        zone = spark.conf.get("spark.sql.session.timeZone")
        ddl, expected = self.plan.schema.columns(), list(self.expected)
        decoded = decoder.column(java_column(text), ddl, zone, self.plan.rescue, self.deep, expected)
        return JvmColumn(decoded)


def penstock_class(spark: SparkSession, name: str, package: str = "json") -> JavaClass:
    """A class of penstock.json, or of another package of Penstock's own."""
    jvm = jvm_of(spark)
    java_class = getattr(getattr(jvm.penstock, package), name)
    if not isinstance(java_class, JavaClass):
        from penstock.spark.jars import own_jar

        raise SetupError("this Spark session lacks Penstock's own jar", hint=_HINT.format(jar=own_jar()))
    return java_class
