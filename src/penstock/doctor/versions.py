"""Python, packages, jars and Java: are they the versions that Penstock was tested with?"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed
from penstock.errors import SetupError
from penstock.spark.jars import compare, jar_folder, jar_hashes
from penstock.spark.java import OLDEST, SUPPORTED, java_version

if TYPE_CHECKING:
    from penstock.doctor.check import Check

_CHECKED_PACKAGES = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*([<>=!~][^;]*)")
_BOUND = re.compile(r"(==|!=|~=|>=|<=|<|>)\s*([0-9][0-9.]*)(\*?)")
_OLDEST_PYTHON = (3, 11)
_RELEASE = re.compile(r'^JAVA_VERSION="?(\d+)(?:\.(\d+))?', re.MULTILINE)


def required_packages() -> dict[str, str]:
    """Package -> the versions that Penstock requires, from the metadata of its installation."""
    try:
        required = metadata.requires("penstock") or []
    except metadata.PackageNotFoundError:
        return {}
    matches = (_REQUIREMENT.match(requirement) for requirement in required if "extra ==" not in requirement)
    versions = {match[1].lower(): match[2].strip() for match in matches if match}
    return {name: versions[name] for name in _CHECKED_PACKAGES if name in versions}


def installed_packages() -> dict[str, str]:
    versions = {}
    for name in _CHECKED_PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def packages(required: Mapping[str, str], installed: Mapping[str, str]) -> Check:
    check = CheckSubject("versions.packages")
    if not required:
        return check.unknown("Penstock is not installed as a package, so what it asks for is not known")
    problems = [
        f"{name} {installed.get(name, 'is missing')} (wanted {versions})"
        for name, versions in required.items()
        if name not in installed or not fits(installed[name], versions)
    ]
    if sys.version_info < _OLDEST_PYTHON:
        problems.append(f"Python {platform.python_version()} (wanted 3.11 or newer)")
    if problems:
        arguments = " ".join(f"'{name}{required[name]}'" for name in required)
        return check.red(listed(problems), f"`pip install {arguments}`, or `make setup` in a checkout")
    return check.ok(f"Python {platform.python_version()}, " + ", ".join(f"{n} {v}" for n, v in installed.items()))


def fits(version: str, requirement: str) -> bool:
    """Compares the numbers of the versions only: no pre-release is pinned."""
    return all(
        _holds(_numbers(version), operator, _numbers(text), bool(star))
        for operator, text, star in _BOUND.findall(requirement)
    )


def _holds(actual: tuple[int, ...], operator: str, bound: tuple[int, ...], any_last: bool) -> bool:
    """`any_last`: the bound ends in `.*`."""
    width = max(len(actual), len(bound))
    left, right = (numbers + (0,) * (width - len(numbers)) for numbers in (actual, bound))
    if any_last:
        left, right = left[: len(bound)], bound
    return {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        "<": left < right,
        ">": left > right,
        "~=": left >= right and left[: len(bound) - 1] == bound[:-1],
    }[operator]


def jars(sets: Iterable[str]) -> Iterator[Check]:
    """Every jar is hashed again: 40 MB in a tenth of a second. Nothing is downloaded."""
    check = CheckSubject("versions.jars")
    for set_name in sets:
        folder = jar_folder(set_name)
        if not folder.is_dir():
            yield check.note(
                f"the jars of '{set_name}' are not fetched yet: the first run does it", "`penstock jars fetch`"
            )
            continue
        try:
            problems = compare(folder, set_name)
        except OSError as error:
            yield check.unknown(f"the jars in {folder} cannot be read: {error.strerror}")
            continue
        if problems:
            yield check.red(
                f"{folder}: {listed(str(problem).partition(chr(10))[0] for problem in problems)}",
                f"if you did not change them, find out who did; then: `rm -r {folder} && penstock jars fetch`",
            )
        else:
            yield check.ok(f"{count(len(jar_hashes()[set_name]), 'jar')} of '{set_name}', all as listed")


def java() -> Check:
    """Read from the `release` file that Java comes with, so that none is started; without that file Java is asked."""
    from penstock.spark.java import find_java

    check = CheckSubject("versions.java")
    from_file = java_from_release_file()
    if from_file is not None:
        home, version = from_file
    else:
        try:
            installation = find_java()
        except SetupError as error:
            return check.red(error.message, error.hint or "install Java 17 or 21")
        home, version = installation.home, installation.version
    text = f"Java {version} in {home}"
    if version < OLDEST:
        return check.red(text, f"Spark needs {OLDEST} or newer: set JAVA_HOME to the folder of one")
    if version not in SUPPORTED:
        return check.note(f"{text}: Spark is tested on 17 and 21", "set JAVA_HOME to one of them if it fails")
    return check.ok(text)


def java_from_release_file() -> tuple[Path, int] | None:
    """The home and version of the Java that a run would use, if its `release` file tells."""
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
