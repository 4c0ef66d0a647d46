"""CSV files: one record per line. With a header, fields are found by name, whatever their order in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.formats.base import PARSED
from penstock.formats.csv import CsvDecoder, cells, with_types
from penstock.formats.json import RESCUED
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import (
    HeaderFiles,
    Survey,
    UnfitFiles,
    column_keys,
    establish,
    read_heads,
    repeated_name,
    why_no_header,
)
from penstock.sources.files.lines import Lines
from penstock.spark.jvm import java_column, java_frame, penstock_class
from penstock.spark.sql_text import quote
from penstock.spec.schema import column_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.formats.base import Decoded
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import FormatChoice, Head

_OTHER_CELLS = "__others"
_MAX_SHOWN = 80


class CsvLines(Lines):
    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        if not self._source.header:
            return Survey()
        heads = read_heads(self._spark, self._source, names)
        known = column_keys(schema.names)
        reasons = {name: reason for name, head in heads.items() if (reason := self._why_unfit(head, known)) is not None}
        if reasons and known:
            raise UnfitFiles(reasons)
        fields = {name: None for head in _distinct_heads(heads) for name in head.names}
        return Survey(heads, StructType([StructField(name, StringType()) for name in fields]))

    def rows(self, names: Sequence[str], choice: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        if not self._source.header:
            return self.read(names, tasks)
        headers = _open_headers(self._spark, survey.heads, choice.schema.names, self._source.reader)
        return self._records_after_header(headers, [name for name in names if name in survey.heads], tasks)

    def decoder(
        self, plan: DecodePlan, binary: str | None, choice: FormatChoice, survey: Survey
    ) -> HeadedCsv | CsvDecoder:
        if not self._source.header:
            return CsvDecoder(plan, binary)
        return HeadedCsv(plan, binary, survey.heads)

    def establish(self, names: Sequence[str], table: str) -> HeaderFiles:
        heads = read_heads(self._spark, self._source, names) if self._source.header else {}
        return establish(heads, self._source.folder, table) if heads else HeaderFiles(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        """Infers from the records as they will be read, with the rules that decode their cells: no sampled cell is
        rejected for its type. A number that starts with a zero is a code, so it is text. A column without a value is
        text too, because that accepts any value."""
        if self._source.header:
            heads = read_heads(self._spark, self._source, names)
            field_names: dict[str, str] = {}
            for head in dict.fromkeys(heads.values()):  # the oldest first
                for name in head.names:
                    field_names.setdefault(column_key(name), name)
            fields = list(field_names.values())
            headers = _open_headers(self._spark, heads, fields, self._source.reader)
            records = self._records_after_header(headers, [name for name in names if name in heads], len(names))
            parsed: Column = JvmColumn(headers.cells(java_column(F.col("key")), java_column(F.col("value"))))
        else:
            records = self.read(names, len(names))
            texts = records.where("value IS NOT NULL").select("value")
            width = penstock_class(self._spark, "Sample", "csv").width(java_frame(texts), dict(self._source.reader))
            fields = [f"_c{index}" for index in range(width)]
            parsed = cells(self._spark, F.col("value"), fields, self._source.reader)
        if not fields:
            self.sampled = 0
            return StructType()
        parsed_rows = records.where("value IS NOT NULL").select(parsed.alias(PARSED))
        zone = parsed_rows.sparkSession.conf.get("spark.sql.session.timeZone")
        texts = parsed_rows.select(*(F.col(f"{PARSED}.{quote(name)}") for name in fields))
        sample = penstock_class(self._spark, "Sample", "csv").of(java_frame(texts), zone)
        self.sampled = int(sample.records())
        kinds = ("string" if kind == "void" else kind for kind in str(sample.types()).split("\n"))
        return StructType([StructField(*pair) for pair in zip(fields, map(DataType.fromDDL, kinds), strict=True)])

    def _why_unfit(self, head: Head, known: set[str]) -> str | None:
        """Why the file does not fit. A name that occurs twice is ambiguous, unless new fields are kept, too."""
        if (reason := why_no_header(head, known)) is not None:
            return reason
        duplicate = repeated_name(head, known) if self._source.new_fields == "ignore" else None
        return None if duplicate is None else f"its header names {duplicate} twice: {head.line[:_MAX_SHOWN]}"

    def _records_after_header(self, headers: Any, names: Sequence[str], tasks: int) -> DataFrame:
        """The records after the headers, each with its header in `key`."""
        lines = self.read(names, tasks)
        if not names:
            return lines
        records = lines.where(JvmColumn(headers.isBehind(java_column(F.col(FILE)), java_column(F.col(ROW)))))
        return records.withColumn("key", JvmColumn(headers.line(java_column(F.col(FILE)))))


@dataclass(frozen=True)
class HeadedCsv:
    """Decodes lines that have the header of their file in `key`, by which their cells are found."""

    plan: DecodePlan
    binary: str | None
    heads: Mapping[str, Head]

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        decoded = CsvDecoder(self.plan, self.binary).decode(records)
        names = [field.name for field in self.plan.schema.fields]
        headers = _open_headers(records.sparkSession, self.heads, names, self.plan.options)
        parsed = JvmColumn(headers.cells(java_column(F.col("key")), java_column(F.expr(quote(self.plan.column)))))
        columns = (*decoded.columns, *([(RESCUED, f"{PARSED}.{_OTHER_CELLS}")] if self.plan.rescue else []))
        frame = with_types(records.withColumn(PARSED, parsed), self.plan.schema)
        return replace(decoded, frame=frame, columns=columns)


def _open_headers(
    spark: SparkSession, heads: Mapping[str, Head], names: Sequence[str], options: Mapping[str, str]
) -> Any:
    """The JVM object that knows the header of each file, and the positions of the columns in each header."""
    headers = penstock_class(spark, "Headed", "csv")(list(names), dict(options))
    for head in _distinct_heads(heads):
        headers.head(head.line, list(head.names))
    for name, head in heads.items():
        headers.file(name, head.line, head.row)
    return headers


def _distinct_heads(heads: Mapping[str, Head]) -> list[Head]:
    return sorted({head.line: head for head in heads.values()}.values(), key=lambda head: head.line)
