"""Compile Penstock's Java classes into the jar that is committed, so that users need no JDK.

    python scripts/build_jar.py [FILE]

The same sources give the same bytes: one release of javac, class files in the order of their names with one date, not
compressed, and no word about the machine. tests/e2e/test_own_jar.py builds it again and compares.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

from penstock.spark.jars import own_jar, spark_jars

JDK = 17
"""Another javac may compile the same source to other instructions."""
SOURCES = own_jar().with_name("java")
DATE = (2026, 1, 1, 0, 0, 0)


def installed_jdk() -> int | None:
    """The release of the javac on the PATH, such as 17; None without one."""
    try:
        said = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return int((said.stdout or said.stderr).split()[1].partition(".")[0])


def build(jar: Path) -> None:
    names = sorted(file.relative_to(SOURCES).as_posix() for file in SOURCES.rglob("*.java"))
    with tempfile.TemporaryDirectory() as folder:
        _compile(names, folder)
        classes = sorted(Path(folder).rglob("*.class"), key=lambda file: file.relative_to(folder).as_posix())
        with zipfile.ZipFile(jar, "w") as archive:
            _add(archive, "META-INF/MANIFEST.MF", _manifest(names))
            for file in classes:
                _add(archive, file.relative_to(folder).as_posix(), file.read_bytes())


def _compile(names: list[str], folder: str) -> None:
    spark = find_spec("pyspark")
    assert spark is not None and spark.origin is not None
    path = ":".join([str(Path(spark.origin).parent / "jars" / "*"), *map(str, spark_jars())])
    options = ["--release", str(JDK), "-encoding", "UTF-8", "-Xlint:all,-classfile,-serial,-path", "-g:source,lines"]
    subprocess.run(["javac", *options, "-cp", path, "-d", folder, *names], cwd=SOURCES, check=True)


def _manifest(names: list[str]) -> bytes:
    """With a hash of the sources: a test without a JDK sees that the jar is older than they are."""
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in names)).hexdigest()
    line = f"Sources-SHA256: {digest}"
    return f"Manifest-Version: 1.0\r\n{line[:70]}\r\n {line[70:]}\r\n\r\n".encode()  # no line may be longer


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, DATE)
    entry.create_system, entry.external_attr = 3, 0o644 << 16
    archive.writestr(entry, content)


if __name__ == "__main__":
    if installed_jdk() != JDK:
        sys.exit(f"javac {JDK} is needed on the PATH, and {installed_jdk() or 'none'} is there: install JDK {JDK}")
    build(Path(sys.argv[1]) if len(sys.argv) > 1 else own_jar())
