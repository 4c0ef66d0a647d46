"""CSV files: a record a line. With a header the fields are found by their names, whatever their order in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import DataType, StringType, StructField, StructType

from penstock.formats.base import PARSED
from penstock.formats.csv import CsvDecoder, cells, with_types
from penstock.formats.json import RESCUED, own_class
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import (
    Established,
    Survey,
    Unfit,
    doubled,
    establish,
    folded,
    read_heads,
    why_no_header,
)
from penstock.sources.files.lines import Lines
from penstock.spark.jvm import java_column, java_frame
from penstock.spark.sql_text import quote
from penstock.spec.schema import column_key

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.formats.base import Decoded
    from penstock.plan.sources import FilesSource
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import (
        Chosen,
        FormatChoice,
        Head,
    )

_OTHERS = "__others"
_SHOWN = 80


class CsvLines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._spark, self._source, self._lines = spark, source, Lines(spark, source)
        self.sampled: int | None = None

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        if not self._source.header:
            return Survey()
        heads = read_heads(self._spark, self._source, names)
        known = folded(schema.names)
        strangers = {name: why for name, head in heads.items() if (why := self._unfit(head, known)) is not None}
        if strangers and known:
            raise Unfit(strangers)
        found = {name: None for head in _distinct(heads) for name in head.names}
        return Survey(heads, StructType([StructField(name, StringType()) for name in found]))

    def rows(self, names: Sequence[str], look: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        if not self._source.header:
            return self._lines.read(names, tasks) if names else self._lines.none()
        order = _headed(self._spark, survey.heads, look.schema.names, self._source.reader)
        return self._behind(order, [name for name in names if name in survey.heads], tasks)

    def decoder(
        self, plan: DecodePlan, binary: str | None, look: FormatChoice, survey: Survey
    ) -> HeadedCsv | CsvDecoder:
        if not self._source.header:
            return CsvDecoder(plan, binary)
        return HeadedCsv(plan, binary, survey.heads)

    def establish(self, names: Sequence[str], table: str) -> Established:
        heads = read_heads(self._spark, self._source, names) if self._source.header else {}
        return establish(heads, self._source.folder, table) if heads else Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        """By the records as they will be read, and the rules by which their cells are decoded: no cell that was looked
        at is rejected for its type. A number that begins with a zero is a code, and text. So is a column without a
        value, which takes whatever comes."""
        if self._source.header:
            heads = read_heads(self._spark, self._source, names)
            called: dict[str, str] = {}
            for head in dict.fromkeys(heads.values()):  # the oldest first
                for name in head.names:
                    called.setdefault(column_key(name), name)
            fields = list(called.values())
            order = _headed(self._spark, heads, fields, self._source.reader)
            records = self._behind(order, [name for name in names if name in heads], len(names))
            parsed: Column = JvmColumn(order.cells(java_column(F.col("key")), java_column(F.col("value"))))
        else:
            records = self._lines.read(names, len(names))
            texts = records.where("value IS NOT NULL").select("value")
            width = own_class(self._spark, "Sample", "csv").width(java_frame(texts), dict(self._source.reader))
            fields = [f"_c{place}" for place in range(width)]
            parsed = cells(self._spark, F.col("value"), fields, self._source.reader)
        if not fields:
            self.sampled = 0
            return StructType()
        found = records.where("value IS NOT NULL").select(parsed.alias(PARSED))
        zone = found.sparkSession.conf.get("spark.sql.session.timeZone")
        texts = found.select(*(F.col(f"{PARSED}.{quote(name)}") for name in fields))
        sample = own_class(self._spark, "Sample", "csv").of(java_frame(texts), zone)
        self.sampled = int(sample.records())
        kinds = ("string" if kind == "void" else kind for kind in str(sample.types()).split("\n"))
        return StructType([StructField(*pair) for pair in zip(fields, map(DataType.fromDDL, kinds), strict=True)])

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self._lines.first(names)

    def new(self, names: Sequence[str], look: FormatChoice, only: Chosen | None = None) -> StructType:
        """None: their headers name all of them before."""
        return StructType()

    def _unfit(self, head: Head, known: set[str]) -> str | None:
        """Which of two columns of one name is meant nobody can say; where the other is kept too, both are."""
        if (why := why_no_header(head, known)) is not None:
            return why
        twice = doubled(head, known) if self._source.new_fields == "ignore" else None
        return None if twice is None else f"its header names {twice} twice: {head.line[:_SHOWN]}"

    def _behind(self, order: Any, names: Sequence[str], tasks: int) -> DataFrame:
        """The lines behind the headers, each with its header in `key`."""
        if not names:
            return self._lines.none()
        lines = self._lines.read(names, tasks)
        behind = lines.where(JvmColumn(order.isBehind(java_column(F.col(FILE)), java_column(F.col(ROW)))))
        return behind.withColumn("key", JvmColumn(order.line(java_column(F.col(FILE)))))


@dataclass(frozen=True)
class HeadedCsv:
    """Of lines with the header of their file in `key`: the cells are found by that."""

    plan: DecodePlan
    binary: str | None
    heads: Mapping[str, Head]

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        made = CsvDecoder(self.plan, self.binary).decode(records)
        names = [field.name for field in self.plan.schema.fields]
        order = _headed(records.sparkSession, self.heads, names, self.plan.options)
        parsed = JvmColumn(order.cells(java_column(F.col("key")), java_column(F.expr(quote(self.plan.column)))))
        columns = (*made.columns, *([(RESCUED, f"{PARSED}.{_OTHERS}")] if self.plan.rescue else []))
        frame = with_types(records.withColumn(PARSED, parsed), self.plan.schema)
        return replace(made, frame=frame, columns=columns)


def _headed(spark: SparkSession, heads: Mapping[str, Head], names: Sequence[str], options: Mapping[str, str]) -> Any:
    """Which header a file has, and where the columns stand by each: one object for all files."""
    made = own_class(spark, "Headed", "csv")(list(names), dict(options))
    for head in _distinct(heads):
        made.head(head.line, list(head.names))
    for name, head in heads.items():
        made.file(name, head.line, head.row)
    return made


def _distinct(heads: Mapping[str, Head]) -> list[Head]:
    return sorted({head.line: head for head in heads.values()}.values(), key=lambda head: head.line)
