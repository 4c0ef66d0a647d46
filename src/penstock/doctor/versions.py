"""Python, packages, jars and Java: are they those that Penstock was tested with?"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count
from penstock.doctor.check import listed as said_list
from penstock.errors import SetupError
from penstock.spark.jars import compare, jar_folder, listed
from penstock.spark.java import OLDEST, SUPPORTED, java_version

if TYPE_CHECKING:
    from penstock.doctor.check import Check

_CHECKED = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([<>=!~][^;]*)")
_BOUND = re.compile(r"(==|>=|<=|<|>)\s*([0-9][0-9.]*)")
_OLDEST_PYTHON = (3, 11)
_RELEASE = re.compile(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', re.MULTILINE)


def wanted_packages() -> dict[str, str]:
    """Package -> the versions that Penstock asks for, as its own installation says."""
    try:
        required = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return {}
    found = (_REQUIREMENT.match(one) for one in required if "extra ==" not in one)
    named = {match[1].lower(): match[2].strip() for match in found if match}
    return {name: named[name] for name in _CHECKED if name in named}


def installed_packages() -> dict[str, str]:
    found = {}
    for name in _CHECKED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def packages(wanted: Mapping[str, str], installed: Mapping[str, str]) -> Check:
    about = CheckSubject("versions.packages")
    if not wanted:
        return about.unknown("Penstock is not installed as a package, so what it asks for is not known")
    wrong = [
        f"{name} {installed.get(name, 'is missing')} (wanted {versions})"
        for name, versions in wanted.items()
        if name not in installed or not fits(installed[name], versions)
    ]
    if sys.version_info < _OLDEST_PYTHON:
        wrong.append(f"Python {platform.python_version()} (wanted 3.11 or newer)")
    if wrong:
        asked = " ".join(f"'{name}{wanted[name]}'" for name in wanted)
        return about.red(said_list(wrong), f"`pip install {asked}`, or `make setup` in a checkout")
    return about.ok(f"Python {platform.python_version()}, " + ", ".join(f"{n} {v}" for n, v in installed.items()))


def fits(version: str, wanted: str) -> bool:
    """Versions by their numbers alone: no pre-release is pinned."""
    has = _numbers(version)
    for sign, text in _BOUND.findall(wanted):
        asked = _numbers(text)
        width = max(len(has), len(asked))
        one, other = (numbers + (0,) * (width - len(numbers)) for numbers in (has, asked))
        holds = {"==": one == other, ">=": one >= other, "<=": one <= other, "<": one < other, ">": one > other}
        if not holds[sign]:
            return False
    return True


def jars(sets: Iterable[str]) -> Iterator[Check]:
    """Every jar is hashed anew: 40 MB in a tenth of a second. Nothing is fetched."""
    about = CheckSubject("versions.jars")
    for name in sets:
        folder = jar_folder(name)
        if not folder.is_dir():
            yield about.note(
                f"the jars of '{name}' are not fetched yet: the first run does it", "`penstock jars fetch`"
            )
            continue
        try:
            wrong = compare(folder, name)
        except OSError as error:
            yield about.unknown(f"the jars in {folder} cannot be read: {error.strerror}")
            continue
        if wrong:
            yield about.red(
                f"{folder}: {said_list(str(one).partition(chr(10))[0] for one in wrong)}",
                f"if you did not change them, find out who did; then: `rm -r {folder} && penstock jars fetch`",
            )
        else:
            yield about.ok(f"{count(len(listed()[name]), 'jar')} of '{name}', all as listed")


def java() -> Check:
    """By the file that every Java has beside it, so that none is started; by asking it where there is no such file."""
    from penstock.spark.java import find_java

    about = CheckSubject("versions.java")
    noted = noted_java()
    if noted is not None:
        home, version = noted
    else:
        try:
            found = find_java()
        except SetupError as error:
            return about.red(error.message, error.hint or "install Java 17 or 21")
        home, version = found.home, found.version
    said = f"Java {version} in {home}"
    if version < OLDEST:
        return about.red(said, f"Spark needs {OLDEST} or newer: set JAVA_HOME to the folder of one")
    if version not in SUPPORTED:
        return about.note(f"{said}: Spark is tested on 17 and 21", "set JAVA_HOME to one of them if it fails")
    return about.ok(said)


def noted_java() -> tuple[Path, int] | None:
    """The home and version of the Java that a run would take, if its `release` file tells."""
    import os
    import shutil

    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    if home:
        folder = Path(home)
        if not os.access(folder / "bin" / "java", os.X_OK):
            return None  # find_java says what is wrong with it
    elif on_path:
        folder = Path(on_path).resolve().parent.parent
    else:
        return None
    try:
        match = _RELEASE.search((folder / "release").read_text(errors="replace"))
    except OSError:
        return None
    version = java_version(f'version "{match[1]}.{match[2] or 0}"') if match else None
    return (folder, version) if version is not None else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
