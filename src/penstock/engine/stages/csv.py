"""CSV lines and plain text.

A record is taken apart by a function of the JVM, jar_data/java/penstock/csv: Spark's parser takes a half-quoted cell
for text, reads the first of two lines, and makes no difference between an empty text and no value. Every cell is read
as text and then converted, so that a value that does not fit is a fault of its record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.engine.identifiers import quote
from penstock.engine.stages.decode import PARSED, Decoded, absent, case, literal, reason
from penstock.engine.stages.json import own_class
from penstock.engine.stages.leaves import Read, any_of, read
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import MAX_PRECISION, Column, Scalar

CORRUPT = "__corrupt"
"""What is wrong with a record, in words; NULL if nothing is."""
_SHOWN = 80


@dataclass(frozen=True)
class CsvDecoder:
    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        fields, column = self.plan.schema.fields, quote(self.plan.column)
        names = [field.name for field in fields]
        parsed = cells(records.sparkSession, F.expr(column), names, self.plan.options)
        reads = [(field, _read(field, _cell(field))) for field in fields]
        faults = tuple(fault for _, made in reads for fault in made.faults)
        missing = tuple(f"{_cell(field)} IS NULL" for field in fields if field.required)
        bad = (
            f"{column} IS NULL OR {PARSED} IS NULL OR trim({column}) = '' OR {PARSED}.{CORRUPT} IS NOT NULL"
            f" OR {any_of((*missing, *faults))}"
        )
        columns = tuple((field.name, made.value) for field, made in reads)
        return Decoded(records.withColumn(PARSED, parsed), columns, f"({bad})", self._why(reads))

    def _why(self, reads: list[tuple[Column, Read]]) -> str:
        column = quote(self.plan.column)
        conditions = absent(self.plan.column, self.binary)
        conditions.append(
            (
                f"{PARSED} IS NULL OR {PARSED}.{CORRUPT} IS NOT NULL",
                reason("malformed_csv", f"concat({PARSED}.{CORRUPT}, ': ', left({column}, {_SHOWN}))"),
            )
        )
        for field, made in reads:
            found = _cell(field)
            if field.required:
                detail = literal(f"{field.name} is missing or null")
                conditions.append((f"{found} IS NULL", reason("missing_field", detail)))
            if made.faults:
                detail = f"concat({literal(f'{field.name}: ')}, {found}, {literal(f' does not fit {field.type}')})"
                conditions.append((any_of(made.faults), reason("wrong_type", detail)))
        return case(conditions, reason("malformed_csv", f"left({column}, {_SHOWN})"))


def cells(spark: SparkSession, text: SparkColumn, names: Sequence[str], options: Mapping[str, str]) -> SparkColumn:
    """The cells of a record as a struct of texts with these names, and CORRUPT."""
    return JvmColumn(own_class(spark, "Cells", "csv").column(text._jc, list(names), dict(options)))


def _cell(field: Column) -> str:
    """An empty cell in quotes is an empty text. Of any other type it can only mean that there is no value."""
    found = f"{PARSED}.{quote(field.name)}"
    return found if field.type == Scalar("STRING") else f"nullif({found}, '')"


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


def _read(field: Column, text: str) -> Read:
    """A field of a line as its type, by the same rules as those of JSON; here every type comes as text."""
    kind = field.type
    assert isinstance(kind, Scalar)
    if kind.name in ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"):
        return read(kind, text)
    wide = replace(kind, precision=MAX_PRECISION, scale=MAX_PRECISION - (kind.precision - kind.scale))
    through = f"try_cast({text} AS {wide if kind.name == 'DECIMAL' else kind})"
    made = read(kind, through)
    return Read(made.value, (f"{text} IS NOT NULL AND {through} IS NULL", *made.faults))
