"""Text files as this process reads them: the first line of a CSV file, which names its fields, or all of one."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.files.names import location_of
from penstock.plan.files import FilesSource

BOM = "\ufeff"
_AT_ONCE = 8
"""Files that are opened at a time: on an object store each takes a while."""
_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=]+")


@dataclass(frozen=True)
class Head:
    line: str
    row: int
    """Its number; lines before it are blank."""

    def fields(self, options: Mapping[str, str]) -> tuple[str, ...]:
        """As they can name columns; those without a name are called by their place."""
        names = [_REFUSED_BY_DELTA.sub("_", name.strip()) for name in _split(self.line, options)]
        return tuple(name or f"_c{place}" for place, name in enumerate(names))


def read_heads(spark: SparkSession, source: FilesSource, names: Sequence[str]) -> dict[str, Head]:
    """Of the files that hold a line that is not blank."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(names) or 1)) as threads:
        found = threads.map(lambda name: _head(spark, location_of(name, source)), names)
        return {name: head for name, head in zip(names, found, strict=True) if head is not None}


def read_through(spark: SparkSession, location: str) -> None:
    """Raises what keeps a file from being read to its end."""
    jvm: Any = spark.sparkContext._jvm
    with _opened(spark, location) as plain:
        jvm.org.apache.commons.io.IOUtils.consume(plain)


@contextmanager
def _opened(spark: SparkSession, location: str) -> Iterator[Any]:
    """By Hadoop, which knows the compressions that Spark reads."""
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(location)
    stream = path.getFileSystem(conf).open(path)
    try:
        codec = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
        yield stream if codec is None else codec.createInputStream(stream)
    finally:
        stream.close()


def _head(spark: SparkSession, location: str) -> Head | None:
    jvm: Any = spark.sparkContext._jvm
    with _opened(spark, location) as plain:
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(plain, "UTF-8"))
        row = 0
        while (line := lines.readLine()) is not None:
            text = str(line).removeprefix(BOM) if row == 0 else str(line)
            if text.strip():
                return Head(text, row)
            row += 1
        return None


def _split(line: str, options: Mapping[str, str]) -> list[str]:
    sign = separator(options)
    if len(sign) > 1:
        return line.split(sign)
    quote, escape = options.get("quote", '"'), options.get("escape")
    return next(csv.reader([line], delimiter=sign, quotechar=quote, escapechar=escape if escape != quote else None))


def separator(options: Mapping[str, str]) -> str:
    return options.get("sep", ",").replace("\\t", "\t")
