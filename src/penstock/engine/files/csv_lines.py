"""CSV files: a record a line. With a header the fields are found by their names, whatever their order in a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from penstock.engine.files.format import Look, Survey, Unfit
from penstock.engine.files.head import Head, read_heads
from penstock.engine.files.lines import Lines
from penstock.engine.files.names import AS_NAMED, location_of
from penstock.engine.files.types import merged
from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import ROW
from penstock.engine.stages.csv import CORRUPT, CsvDecoder, or_null, with_types
from penstock.engine.stages.decode import PARSED, Decoded
from penstock.engine.stages.json import RESCUED
from penstock.plan.files import FilesSource
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import Struct

_FIELDS, _OTHERS = "__fields", "__others"
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
_INFERENCE = {
    "inferSchema": "true",
    "mode": "DROPMALFORMED",
    # Whole dates and times only, as the decoder takes them: Spark would take 10:30 for a time of today.
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd['T'][' ']HH:mm:ss[.SSSSSS][.SSS][XXX]",
}
_NO_HEADER = "its first line names none of the table's columns"
_SHOWN = 80
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


class CsvLines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._spark, self._source, self._lines = spark, source, Lines(spark, source)

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        if not self._source.header:
            return Survey()
        heads = read_heads(self._spark, self._source, names)
        known = {name.casefold() for name in schema.names}
        strangers = {name: head for name, head in heads.items() if not known & _folded(head, self._source.reader)}
        if strangers and known:
            raise Unfit({name: f"{_NO_HEADER}: {head.line[:_SHOWN]}" for name, head in strangers.items()})
        found = {name: None for head in _distinct(heads) for name in head.fields(self._source.reader)}
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

    def infer(self, names: Sequence[str]) -> StructType:
        if not self._source.header:
            return self._inferred(names, None)
        groups = _by_head(names, Survey(read_heads(self._spark, self._source, names)))
        return reduce(merged, (self._inferred(found, head) for head, found in groups.items()), StructType())

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def keys(self, names: Sequence[str]) -> set[str]:
        return set(self.survey(names, StructType()).fields.names)

    def _headed(self, head: Head, names: Sequence[str], look: Look, tasks: int) -> DataFrame:
        """Parsed here, where the fields of all lines have the same order."""
        lines = self._lines.read(names, tasks).where(f"{ROW} > {head.row}").withColumn("key", F.lit(head.line))
        fields = lines.withColumn(_FIELDS, or_null(lines, _split("value", head, self._source.reader)))
        return fields.withColumn(PARSED, _ordered(F.col(_FIELDS), head, look.schema.names, self._source.reader)).drop(
            _FIELDS
        )

    def _inferred(self, names: Sequence[str], head: Head | None) -> StructType:
        """A column of numbers is text if one of them begins with a zero: it is a code, and would lose it."""
        reader = self._spark.read.options(**self._source.reader).options(**AS_NAMED)
        reader = reader.option("header", str(head is not None).lower())
        places = [location_of(name, self._source) for name in names]
        kinds = [_roomy(field.dataType) for field in reader.options(**_INFERENCE).csv(places).schema.fields]
        fields = head.fields(self._source.reader) if head else tuple(f"_c{place}" for place in range(len(kinds)))
        texts = reader.option("inferSchema", "false").schema(", ".join(f"_{i} STRING" for i in range(len(kinds))))
        numbers = [place for place, kind in enumerate(kinds) if isinstance(kind, NumericType)]
        codes = [F.max(F.col(f"_{place}").rlike("^\\s*[+-]?0[0-9]")).alias(str(place)) for place in numbers]
        if codes:
            found = texts.csv(places).agg(*codes).first()
            assert found is not None
            kinds = [
                StringType() if place in numbers and found[str(place)] else kind for place, kind in enumerate(kinds)
            ]
        return StructType([StructField(name, kind) for name, kind in zip(fields, kinds, strict=False)])


@dataclass(frozen=True)
class HeadedCsv:
    """Of rejected lines, each with the header of its file in `key`, the fields are found again by that."""

    plan: DecodePlan
    binary: str | None
    heads: tuple[Head, ...]

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        made = CsvDecoder(self.plan, self.binary).decode(records)
        frame = records if PARSED in records.columns else records.withColumn(PARSED, self._parsed(records))
        columns = (*made.columns, *([(RESCUED, f"{PARSED}.{_OTHERS}")] if self.plan.rescue else []))
        return replace(made, frame=with_types(frame, self.plan.schema), columns=columns)

    def _parsed(self, records: DataFrame) -> Column:
        assert self.plan.schema is not None
        names = [field.name for field in self.plan.schema.fields]
        parsed = F.lit(None).cast(_parsed_type(self.plan.schema))
        for head in self.heads:
            fields = or_null(records, _split(quote(self.plan.column), head, self.plan.options))
            ordered = _ordered(fields, head, names, self.plan.options)
            parsed = F.when(F.col("key") == F.lit(head.line), ordered).otherwise(parsed)
        return parsed


def _folded(head: Head, options: Mapping[str, str]) -> set[str]:
    return {name.casefold() for name in head.fields(options)}


def _distinct(heads: Mapping[str, Head]) -> list[Head]:
    return sorted({head.line: head for head in heads.values()}.values(), key=lambda head: head.line)


def _by_head(names: Sequence[str], survey: Survey) -> dict[Head, list[str]]:
    """Files without a line have no head, and no rows."""
    groups: dict[Head, list[str]] = {}
    for name in names:
        if name in survey.heads:
            groups.setdefault(survey.heads[name], []).append(name)
    return groups


def _split(column: str, head: Head, options: Mapping[str, str]) -> Column:
    count = len(head.fields(options))
    wanted = ", ".join(f"`_{place}` STRING" for place in range(count))
    return F.from_csv(F.expr(column), F.lit(f"{wanted}, {CORRUPT} STRING"), {**_PERMISSIVE, **options})


def _ordered(fields: Column, head: Head, names: Sequence[str], options: Mapping[str, str]) -> Column:
    """The fields of a line as the decoder wants them; those that it does not ask for as JSON."""
    places: dict[str, int] = {}
    others: list[Column] = []
    wanted = {name.casefold() for name in names}
    for place, name in enumerate(head.fields(options)):
        if name.casefold() in wanted and name.casefold() not in places:
            places[name.casefold()] = place
        else:
            others.append(fields[f"_{place}"].alias(name))
    nothing = F.lit(None).cast("string")
    parts = [
        (fields[f"_{places[name.casefold()]}"] if name.casefold() in places else nothing).alias(name) for name in names
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
