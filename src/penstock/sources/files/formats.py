"""The format of a table's files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.sources.files.csv import CsvLines
from penstock.sources.files.lines import JsonLines
from penstock.sources.files.parquet import ParquetFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.sources.files.format import Format


def open_format(spark: SparkSession, source: FilesSource) -> Format:
    if source.format == "json":
        return JsonLines(spark, source)
    return CsvLines(spark, source) if source.format == "csv" else ParquetFiles(spark, source)
