"""What a file is called in the manifest, in `_source` and in messages: its path from the project folder on, if it lies
below that, so that a project can be moved; else its whole path, or its URI."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.stages.decode import literal
from penstock.plan.files import FilesSource


def is_remote(place: str) -> bool:
    return "://" in place


AS_NAMED = {"__globPaths__": "false", "recursiveFileLookup": "true"}
"""Options of every read: a `[` in a name is no pattern, and a folder called `a=b` is no column. With some files beside
such a folder, Spark would even read them several times."""


def name_of(path: str, source: FilesSource) -> str:
    """`path` is absolute, or a URI."""
    return path if is_remote(path) else path.removeprefix(_below(source))


def location_of(name: str, source: FilesSource) -> str:
    """Where Spark finds it. Not encoded: Hadoop takes a path as it is written."""
    if is_remote(name):
        return name
    return f"file://{name}" if name.startswith("/") else f"file://{_below(source)}{name}"


def name_column(spark: SparkSession, source: FilesSource) -> str:
    """The name as an expression over the rows that were read from files: Spark gives the URI of a row's file, encoded;
    that of a local file begins with `file:` and some slashes."""
    place, below = "_metadata.file_path", _encoded(spark, _below(source))
    local = f"concat('/', trim(LEADING '/' FROM substring({place}, 6)))"
    inside = f"IF(startswith({local}, {literal(below)}), substring({local}, {len(below) + 1}), {local})"
    name = f"IF(startswith({place}, 'file:'), {inside}, {place})"
    return f"IF(instr({place}, '%') = 0, {name}, url_decode(replace({name}, '+', '%2B')))"


def _below(source: FilesSource) -> str:
    """Of a project that lies in the root itself, files are named by their whole path."""
    return f"{source.root}/"


def _encoded(spark: SparkSession, folder: str) -> str:
    jvm: Any = spark.sparkContext._jvm
    return f"{jvm.org.apache.hadoop.fs.Path(f'file://{folder}').toUri().getRawPath()}/"
