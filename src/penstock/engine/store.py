"""Small whole files in the lake: checkpoints, pins, the Delta log. Never data.

Two ways to the same thing: a local lake is read directly, so commands without a JVM and the chain check in every batch
cost microseconds; every other URI goes through Hadoop's file systems in the session's JVM.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True)
class Listed:
    size: int
    modified_ms: int


@dataclass(frozen=True)
class Size:
    files: int = 0
    bytes: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(self.files + other.files, self.bytes + other.bytes)


def size_of(store: Store, folder: str) -> Size:
    """Of a folder with all that is in it."""
    found = store.listing(folder).values()
    return Size(len(found), sum(one.size for one in found))


class Store(Protocol):
    def read(self, path: str) -> str | None:
        """The file's text, or None if there is no such file."""

    def names(self, path: str) -> list[str]:
        """The names in a folder, [] if there is no such folder."""

    def write(self, path: str, text: str) -> None:
        """The whole file at once, folders made as needed; a reader sees the old text or the new."""

    def move(self, source: str, target: str) -> None:
        """A folder under a new name; the target does not exist."""

    def delete(self, path: str) -> None:
        """A file or a whole folder; nothing happens if it is not there."""

    def delete_empty(self, path: str) -> None:
        """A folder; nothing happens if it is not there, or if there is anything in it."""

    def listing(self, path: str) -> dict[str, Listed]:
        """Every file in a folder and below, by its name from there on; {} if there is none."""


class LocalStore:
    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)  # noqa: PTH208 - names only, and in every batch
        except (FileNotFoundError, NotADirectoryError):
            return []

    def write(self, path: str, text: str) -> None:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(target)
        # Hadoop's checksum file of the text that was there before would make the new text unreadable for Spark.
        target.with_name(f".{target.name}.crc").unlink(missing_ok=True)

    def move(self, source: str, target: str) -> None:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).rename(target)

    def delete(self, path: str) -> None:
        target = Path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def delete_empty(self, path: str) -> None:
        with suppress(OSError):
            Path(path).rmdir()

    def listing(self, path: str) -> dict[str, Listed]:
        found: dict[str, Listed] = {}
        for folder, _, names in os.walk(path):
            for name in names:
                file = Path(folder) / name
                with suppress(FileNotFoundError):  # gone since its folder was read
                    about = file.stat()
                    found[str(file.relative_to(path))] = Listed(about.st_size, about.st_mtime_ns // 1_000_000)
        return found


class HadoopStore:
    """Any URI that the session's Hadoop configuration can open."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark.sparkContext._jvm
        self._conf = spark.sparkContext._jsc.hadoopConfiguration()

    def _open(self, path: str) -> tuple[Any, Any]:
        location = self._jvm.org.apache.hadoop.fs.Path(path)
        return location.getFileSystem(self._conf), location

    def read(self, path: str) -> str | None:
        files, location = self._open(path)
        if not files.exists(location):
            return None
        stream = files.open(location)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self, path: str) -> list[str]:
        files, location = self._open(path)
        if not files.exists(location):
            return []
        return [status.getPath().getName() for status in files.listStatus(location)]

    def write(self, path: str, text: str) -> None:
        files, location = self._open(path)
        stream = files.create(location, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()

    def move(self, source: str, target: str) -> None:
        files, location = self._open(source)
        destination = self._jvm.org.apache.hadoop.fs.Path(target)
        files.mkdirs(destination.getParent())
        if not files.rename(location, destination):
            raise OSError(f"{source} could not be renamed to {target}")

    def delete(self, path: str) -> None:
        files, location = self._open(path)
        files.delete(location, True)

    def delete_empty(self, path: str) -> None:
        from py4j.protocol import Py4JJavaError

        files, location = self._open(path)
        with suppress(Py4JJavaError):  # of a folder with something in it
            files.delete(location, False)

    def listing(self, path: str) -> dict[str, Listed]:
        files, location = self._open(path)
        if not files.exists(location):
            return {}
        base = len(str(files.makeQualified(location).toString())) + 1
        found: dict[str, Listed] = {}
        listed = files.listFiles(location, True)
        while listed.hasNext():
            status = listed.next()
            about = Listed(int(status.getLen()), int(status.getModificationTime()))
            found[str(status.getPath().toString())[base:]] = about
        return found
