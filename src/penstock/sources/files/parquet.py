"""Parquet files: rows with their own columns, which are found by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql.types import StructType

from penstock.formats.json import RESCUED
from penstock.sources.columns import FILE, ROW
from penstock.sources.files.format import Established, Survey
from penstock.sources.files.listing import AS_NAMED, location_of, name_column
from penstock.sources.files.types import added, merged
from penstock.spark.expressions import no_rows
from penstock.spark.sql_text import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import Chosen, FormatChoice


class ParquetFiles:
    sampled: int | None = None

    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._session, self._source, self._name = spark.newSession(), source, name_column(spark, source)
        # No type of Spark holds nanoseconds: as a TIMESTAMP they could not be read at all.
        self._session.conf.set("spark.sql.legacy.parquet.nanosAsLong", "true")

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        """By the footers, which are read anyway; if nobody asks for new fields, by the rows' own read."""
        return Survey() if self._source.new_fields == "ignore" or not names else Survey(fields=self.infer(names))

    def rows(self, names: Sequence[str], look: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        rescue = self._source.new_fields == "rescue"
        others = added(look.schema, survey.fields) if rescue else StructType()
        whole = StructType([*look.schema.fields, *others.fields])
        if names:
            files = self._session.read.schema(whole).options(**AS_NAMED).parquet(*self._places(names))
            read = files.selectExpr(
                *map(quote, whole.names), f"{self._name} AS {FILE}", f"_metadata.row_index AS {ROW}"
            )
        else:
            read = no_rows(self._session, whole).selectExpr(
                "*", f"CAST(NULL AS STRING) AS {FILE}", f"CAST(NULL AS BIGINT) AS {ROW}"
            )
        rest = ", ".join(map(quote, others.names))
        rescued = f"nullif(to_json(struct({rest})), '{{}}')" if rest else "CAST(NULL AS STRING)"
        extra = [f"{rescued} AS {RESCUED}"] if rescue else []
        return read.selectExpr(*map(quote, look.schema.names), *extra, FILE, ROW)

    def decoder(self, plan: DecodePlan, binary: str | None, look: FormatChoice, survey: Survey) -> None:
        return None

    def establish(self, names: Sequence[str], table: str) -> Established:
        return Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        """Where two files call different things by one name, what the first calls so counts: the other cannot be read
        by it, and is told apart then."""
        reader = self._session.read.option("mergeSchema", "true").options(**AS_NAMED)
        places = self._places(names)
        try:
            return reader.parquet(*places).schema
        except Exception as error:
            if "MERGE_SCHEMA" not in str(error) or len(names) == 1:
                raise
        return reduce(merged, (reader.parquet(place).schema for place in places))

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """With the columns that their footers name: it fails where `infer` does."""
        reader = self._session.read.option("mergeSchema", "true").options(**AS_NAMED)
        return reader.parquet(*self._places(names))

    def probe(self, name: str) -> None:
        """Nothing is quicker than Spark's own read."""

    def first(self, names: Sequence[str]) -> None:
        return None

    def new(self, names: Sequence[str], look: FormatChoice, only: Chosen | None = None) -> StructType:
        """None: their footers name all of them before."""
        return StructType()

    def _places(self, names: Sequence[str]) -> list[str]:
        return [location_of(name, self._source) for name in names]
