"""Lines of text files, each with its file and its number there.

Spark does not count the lines of a file. But it can be told never to divide a file, nor to give two to one task; then
the count of a task's rows is the number of the line, whatever machine reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import StructType

from penstock.engine.files.head import BOM, read_through
from penstock.engine.files.known import no_rows
from penstock.engine.files.names import AS_NAMED, location_of, name_column
from penstock.engine.stages.coordinates import FILE, ROW
from penstock.engine.stages.decode import literal
from penstock.engine.stages.json import own_class
from penstock.plan.files import FilesSource

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
        made = DataFrame(records.of(chunks._jdf, dict(self._source.reader), columns), self.session)
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
    taken_apart = own_class(documents.sparkSession, "Elements").column(F.col(_LINE)._jc)
    found = documents.withColumn("__list", JvmColumn(taken_apart))
    apart = found.where("__list IS NULL OR size(__list) > 0").selectExpr(
        "*", "posexplode_outer(__list) AS (__place, __element)"
    )
    return apart.selectExpr(
        f"IF(__place IS NULL, {_LINE}, __element) AS {_LINE}", FILE, f"CAST(coalesce(__place, 0) AS BIGINT) AS {ROW}"
    )
