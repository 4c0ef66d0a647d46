"""The jars of Spark's connectors, of the development broker and of a Connect worker with Debezium: where they lie, and
that they are the right ones.

They live in the user's cache, one folder per set, under a name made from the list of their hashes, so that two
versions of Penstock never share a folder:  <cache>/jars/<list>/{spark,broker,…}/*.jar
The first use fetches them. Each is compared with the SHA-256 in jar_data/jars.sha256; `.verified` then keeps sizes and
times, so that later starts read no jar unless one of these differs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from penstock.errors import SetupError

SETS = ("spark", "broker", "connect", "postgres", "search")
FIRST = ("spark", "broker")
"""What set-up fetches. The rest is fetched by its first use alone: few need it."""
VERIFIED = ".verified"


@dataclass(frozen=True)
class Mismatch:
    """One way in which a folder differs from the list: no `found` is a missing jar, no `expected` an unlisted one."""

    jar: Path
    expected: str | None
    found: str | None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.jar.name} is missing"
        if self.expected is None:
            return f"{self.jar.name} is there but not in Penstock's list (sha256 {self.found})"
        hashes = f"\n    expected sha256 {self.expected}\n    found    sha256 {self.found}"
        return f"{self.jar.name} is not the right one{hashes}"


def spark_jars() -> tuple[Path, ...]:
    """What goes onto the session's class path: Delta and the Kafka connector, verified; fetched on first use."""
    return _jars("spark")


def own_jar() -> Path:
    """Penstock's own; it comes with the package."""
    return Path(str(files("penstock.engine").joinpath("jar_data", "penstock.jar")))


def broker_jars() -> tuple[Path, ...]:
    """The class path of the development broker, verified; fetched on first use."""
    return _jars("broker")


def connect_jars() -> tuple[Path, ...]:
    """The class path of a Connect worker with Debezium's connector, verified; fetched on first use."""
    return _jars("connect")


def postgres_jars() -> tuple[Path, ...]:
    """PostgreSQL's driver, for sinks; verified, fetched on first use."""
    return _jars("postgres")


def search_jars() -> tuple[Path, ...]:
    """The class path of a search server for tests, verified; fetched on first use."""
    return _jars("search")


def cache_folder() -> Path:
    """PENSTOCK_CACHE, else penstock in XDG_CACHE_HOME or in ~/.cache."""
    chosen = os.environ.get("PENSTOCK_CACHE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "penstock"


def jar_folder(name: str) -> Path:
    return _folder_of_sets() / name


@cache
def listed() -> Mapping[str, Mapping[str, str]]:
    """Set -> jar -> SHA-256, as committed."""
    sets: dict[str, dict[str, str]] = {name: {} for name in SETS}
    for line in _list().splitlines():
        digest, path = line.split()
        name, jar = path.split("/")
        sets[name][jar] = digest
    return sets


def fetch(names: Iterable[str] = FIRST) -> None:
    """Make these sets be there and right. Fetches what is missing, in one go; raises SetupError if that cannot be."""
    from penstock.engine.jar_fetch import fetch_sets

    wanted = [name for name in names if not _is_there(name)]
    if wanted:
        fetch_sets(wanted, _folder_of_sets(), cache_folder())


def compare(folder: Path, name: str) -> list[Mismatch]:
    """Hash every jar in the folder and compare with the list."""
    expected = listed()[name]
    there = {jar.name: jar for jar in sorted(folder.glob("*.jar"))}
    mismatches = [Mismatch(folder / jar, digest, None) for jar, digest in expected.items() if jar not in there]
    for jar, path in there.items():
        found = _sha256(path)
        if found != expected.get(jar):
            mismatches.append(Mismatch(path, expected.get(jar), found))
    return mismatches


def stamp(folder: Path) -> None:
    """Remember that the jars of this folder were compared, as they are now."""
    temporary = folder / f"{VERIFIED}.{os.getpid()}"
    temporary.write_text(json.dumps(_marks(folder)))
    temporary.replace(folder / VERIFIED)


def verify(name: str, *, thorough: bool = False) -> None:
    """Raise SetupError unless the cached set is exactly the listed one. Deletes nothing: a wrong jar is evidence."""
    folder = jar_folder(name)
    if not thorough and _marks_in(folder) == _marks(folder):
        return
    mismatches = compare(folder, name)
    if mismatches:
        raise SetupError(
            f"the jars in {folder} are not those that Penstock was tested with:\n  "
            + "\n  ".join(map(str, mismatches)),
            hint=f"if you did not change them, find out who did; then: rm -r {folder} && penstock jars fetch",
        )
    with suppress(OSError):  # A cache that we may only read is as good; it is compared again at the next start.
        stamp(folder)


def _jars(name: str) -> tuple[Path, ...]:
    fetch([name])
    return tuple(jar_folder(name) / jar for jar in listed()[name])


def _is_there(name: str) -> bool:
    """Whether the set is in the cache. If it is and differs from the list, that is an error, not a reason to fetch."""
    if not jar_folder(name).is_dir():
        return False
    verify(name)
    return True


def _folder_of_sets() -> Path:
    return cache_folder() / "jars" / hashlib.sha256(_list().encode()).hexdigest()[:12]


def _list() -> str:
    return files("penstock.engine").joinpath("jar_data", "jars.sha256").read_text()


def _marks(folder: Path) -> dict[str, list[int]]:
    """Jar -> size and time of change. Unlisted jars count too: all that lies there gets onto a class path."""
    marks = {}
    for jar in folder.glob("*.jar"):
        about = jar.stat()
        marks[jar.name] = [about.st_size, about.st_mtime_ns]
    return marks


def _marks_in(folder: Path) -> object:
    try:
        return json.loads((folder / VERIFIED).read_text())
    except (OSError, ValueError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
