"""Files of lines: text with line numbers, and JSON, one object per line or one document per file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import StructType

from penstock.formats.base import case, reason
from penstock.formats.json import JsonDecoder
from penstock.plan.stages import DecodePlan
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import BOM, Format, read_through
from penstock.sources.files.listing import AS_NAMED, location_of, name_column
from penstock.sources.files.types import decoder_schema
from penstock.spark.expressions import no_rows
from penstock.spark.jvm import java_column, java_frame, penstock_class
from penstock.spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.formats.base import Decoded, Decoder
    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import FormatChoice, RowFilter, Survey

# Spark does not count the lines of a file. But it can be told never to split a file and never to give two files to one
# task; then the row's number within its task is the line's number, whatever machine reads it.


_LARGER_THAN_ANY_FILE = f"{1 << 42}b"
_ROW_IN_TASK_MASK = (1 << 33) - 1
_LINE = "__line"


class Lines(Format):
    """What all files of lines have in common."""

    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self.session = spark.newSession()
        self.session.conf.set("spark.sql.files.maxPartitionBytes", _LARGER_THAN_ANY_FILE)
        self.session.conf.set("spark.sql.files.openCostInBytes", _LARGER_THAN_ANY_FILE)
        self._spark, self._source, self._name = spark, source, name_column(spark, source)

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """The lines without their file and number, as fast as Spark can read them."""
        return self._text(self._spark, names)

    def probe(self, name: str) -> None:
        read_through(self._spark, location_of(name, self._source))

    def read(self, names: Sequence[str], tasks: int) -> DataFrame:
        """The records without blank lines. Bytes that are not UTF-8 are kept in binary. `key` is for the header."""
        if not names:
            columns = f"key STRING, value STRING, value_binary BINARY, {FILE} STRING, {ROW} BIGINT"
            return no_rows(self.session, cast(StructType, StructType.fromDDL(columns)))
        lines = self._csv_records(names, tasks) if self._source.format == "csv" else self._numbered_lines(names, tasks)
        if self._source.documents:
            lines = _split_documents(lines)
        records = lines.selectExpr(
            "CAST(NULL AS STRING) AS key",
            f"try_validate_utf8({_LINE}) AS value",
            f"IF(is_valid_utf8({_LINE}), NULL, CAST({_LINE} AS BINARY)) AS value_binary",
            FILE,
            ROW,
        )
        return records.where("value IS NULL OR btrim(value, ' \\t\\r\\n') <> ''")

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first line that is not blank, and its file."""
        row = self.read(names, 1).select(FILE, "value").first() if names else None
        return None if row is None else (str(row[0]), "(bytes that are not UTF-8)" if row[1] is None else str(row[1]))

    def _numbered_lines(self, names: Sequence[str], tasks: int) -> DataFrame:
        numbered = self._text(self.session, names).selectExpr(
            f"value AS {_LINE}",
            f"{self._name} AS {FILE}",
            f"monotonically_increasing_id() & {_ROW_IN_TASK_MASK}L AS {ROW}",
        )
        first = f"{ROW} = 0 AND startswith({_LINE}, {literal(BOM)})"
        return numbered.coalesce(tasks).selectExpr(f"IF({first}, substring({_LINE}, 2), {_LINE}) AS {_LINE}", FILE, ROW)

    def _csv_records(self, names: Sequence[str], tasks: int) -> DataFrame:
        """CSV records: a line, or several if a quoted cell spans them; the number is that of the first line."""
        locations = [location_of(name, self._source) for name in names]
        text = self.session.read.options(**AS_NAMED).text(locations, lineSep="\n")
        chunks = text.selectExpr(f"CAST(value AS BINARY) AS {_LINE}", f"{self._name} AS {FILE}")
        records = penstock_class(self.session, "Records", "csv")
        columns = f"{_LINE} BINARY, {FILE} STRING, {ROW} BIGINT"
        records_frame = DataFrame(records.of(java_frame(chunks), dict(self._source.reader), columns), self.session)
        return records_frame.coalesce(tasks).selectExpr(f"CAST({_LINE} AS STRING) AS {_LINE}", FILE, ROW)

    def _text(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        locations = [location_of(name, self._source) for name in names]
        return session.read.options(**AS_NAMED).text(locations, wholetext=self._source.documents)


def _split_documents(documents: DataFrame) -> DataFrame:
    """The records of documents: the elements of a list, each as written, or the document itself. A document that is not
    JSON is a record too, so that it is rejected later."""
    elements = penstock_class(documents.sparkSession, "Elements").column(java_column(F.col(_LINE)))
    with_elements = documents.withColumn("__list", JvmColumn(elements))
    exploded = with_elements.where("__list IS NULL OR size(__list) > 0").selectExpr(
        "*", "posexplode_outer(__list) AS (__place, __element)"
    )
    return exploded.selectExpr(
        f"IF(__place IS NULL, {_LINE}, __element) AS {_LINE}", FILE, f"CAST(coalesce(__place, 0) AS BIGINT) AS {ROW}"
    )


NEW_FIELD = "penstock: a field that the schema does not name"
"""The error that stops a read at such a field: nothing was written, and the read starts again with a schema that has
the field."""


class JsonLines(Lines):
    def rows(self, names: Sequence[str], choice: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        return self.read(names, tasks)

    def decoder(self, plan: DecodePlan, binary: str | None, choice: FormatChoice, survey: Survey) -> Decoder:
        if self._source.new_fields in ("add", "fail") and choice.stops_at_new_fields:
            return WatchfulJson(JsonDecoder(plan, binary, choice.left_out))
        decoder = JsonDecoder(plan, binary)
        return RefusingJson(decoder) if self._source.new_fields == "fail" else decoder

    def infer(self, names: Sequence[str]) -> StructType:
        schema, self.sampled = infer_json(self.read(names, len(names)).select("value"))
        return schema

    def new_fields(self, names: Sequence[str], choice: FormatChoice, only: RowFilter | None = None) -> StructType:
        """The fields of the good records that have a field which is not in the schema. Rejected records must not decide
        what a field is."""
        plan = DecodePlan("json", "value", decoder_schema(choice.schema))
        records = self.read(names, len(names))
        texts = (records if only is None else only(records)).select("value")
        decoded = JsonDecoder(plan, None, choice.left_out).decode(texts)
        has_unknown = f"{decoded.unknown_field} IS NOT NULL AND NOT {decoded.is_bad}"
        schema, _ = infer_json(decoded.frame.where(has_unknown).select("value"))
        return schema


def infer_json(texts: DataFrame) -> tuple[StructType, int]:
    """The fields of JSON objects, each with a type that holds all of its values, and how many objects were read. A
    field without a value is void; one with values of several kinds is marked as `ANY_JSON`."""
    inference = penstock_class(texts.sparkSession, "Inference").of(java_frame(texts))
    return StructType.fromJson(json.loads(inference.schema())), int(inference.records())


@dataclass(frozen=True)
class WatchfulJson:
    """A decoder that stops the read at a field which is not in the schema and is not to be left out. Fields of rejected
    records do not count."""

    inner: Decoder

    def decode(self, records: DataFrame) -> Decoded:
        decoded = self.inner.decode(records)
        is_new = f"{decoded.unknown_field} IS NOT NULL AND NOT {decoded.is_bad}"
        has_new_field = f"IF({is_new}, raise_error({literal(NEW_FIELD)}), false)"
        return replace(decoded, is_bad=f"({has_new_field} OR {decoded.is_bad})")


@dataclass(frozen=True)
class RefusingJson:
    """A decoder for records that run again in a table that new fields stop: a record with a new field is rejected."""

    inner: Decoder

    def decode(self, records: DataFrame) -> Decoded:
        decoded = self.inner.decode(records)
        field = decoded.unknown_field
        unknown = reason("unknown_field", f"concat({field}, ' is not in the schema')")
        explanation = case([(f"{decoded.is_bad} OR {field} IS NULL", decoded.reason)], unknown)
        bad = f"({decoded.is_bad} OR ({field} IS NOT NULL AND NOT {decoded.is_dropped}))"
        return replace(decoded, is_bad=bad, reason=explanation)
