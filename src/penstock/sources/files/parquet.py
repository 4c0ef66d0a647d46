"""Parquet files: rows with typed columns, which are found by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.formats.json import RESCUED
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import Format, Survey
from penstock.sources.files.listing import AS_NAMED, location_of, name_column
from penstock.sources.files.types import added, merged
from penstock.spark.expressions import no_rows
from penstock.spark.sql_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import FormatChoice


class ParquetFiles(Format):
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._session, self._source, self._name = spark.newSession(), source, name_column(spark, source)
        # Spark has no type for nanoseconds: as a TIMESTAMP they could not be read at all.
        self._session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        """Reads the footers, which are read anyway; if new fields are ignored, only with the rows themselves."""
        return Survey() if self._source.new_fields == "ignore" or not names else Survey(fields=self.infer(names))

    def rows(self, names: Sequence[str], choice: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        rescue = self._source.new_fields == "rescue"
        unknown_fields = added(choice.schema, survey.fields) if rescue else StructType()
        full_schema = StructType([*choice.schema.fields, *unknown_fields.fields])
        if names:
            files = self._session.read.schema(full_schema).options(**AS_NAMED).parquet(*self._locations(names))
            rows = files.selectExpr(
                *map(quote, full_schema.names), f"{self._name} AS {FILE}", f"_metadata.row_index AS {ROW}"
            )
        else:
            rows = no_rows(self._session, full_schema).selectExpr(
                "*", f"CAST(NULL AS STRING) AS {FILE}", f"CAST(NULL AS BIGINT) AS {ROW}"
            )
        unknown_names = ", ".join(map(quote, unknown_fields.names))
        rescued = f"nullif(to_json(struct({unknown_names})), '{{}}')" if unknown_names else "CAST(NULL AS STRING)"
        extra = [f"{rescued} AS {RESCUED}"] if rescue else []
        return rows.selectExpr(*map(quote, choice.schema.names), *extra, FILE, ROW)

    def infer(self, names: Sequence[str]) -> StructType:
        """Where two files use one name for different types, the first file counts: the other cannot be read with that
        type, and is recognised by that."""
        try:
            return self._merge_files(names).schema
        except Exception as error:
            if "MERGE_SCHEMA" not in str(error) or len(names) == 1:
                raise
        return reduce(merged, (self._merge_files([name]).schema for name in names))

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """Reads with the columns that the footers name, so it fails where `infer` does."""
        return self._merge_files(names)

    def _merge_files(self, names: Sequence[str]) -> DataFrame:
        reader = self._session.read.option("mergeSchema", "true").options(**AS_NAMED)
        return reader.parquet(*self._locations(names))

    def _locations(self, names: Sequence[str]) -> list[str]:
        return [location_of(name, self._source) for name in names]
