"""Text files as this process reads them: the first line of a CSV file, which names its fields, or all of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.files.names import location_of
from penstock.engine.stages.json import own_class
from penstock.plan.files import FilesSource
from penstock.spec.schema import column_key

BOM = "\ufeff"
_AT_ONCE = 8
"""Files that are opened at a time: on an object store each takes a while."""
_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=]+")


@dataclass(frozen=True)
class Head:
    """The first line of a file."""

    line: str
    row: int
    """Its number; lines before it are blank."""
    cells: tuple[str, ...]
    """Empty if it is not a record: a quote in it is not closed."""

    @property
    def plain(self) -> tuple[str, ...]:
        """As they can name columns; those without a name are called by their place."""
        names = [_REFUSED_BY_DELTA.sub("_", cell.strip()) for cell in self.cells]
        return tuple(name or f"_c{place}" for place, name in enumerate(names))

    @property
    def names(self) -> tuple[str, ...]:
        """The same, each once: a name that is there before has its number behind it."""
        plain = self.plain
        taken = {column_key(name) for name in plain}
        numbers: dict[str, int] = {}
        found: dict[str, str] = {}
        for name in plain:
            unique, number = name, numbers.get(column_key(name), 1)
            while column_key(unique) in found or (number > 1 and column_key(unique) in taken):
                number += 1
                unique = f"{name}_{number}"
            numbers[column_key(name)] = number
            found[column_key(unique)] = unique
        return tuple(found.values())


def read_heads(spark: SparkSession, source: FilesSource, names: Sequence[str]) -> dict[str, Head]:
    """Of the files that hold a line that is not blank."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(names) or 1)) as threads:
        found = threads.map(lambda name: _head(spark, location_of(name, source), source.reader), names)
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


def _head(spark: SparkSession, location: str, options: Mapping[str, str]) -> Head | None:
    jvm: Any = spark.sparkContext._jvm
    with _opened(spark, location) as plain:
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(plain, "UTF-8"))
        row = 0
        while (line := lines.readLine()) is not None:
            text = str(line).removeprefix(BOM) if row == 0 else str(line)
            if text.strip(" \t\r\n"):  # as `Lines` says what is blank
                cells = own_class(spark, "Cells", "csv").split(text, dict(options))
                return Head(text, row, tuple(map(str, cells or ())))
            row += 1
        return None
