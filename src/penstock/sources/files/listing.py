"""The files that a folder holds now, and what they are called in the manifest, in `_source` and in messages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException

from penstock.errors import SetupError, Transient
from penstock.spark.jvm import jvm_of
from penstock.spark.sql_text import literal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource

# What a file is called in the manifest, in `_source` and in messages: its path from the project folder on, if it lies
# below that, so that a project can be moved; else its whole path, or its URI.


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
    jvm: Any = jvm_of(spark)
    return f"{jvm.org.apache.hadoop.fs.Path(f'file://{folder}').toUri().getRawPath()}/"


# The files that a folder holds now, in it and below it.


_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class File:
    name: str
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Listing:
    files: list[File]
    strange: list[str]
    """Names that are not text: no table can hold them."""


def list_files(spark: SparkSession, source: FilesSource, table: str) -> Listing:
    """Transient while there is no such folder."""
    found = _remote(spark, source, table) if is_remote(source.folder) else _local(source, table)
    files: list[File] = []
    strange: list[str] = []
    for path, size, modified_ms in found:
        within = _within(path, source.folder)
        if not _is_data(within, source.pattern):
            continue
        try:
            path.encode()
        except UnicodeEncodeError:
            strange.append(path.encode(errors="surrogateescape").decode(errors="replace"))
            continue
        files.append(File(name_of(path, source), size, modified_ms))
    return Listing(files, strange)


def _within(path: str, folder: str) -> str:
    """The path from the folder on. Hadoop may write the host of the folder in another way than the project does."""
    if not path.startswith(folder):
        folder = urlsplit(folder).path
        path = path[max(0, path.find(folder)) :]
    return path[len(folder) :].lstrip("/")


def _is_data(within: str, pattern: str | None) -> bool:
    """A pattern without a slash is about the name alone."""
    steps = within.split("/")
    if any(step.startswith(_HIDDEN) for step in steps):
        return False
    return pattern is None or fnmatchcase(within if "/" in pattern else steps[-1], pattern)


def _local(source: FilesSource, table: str) -> Iterator[tuple[str, int, int]]:
    try:
        yield from _walk(source.folder, set())
    except (FileNotFoundError, NotADirectoryError):
        raise _no_folder(source, table) from None
    except PermissionError:
        raise SetupError(
            f"the folder {source.folder} may not be read", where=table, hint="give its rights to the user who runs this"
        ) from None


def _walk(folder: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Links are followed, but no folder is listed twice: a link to a folder above would have no end."""
    status = Path(folder).stat()
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(_HIDDEN):
                continue
            try:
                if entry.is_dir():
                    yield from _walk(entry.path, seen)
                elif entry.is_file():
                    found = entry.stat()
                    yield entry.path, found.st_size, found.st_mtime_ns // 1_000_000
            except FileNotFoundError:  # gone since its folder was read
                continue


def _remote(spark: SparkSession, source: FilesSource, table: str) -> Iterator[tuple[str, int, int]]:
    """Spark lists large folders with many tasks; of its source for whole files only the names are read."""
    reader = spark.read.format("binaryFile").options(**AS_NAMED)
    try:
        rows = reader.load(source.folder).selectExpr("path", "length", "unix_millis(modificationTime) AS modified")
        for row in rows.toLocalIterator():
            yield row.path, row.length, row.modified
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise _no_folder(source, table) from None
        raise


def _no_folder(source: FilesSource, table: str) -> Transient:
    return Transient(
        f"there is no folder {source.folder}",
        where=table,
        hint="it is waited for; if it has another name, correct `files` (a relative one starts at the project folder)",
    )
