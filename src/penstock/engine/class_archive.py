"""The classes of a session as a file that the next JVM maps into memory: a start takes a third less time.

A JVM writes it as it ends, which takes it 10 to 20 s: only sessions that are asked to do so (that of the demo) do. It
holds for one Java and one class path, each jar as it was then; the JVM itself refuses one that does not fit and starts
as if there were none, so a name is never given twice.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from penstock.engine.jars import cache_folder
from penstock.engine.java import Java, option

PATIENCE = 180.0
"""Seconds that a JVM may take to write it."""
_UNUSED = 30 * 86_400.0
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


class ClassArchive:
    def __init__(self, java: Java, class_path: str, spark_home: Path) -> None:
        release = java.home / "release"
        jars = [*map(Path, class_path.split(os.pathsep)), *sorted((spark_home / "jars").glob("*.jar"))]
        about = (
            str(spark_home),
            str(java.home),
            release.read_text() if release.exists() else "",
            *map(_as_it_is, jars),
        )
        key = hashlib.sha256("\0".join(about).encode()).hexdigest()[:16]
        self._java = java.path
        self._folder = cache_folder() / "classes"
        self._file = self._folder / f"{key}.jsa"
        self._arriving = self._folder / f".{key}-{os.getpid()}.jsa"

    @property
    def exists(self) -> bool:
        return self._file.exists()

    def use(self) -> str:
        """The option for a JVM that starts; empty without an archive."""
        if not self.exists:
            return ""
        with suppress(OSError):
            os.utime(self._file)
        return f"{option(f'-XX:SharedArchiveFile={self._file}')} {_QUIET}"

    def make(self) -> str:
        """The option for a JVM that shall write one as it ends; empty where it cannot."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return ""
        return f"{option(f'-XX:ArchiveClassesAtExit={self._arriving}')} {_QUIET}"

    def damaged(self) -> bool:
        """Asked when a JVM did not start with it: it may as well have been killed."""
        command = [str(self._java), f"-XX:SharedArchiveFile={self._file}", f"-XX:ErrorFile={os.devnull}", "-version"]
        return self.exists and subprocess.run(command, capture_output=True, check=False).returncode != 0

    def remove(self) -> None:
        self._file.unlink(missing_ok=True)

    def keep(self, *, whole: bool) -> None:
        """After the JVM's end: what it wrote is the archive from now on, if it came to its end by itself. Those that
        nobody has used for long go: each is 200 MB."""
        if whole and self._arriving.exists():
            self._arriving.replace(self._file)
        else:
            self._arriving.unlink(missing_ok=True)
        for old in self._folder.glob("*.jsa"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _UNUSED:
                    old.unlink()


def _as_it_is(jar: Path) -> str:
    try:
        about = jar.stat()
    except OSError:
        return str(jar)
    return f"{jar} {about.st_size} {about.st_mtime_ns}"
