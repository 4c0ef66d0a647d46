"""The format of a table's files."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.engine.files.csv_lines import CsvLines
from penstock.engine.files.format import Format
from penstock.engine.files.json_lines import JsonLines
from penstock.engine.files.parquet import ParquetFiles
from penstock.plan.files import FilesSource


def open_format(spark: SparkSession, source: FilesSource) -> Format:
    if source.format == "json":
        return JsonLines(spark, source)
    return CsvLines(spark, source) if source.format == "csv" else ParquetFiles(spark, source)
