"""The files that a folder holds now, and their names in the manifest, in `_source` and in messages."""

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
from penstock.spec.lake import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource

# The name of a file in the manifest, in `_source` and in messages: its path relative to the project folder if it is
# below that, so that a project can be moved; else its full path, or its URI.


AS_NAMED = {"__globPaths__": "false", "recursiveFileLookup": "true"}
"""Options of every read: a `[` in a name is not a pattern, and a folder named `a=b` is not a column. Spark would even
read files beside such a folder several times."""


def name_of(path: str, source: FilesSource) -> str:
    """The name of a file; `path` is absolute, or a URI."""
    return path if is_remote(path) else path.removeprefix(_root_prefix(source))


def location_of(name: str, source: FilesSource) -> str:
    """The location for Spark. It is not URL-encoded: Hadoop takes a path as it is written."""
    if is_remote(name):
        return name
    return f"file://{name}" if name.startswith("/") else f"file://{_root_prefix(source)}{name}"


def name_column(spark: SparkSession, source: FilesSource) -> str:
    """SQL for the name of the file that a row was read from. Spark gives the encoded URI; that of a local file starts
    with `file:` and some slashes."""
    path, root = "_metadata.file_path", _encoded_path(spark, _root_prefix(source))
    local = f"concat('/', trim(LEADING '/' FROM substring({path}, 6)))"
    relative = f"IF(startswith({local}, {literal(root)}), substring({local}, {len(root) + 1}), {local})"
    name = f"IF(startswith({path}, 'file:'), {relative}, {path})"
    return f"IF(instr({path}, '%') = 0, {name}, url_decode(replace({name}, '+', '%2B')))"


def _root_prefix(source: FilesSource) -> str:
    """The prefix that names of local files leave out. With a project in `/` itself, names are full paths."""
    return f"{source.root}/"


def _encoded_path(spark: SparkSession, folder: str) -> str:
    jvm: Any = jvm_of(spark)
    return f"{jvm.org.apache.hadoop.fs.Path(f'file://{folder}').toUri().getRawPath()}/"


_HIDDEN = ("_", ".")


@dataclass(frozen=True)
class File:
    name: str
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Listing:
    files: list[File]
    undecodable_names: list[str]
    """Names that are not valid text: no table can hold them."""


def list_files(spark: SparkSession, source: FilesSource, table: str) -> Listing:
    """Raises Transient while there is no such folder."""
    entries = _list_remote(spark, source, table) if is_remote(source.folder) else _list_local(source, table)
    files: list[File] = []
    strange: list[str] = []
    for path, size, modified_ms in entries:
        relative = _relative_path(path, source.folder)
        if not _is_data(relative, source.pattern):
            continue
        try:
            path.encode()
        except UnicodeEncodeError:
            strange.append(path.encode(errors="surrogateescape").decode(errors="replace"))
            continue
        files.append(File(name_of(path, source), size, modified_ms))
    return Listing(files, strange)


def _relative_path(path: str, folder: str) -> str:
    """The path relative to the folder. Hadoop may write the host of the folder differently than the project does."""
    if not path.startswith(folder):
        folder = urlsplit(folder).path
        path = path[max(0, path.find(folder)) :]
    return path[len(folder) :].lstrip("/")


def _is_data(relative: str, pattern: str | None) -> bool:
    """Whether the file is to be read. A pattern without a slash applies to the file name alone."""
    parts = relative.split("/")
    if any(part.startswith(_HIDDEN) for part in parts):
        return False
    return pattern is None or fnmatchcase(relative if "/" in pattern else parts[-1], pattern)


def _list_local(source: FilesSource, table: str) -> Iterator[tuple[str, int, int]]:
    try:
        yield from _walk(source.folder, set())
    except (FileNotFoundError, NotADirectoryError):
        raise _missing_folder(source, table) from None
    except PermissionError:
        raise SetupError(
            f"the folder {source.folder} may not be read", where=table, hint="give its rights to the user who runs this"
        ) from None


def _walk(folder: str, seen: set[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Follows links, but lists no folder twice: a link to a parent folder would never end."""
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
                    file_status = entry.stat()
                    yield entry.path, file_status.st_size, file_status.st_mtime_ns // 1_000_000
            except FileNotFoundError:  # deleted since its folder was read
                continue


def _list_remote(spark: SparkSession, source: FilesSource, table: str) -> Iterator[tuple[str, int, int]]:
    """Spark lists large folders with many tasks; only the metadata columns of its binaryFile source are read."""
    reader = spark.read.format("binaryFile").options(**AS_NAMED)
    try:
        rows = reader.load(source.folder).selectExpr("path", "length", "unix_millis(modificationTime) AS modified")
        for row in rows.toLocalIterator():
            yield row.path, row.length, row.modified
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            raise _missing_folder(source, table) from None
        raise


def _missing_folder(source: FilesSource, table: str) -> Transient:
    return Transient(
        f"there is no folder {source.folder}",
        where=table,
        hint="it is waited for; if it has another name, correct `files` (a relative one starts at the project folder)",
    )
