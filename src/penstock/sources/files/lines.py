"""Files of lines: text with its line numbers, and JSON, an object a line or a document a file."""

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
from penstock.formats.json import UNKNOWN, JsonDecoder, own_class
from penstock.plan.stages import DecodePlan
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import BOM, Established, Survey, read_through
from penstock.sources.files.listing import AS_NAMED, location_of, name_column
from penstock.sources.files.types import decoder_schema
from penstock.spark.expressions import no_rows
from penstock.spark.jvm import java_column, java_frame
from penstock.spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.formats.base import Decoded, Decoder
    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import Chosen, FormatChoice

# Lines of text files, each with its file and its number there.
#
# Spark does not count the lines of a file. But it can be told never to divide a file, nor to give two to one task;
# then the count of a task's rows is the number of the line, whatever machine reads it.


_MORE_THAN_A_FILE = f"{1 << 42}b"
_IN_TASK = (1 << 33) - 1
_LINE = "__line"


class Lines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self.session = spark.newSession()
        self.session.conf.set("spark.sql.files.maxPartitionBytes", _MORE_THAN_A_FILE)
        self.session.conf.set("spark.sql.files.openCostInBytes", _MORE_THAN_A_FILE)
        self._spark, self._source, self._name = spark, source, name_column(spark, source)

    def plain(self, names: Sequence[str]) -> DataFrame:
        """As fast as Spark can: without their places."""
        return self._text(self._spark, names)

    def probe(self, name: str) -> None:
        read_through(self._spark, location_of(name, self._source))

    def read(self, names: Sequence[str], tasks: int) -> DataFrame:
        """Blank lines are not records. Bytes that are not UTF-8 are kept as such. `key` is for the header."""
        clean = self._records(names, tasks) if self._source.format == "csv" else self._numbered(names, tasks)
        if self._source.documents:
            clean = _elements(clean)
        records = clean.selectExpr(
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

    def _numbered(self, names: Sequence[str], tasks: int) -> DataFrame:
        numbered = self._text(self.session, names).selectExpr(
            f"value AS {_LINE}", f"{self._name} AS {FILE}", f"monotonically_increasing_id() & {_IN_TASK}L AS {ROW}"
        )
        first = f"{ROW} = 0 AND startswith({_LINE}, {literal(BOM)})"
        return numbered.coalesce(tasks).selectExpr(f"IF({first}, substring({_LINE}, 2), {_LINE}) AS {_LINE}", FILE, ROW)

    def _records(self, names: Sequence[str], tasks: int) -> DataFrame:
        """Of CSV: a line, or several if a quoted cell goes over them; the number is that of its first line."""
        places = [location_of(name, self._source) for name in names]
        text = self.session.read.options(**AS_NAMED).text(places, lineSep="\n")
        chunks = text.selectExpr(f"CAST(value AS BINARY) AS {_LINE}", f"{self._name} AS {FILE}")
        records = own_class(self.session, "Records", "csv")
        columns = f"{_LINE} BINARY, {FILE} STRING, {ROW} BIGINT"
        made = DataFrame(records.of(java_frame(chunks), dict(self._source.reader), columns), self.session)
        return made.coalesce(tasks).selectExpr(f"CAST({_LINE} AS STRING) AS {_LINE}", FILE, ROW)

    def _text(self, session: SparkSession, names: Sequence[str]) -> DataFrame:
        places = [location_of(name, self._source) for name in names]
        return session.read.options(**AS_NAMED).text(places, wholetext=self._source.documents)

    def none(self) -> DataFrame:
        columns = f"key STRING, value STRING, value_binary BINARY, {FILE} STRING, {ROW} BIGINT"
        return no_rows(self.session, cast(StructType, StructType.fromDDL(columns)))


def _elements(documents: DataFrame) -> DataFrame:
    """The records of documents: the elements of a list, each as it is written, or the document itself. One that is no
    JSON is a record too: it is rejected then."""
    taken_apart = own_class(documents.sparkSession, "Elements").column(java_column(F.col(_LINE)))
    found = documents.withColumn("__list", JvmColumn(taken_apart))
    apart = found.where("__list IS NULL OR size(__list) > 0").selectExpr(
        "*", "posexplode_outer(__list) AS (__place, __element)"
    )
    return apart.selectExpr(
        f"IF(__place IS NULL, {_LINE}, __element) AS {_LINE}", FILE, f"CAST(coalesce(__place, 0) AS BIGINT) AS {ROW}"
    )


# JSON files: an object a line, or a document a file.


NEW_FIELD = "penstock: a field that the schema does not name"
"""What ends a read that meets one: nothing was written then, and the read begins again with a schema that has it."""


class JsonLines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._source, self._lines = source, Lines(spark, source)
        self.sampled: int | None = None

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        return Survey()

    def rows(self, names: Sequence[str], look: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        return self._lines.read(names, tasks) if names else self._lines.none()

    def decoder(self, plan: DecodePlan, binary: str | None, look: FormatChoice, survey: Survey) -> Decoder:
        if self._source.new_fields in ("add", "fail") and look.watchful:
            return WatchfulJson(plan, binary, look.left_out)
        return RefusingJson(plan, binary) if self._source.new_fields == "fail" else JsonDecoder(plan, binary)

    def establish(self, names: Sequence[str], table: str) -> Established:
        return Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        found, self.sampled = infer_json(self._texts(names))
        return found

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self._lines.first(names)

    def new(self, names: Sequence[str], look: FormatChoice, only: Chosen | None = None) -> StructType:
        """The fields of the good records that have one which the schema does not name. What others hold, rejected ones
        that is, must not decide what a field is."""
        plan = DecodePlan("json", "value", decoder_schema(look.schema))
        records = self._lines.read(names, len(names))
        texts = (records if only is None else only(records)).select("value")
        made = JsonDecoder(plan, None, look.left_out).decode(texts)
        found, _ = infer_json(made.frame.where(f"{UNKNOWN} IS NOT NULL AND NOT {made.bad}").select("value"))
        return found

    def _texts(self, names: Sequence[str]) -> DataFrame:
        return self._lines.read(names, len(names)).select("value")


def infer_json(texts: DataFrame) -> tuple[StructType, int]:
    """The fields of JSON objects, each with a type that holds all of its values, and how many objects were looked at.
    A field without a value is void; one with values of several kinds is marked as `ANY_JSON`."""
    made = own_class(texts.sparkSession, "Inference").of(java_frame(texts))
    return StructType.fromJson(json.loads(made.schema())), int(made.records())


@dataclass(frozen=True)
class WatchfulJson:
    """A decoder that ends the read at a field which the schema does not name, and which is not to be left out."""

    plan: DecodePlan
    binary: str | None
    left_out: tuple[str, ...]

    def decode(self, records: DataFrame) -> Decoded:
        made = JsonDecoder(self.plan, self.binary, self.left_out).decode(records)
        new = f"IF({UNKNOWN} IS NOT NULL AND NOT {made.bad}, raise_error({literal(NEW_FIELD)}), false)"
        return replace(made, bad=f"({new} OR {made.bad})")


@dataclass(frozen=True)
class RefusingJson:
    """A decoder of records that run again, where new fields stop the table: a record with one is rejected."""

    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        made = JsonDecoder(self.plan, self.binary).decode(records)
        unknown = reason("unknown_field", f"concat({UNKNOWN}, ' is not in the schema')")
        why = case([(f"{made.bad} OR {UNKNOWN} IS NULL", made.why)], unknown)
        return replace(made, bad=f"({made.bad} OR {UNKNOWN} IS NOT NULL)", why=why)
