"""CSV files: a record a line. With a header the fields are found by their names, whatever their order in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from penstock.engine.files.format import Look, Survey, Unfit
from penstock.engine.files.head import Head, read_heads
from penstock.engine.files.header import Established, doubled, establish, folded, why_no_header
from penstock.engine.files.lines import Lines
from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import ROW
from penstock.engine.stages.csv import CORRUPT, CsvDecoder, cells, with_types
from penstock.engine.stages.decode import PARSED, Decoded
from penstock.engine.stages.json import RESCUED
from penstock.plan.files import FilesSource
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import Struct, column_key

_FIELDS, _OTHERS = "__fields", "__others"
_INFERENCE = {
    "inferSchema": "true",
    "mode": "DROPMALFORMED",
    # Whole dates and times only, as the decoder takes them: Spark would take 10:30 for a time of today.
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd['T'][' ']HH:mm:ss[.SSSSSS][.SSS][XXX]",
}
_SHOWN = 80
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


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

    def rows(self, names: Sequence[str], look: Look, survey: Survey, tasks: int) -> DataFrame:
        if not self._source.header:
            return self._lines.read(names, tasks) if names else self._lines.none()
        groups = _by_head(names, survey)
        parts = [self._headed(head, found, look, max(1, tasks // len(groups))) for head, found in groups.items()]
        return reduce(DataFrame.unionByName, parts) if parts else self._lines.none()

    def decoder(self, plan: DecodePlan, binary: str | None, look: Look, survey: Survey) -> HeadedCsv | CsvDecoder:
        if not self._source.header:
            return CsvDecoder(plan, binary)
        return HeadedCsv(plan, binary, tuple(_distinct(survey.heads)))

    def establish(self, names: Sequence[str], table: str) -> Established:
        heads = read_heads(self._spark, self._source, names) if self._source.header else {}
        return establish(heads, self._source.folder, table) if heads else Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        self.sampled = 0
        if not self._source.header:
            return _without_nothing(self._inferred(names, None))
        groups = _by_head(names, Survey(read_heads(self._spark, self._source, names)))
        made = reduce(_united, (self._inferred(found, head) for head, found in groups.items()), StructType())
        return _without_nothing(made)

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def keys(self, names: Sequence[str]) -> set[str]:
        return set(self.survey(names, StructType()).fields.names)

    def _unfit(self, head: Head, known: set[str]) -> str | None:
        """Which of two columns of one name is meant nobody can say; where the other is kept too, both are."""
        if (why := why_no_header(head, known)) is not None:
            return why
        twice = doubled(head, known) if self._source.new_fields == "ignore" else None
        return None if twice is None else f"its header names {twice} twice: {head.line[:_SHOWN]}"

    def _headed(self, head: Head, names: Sequence[str], look: Look, tasks: int) -> DataFrame:
        """Parsed here, where the fields of all lines have the same order."""
        lines = self._lines.read(names, tasks).where(f"{ROW} > {head.row}").withColumn("key", F.lit(head.line))
        fields = lines.withColumn(_FIELDS, _split(self._spark, "value", head, self._source.reader))
        return fields.withColumn(PARSED, _ordered(F.col(_FIELDS), head, look.schema.names)).drop(_FIELDS)

    def _inferred(self, names: Sequence[str], head: Head | None) -> StructType:
        """By the records as they will be read. A column of numbers is text if one of them begins with a zero: it is a
        code, and would lose it. Of a column without a value nothing is known."""
        lines = self._lines.read(names, len(names)).where("value IS NOT NULL")
        records = (lines.where(f"{ROW} > {head.row}") if head else lines).select("value")
        kinds = [_roomy(field.dataType) for field in self._typed(records, _INFERENCE).schema.fields]
        fields = head.names if head else tuple(f"_c{place}" for place in range(len(kinds)))
        kinds = [*kinds, *[NullType()] * len(fields)][: len(fields)]
        columns = [f"_{place}" for place in range(len(fields))]
        found = records.select(cells(self._spark, F.col("value"), columns, self._source.reader).alias(PARSED))
        looked = [
            F.max(F.expr(f"{PARSED}.`{column}` RLIKE '^\\\\s*[+-]?0[0-9]'")).alias(f"code{column}")
            for column in columns
        ]
        looked += [F.count(F.expr(f"{PARSED}.`{column}`")).alias(f"count{column}") for column in columns]
        seen = found.agg(F.count(F.lit(1)).alias("records"), *looked).first()
        assert seen is not None
        self.sampled = (self.sampled or 0) + int(seen["records"])
        for place, column in enumerate(columns):
            if seen[f"code{column}"] and isinstance(kinds[place], NumericType):
                kinds[place] = StringType()
            elif not seen[f"count{column}"]:
                kinds[place] = NullType()
        return StructType([StructField(name, kind) for name, kind in zip(fields, kinds, strict=True)])

    def _typed(self, records: DataFrame, options: Mapping[str, str]) -> DataFrame:
        """Records as Spark reads them: from texts, not from files."""
        reader = self._spark.read.options(**self._source.reader).options(**options)
        jvm: Any = self._spark.sparkContext._jvm
        texts = getattr(records._jdf, "as")(jvm.org.apache.spark.sql.Encoders.STRING())
        return DataFrame(reader._jreader.csv(texts), self._spark)


@dataclass(frozen=True)
class HeadedCsv:
    """Of rejected lines, each with the header of its file in `key`, the fields are found again by that."""

    plan: DecodePlan
    binary: str | None
    heads: tuple[Head, ...]

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        made = CsvDecoder(self.plan, self.binary).decode(records)
        frame = records if PARSED in records.columns else records.withColumn(PARSED, self._parsed(records.sparkSession))
        columns = (*made.columns, *([(RESCUED, f"{PARSED}.{_OTHERS}")] if self.plan.rescue else []))
        return replace(made, frame=with_types(frame, self.plan.schema), columns=columns)

    def _parsed(self, spark: SparkSession) -> Column:
        assert self.plan.schema is not None
        names = [field.name for field in self.plan.schema.fields]
        parsed = F.lit(None).cast(_parsed_type(self.plan.schema))
        for head in self.heads:
            fields = _split(spark, quote(self.plan.column), head, self.plan.options)
            ordered = _ordered(fields, head, names)
            parsed = F.when(F.col("key") == F.lit(head.line), ordered).otherwise(parsed)
        return parsed


def _distinct(heads: Mapping[str, Head]) -> list[Head]:
    return sorted({head.line: head for head in heads.values()}.values(), key=lambda head: head.line)


def _by_head(names: Sequence[str], survey: Survey) -> dict[Head, list[str]]:
    """Files without a line have no head, and no rows."""
    groups: dict[Head, list[str]] = {}
    for name in names:
        if name in survey.heads:
            groups.setdefault(survey.heads[name], []).append(name)
    return groups


def _split(spark: SparkSession, column: str, head: Head, options: Mapping[str, str]) -> Column:
    return cells(spark, F.expr(column), [f"_{place}" for place in range(len(head.names))], options)


def _ordered(fields: Column, head: Head, names: Sequence[str]) -> Column:
    """The fields of a line as the decoder wants them; those that it does not ask for as JSON."""
    places: dict[str, int] = {}
    others: list[Column] = []
    wanted = {column_key(name) for name in names}
    for place, name in enumerate(head.names):
        if column_key(name) in wanted and column_key(name) not in places:
            places[column_key(name)] = place
        else:
            others.append(fields[f"_{place}"].alias(name))
    nothing = F.lit(None).cast("string")
    parts = [
        (fields[f"_{places[column_key(name)]}"] if column_key(name) in places else nothing).alias(name)
        for name in names
    ]
    rest = F.nullif(F.to_json(F.struct(*others)), F.lit("{}")) if others else nothing
    ordered = F.struct(*parts, fields[CORRUPT].alias(CORRUPT), rest.alias(_OTHERS))
    return F.when(fields.isNotNull(), ordered)


def _parsed_type(schema: Struct) -> str:
    fields = ", ".join(f"{quote(field.name)}: STRING" for field in schema.fields)
    return f"STRUCT<{fields}, {CORRUPT}: STRING, {_OTHERS}: STRING>"


def _roomy(kind: DataType) -> DataType:
    """Later files may have larger numbers."""
    if isinstance(kind, _WHOLE):
        return LongType()
    return DecimalType(38, kind.scale) if isinstance(kind, DecimalType) else kind


def _united(one: StructType, other: StructType) -> StructType:
    """The columns of both, each with a type that holds the values of both: what is neither is text."""
    theirs = {column_key(field.name): field.dataType for field in other.fields}
    fields = [
        StructField(field.name, _wider(field.dataType, theirs.get(column_key(field.name), NullType())))
        for field in one.fields
    ]
    mine = folded(one.names)
    return StructType([*fields, *(field for field in other.fields if column_key(field.name) not in mine)])


def _wider(one: DataType, other: DataType) -> DataType:
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if {type(one), type(other)} == {LongType, DoubleType}:
        return DoubleType()
    return StringType()


def _without_nothing(schema: StructType) -> StructType:
    """A column without a value is text: that takes whatever comes."""
    return StructType(
        [StructField(f.name, StringType() if isinstance(f.dataType, NullType) else f.dataType) for f in schema.fields]
    )
