"""The jars of Spark's connectors and of the development servers: where they are, fetched with Ivy, pinned by
SHA-256."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from penstock.errors import SetupError
from penstock.spark.java import find_java, java_proxy

# The jars live in the user's cache, one folder per set, under a name made from the list of their hashes, so that two
# versions of Penstock never share a folder: <cache>/jars/<list>/{spark,broker,…}/*.jar. The first use fetches them.
# Each is compared with the SHA-256 in jar_data/jars.sha256; `.verified` then records sizes and times, so that later
# starts read no jar unless one of these differs.


SETS = ("spark", "broker", "connect", "postgres", "search")
DEFAULT_SETS = ("spark", "broker")
"""What set-up fetches. The others are fetched on first use: few users need them."""
VERIFIED = ".verified"


@dataclass(frozen=True)
class Mismatch:
    """One difference between a folder and the list: no `found` is a missing jar, no `expected` an unlisted one."""

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
    """The session's class path: Delta and the Kafka connector, verified; fetched on first use."""
    return _jars("spark")


def own_jar() -> Path:
    """Penstock's own jar; it comes with the package."""
    return Path(str(files("penstock.spark").joinpath("jar_data", "penstock.jar")))


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
    return _sets_folder() / name


@cache
def jar_hashes() -> Mapping[str, Mapping[str, str]]:
    """Set -> jar -> SHA-256, as committed."""
    sets: dict[str, dict[str, str]] = {name: {} for name in SETS}
    for line in _hash_list().splitlines():
        digest, path = line.split()
        name, jar = path.split("/")
        sets[name][jar] = digest
    return sets


def fetch(names: Iterable[str] = DEFAULT_SETS) -> None:
    """Ensures that these sets are present and right. Fetches what is missing, in one go; raises SetupError if that
    fails."""

    missing = [name for name in names if not _is_cached(name)]
    if missing:
        fetch_sets(missing, _sets_folder(), cache_folder())


def compare(folder: Path, name: str) -> list[Mismatch]:
    """Hash every jar in the folder and compare with the list."""
    expected = jar_hashes()[name]
    present = {jar.name: jar for jar in sorted(folder.glob("*.jar"))}
    mismatches = [Mismatch(folder / jar, digest, None) for jar, digest in expected.items() if jar not in present]
    for jar, path in present.items():
        actual = _sha256(path)
        if actual != expected.get(jar):
            mismatches.append(Mismatch(path, expected.get(jar), actual))
    return mismatches


def mark_verified(folder: Path) -> None:
    """Records that the jars of this folder were compared, with their current sizes and times."""
    temporary = folder / f"{VERIFIED}.{os.getpid()}"
    temporary.write_text(json.dumps(_current_marks(folder)))
    temporary.replace(folder / VERIFIED)


def verify(name: str, *, thorough: bool = False) -> None:
    """Raise SetupError unless the cached set is exactly the listed one. Deletes nothing: a wrong jar is evidence."""
    folder = jar_folder(name)
    if not thorough and _stored_marks(folder) == _current_marks(folder):
        return
    mismatches = compare(folder, name)
    if mismatches:
        raise SetupError(
            f"the jars in {folder} are not those that Penstock was tested with:\n  "
            + "\n  ".join(map(str, mismatches)),
            hint=f"if you did not change them, find out who did; then: rm -r {folder} && penstock jars fetch",
        )
    with suppress(OSError):  # A read-only cache is as good; it is compared again at the next start.
        mark_verified(folder)


def _jars(name: str) -> tuple[Path, ...]:
    fetch([name])
    return tuple(jar_folder(name) / jar for jar in jar_hashes()[name])


def _is_cached(name: str) -> bool:
    """Whether the set is in the cache. If it is and differs from the list, that is an error, not a reason to fetch."""
    if not jar_folder(name).is_dir():
        return False
    verify(name)
    return True


def _sets_folder() -> Path:
    return cache_folder() / "jars" / hashlib.sha256(_hash_list().encode()).hexdigest()[:12]


def _hash_list() -> str:
    return files("penstock.spark").joinpath("jar_data", "jars.sha256").read_text()


def _current_marks(folder: Path) -> dict[str, list[int]]:
    """Jar -> size and time of change. Unlisted jars count too: every jar in the folder gets onto a class path."""
    marks = {}
    for jar in folder.glob("*.jar"):
        status = jar.stat()
        marks[jar.name] = [status.st_size, status.st_mtime_ns]
    return marks


def _stored_marks(folder: Path) -> object:
    try:
        return json.loads((folder / VERIFIED).read_text())
    except (OSError, ValueError):
        return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Fetching jars with the Apache Ivy that PySpark ships: nothing else has to be installed for it.
#
# One process at a time fetches into a cache. The jars arrive in a folder next to their final one, are compared with the
# list there, and are renamed into place: a cache has a complete, right set or none.


SILENCE = 120
"""Seconds without a byte from Ivy after which the network counts as down. Ivy itself would wait for ever."""

_CAUSE = re.compile(
    r"Host .* not found|SERVER ERROR|UnknownHost|ConnectException|NoRouteToHost|SSL\w*Exception|timed out"
)

Step = Callable[[str], None]


def fetch_sets(names: Sequence[str], folder: Path, cache: Path) -> None:
    """Fetch these sets into `folder/<set>`. Waits for another process that is fetching them."""
    java = find_java()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot write the jars to {folder}: {error.strerror}", hint="set PENSTOCK_CACHE to a folder of yours"
        ) from None
    with _only_fetcher(folder) as lock:
        missing = [name for name in names if not (folder / name).is_dir()]
        if not missing:
            return
        for abandoned in folder.glob(".fetch-*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        arrivals = folder / f".fetch-{os.getpid()}"
        ivy_cache = cache / "ivy"
        try:
            with _progress(sum(len(jar_hashes()[name]) for name in missing), cache) as step:
                _run_ivy(java.path, missing, arrivals, ivy_cache, lock, step)
            for name in missing:
                _check_arrived(name, arrivals / name, ivy_cache, cache)
                mark_verified(arrivals / name)
            for name in missing:
                (arrivals / name).rename(folder / name)
        finally:
            shutil.rmtree(arrivals, ignore_errors=True)
        shutil.rmtree(ivy_cache, ignore_errors=True)


def _check_arrived(name: str, arrived: Path, ivy_cache: Path, cache: Path) -> None:
    mismatches = compare(arrived, name)
    if not mismatches:
        return
    refused = cache / "refused" / time.strftime("%Y%m%dT%H%M%S")
    refused.mkdir(parents=True, exist_ok=True)
    for mismatch in mismatches:
        if mismatch.jar.exists():
            shutil.copy2(mismatch.jar, refused)
    # Else the next fetch would take the same wrong jar from Ivy's cache.
    shutil.rmtree(ivy_cache, ignore_errors=True)
    raise SetupError(
        f"the repository gave other jars than those that Penstock was tested with ({name}):\n  "
        + "\n  ".join(map(str, mismatches)),
        hint=f"what came is kept in {refused}, nothing was installed. Fetch again from another network or, "
        "with PENSTOCK_IVY_SETTINGS, another repository: penstock jars fetch",
    )


def _run_ivy(java: Path, names: Sequence[str], arrivals: Path, ivy_cache: Path, lock: int, step: Step) -> None:
    with as_file(files("penstock.spark").joinpath("jar_data", "ivy.xml")) as module:
        command = [
            str(java),
            *java_proxy(),
            # Keeps Ivy out of ~/.ivy2, where another project's jars could answer for ours.
            f"-Divy.default.ivy.user.dir={ivy_cache}",
            # Saves half of the requests: our own hashes are worth more than the repository's.
            "-Divy.checksums=",
            "-jar",
            str(_ivy_jar()),
            *_ivy_settings(),
            *("-ivy", str(module), "-cache", str(ivy_cache)),
            # "bundle" is the type that five of the broker's jars declare.
            *("-types", "jar", "bundle", "-confs", *names),
            *("-retrieve", f"{arrivals}/[conf]/[artifact]-[revision].[ext]"),
        ]
        # The child holds the lock too: an Ivy whose Python was killed still has the cache to itself.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=[lock]
        )
        lines: list[str] = []
        try:
            for line in _lines(process):
                lines.append(line)
                step(line)
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code != 0:
        raise _failure(lines)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[str]:
    assert process.stdout is not None
    rest = b""
    while answers := bool(select.select([process.stdout], [], [], SILENCE)[0]):
        chunk = os.read(process.stdout.fileno(), 65536)
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode(errors="replace") for line in lines)
        if not chunk:
            break
    if not answers:
        process.kill()
    if rest:  # a last line without its newline
        yield rest.decode(errors="replace")
    if not answers:
        yield f"SERVER ERROR: nothing was heard for {SILENCE} s"


def _failure(lines: Sequence[str]) -> SetupError:
    """Ivy writes hundreds of lines about one cause: shows the causes first, once each; else which jars it did not
    find."""
    causes = _distinct(line.split(" url=")[0] for line in lines if _CAUSE.search(line))
    missing = _distinct(line for line in lines if "not found:" in line or "[FAILED" in line)
    reasons = causes or missing or _distinct(lines[-4:])
    shown = "".join(f"\n  {line}" for line in reasons[:6])
    more = f"\n  (and {len(reasons) - 6} more)" if len(reasons) > 6 else ""
    problem = "the repository of the jars cannot be reached" if causes else "the jars could not be fetched"
    return SetupError(
        f"{problem}:{shown}{more}",
        hint="the first run needs the network. Behind a proxy set HTTPS_PROXY; for a mirror set PENSTOCK_IVY_SETTINGS "
        "to an Ivy settings file that names it; without either, copy the cache folder of a machine that has "
        "the jars and set PENSTOCK_CACHE to it. Then: penstock jars fetch",
    )


def _distinct(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(line.strip() for line in lines if line.strip()))


def _ivy_settings() -> list[str]:
    chosen = os.environ.get("PENSTOCK_IVY_SETTINGS")
    if not chosen:
        return []
    if not Path(chosen).is_file():
        raise SetupError(
            f"PENSTOCK_IVY_SETTINGS is {chosen}, which is not a file",
            hint="name an Ivy settings file, or unset it to use the public repository",
        )
    return ["-settings", chosen]


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder else []
    if not jars:
        raise SetupError(
            "PySpark is not whole: its Ivy is missing", hint="install the packages again: make clean setup"
        )
    return jars[-1]


@contextmanager
def _only_fetcher(folder: Path) -> Iterator[int]:
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            Console(stderr=True).print("another process is fetching the jars: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


@contextmanager
def _progress(jars: int, cache: Path) -> Iterator[Step]:
    """Shows on standard error what Ivy does. Yields the function that takes its lines."""
    console = Console(stderr=True, highlight=False)
    console.print(f"fetching {jars} jars into {cache} (only once)", soft_wrap=True)
    started = time.monotonic()
    columns = (TextColumn("  {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jars"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        lookup_task = bar.add_task("looking up", total=jars)
        download_task = bar.add_task("arrived", total=jars)

        def step(line: str) -> None:
            if line.startswith("\tfound "):
                bar.advance(lookup_task)
            elif "[SUCCESSFUL ]" in line:
                bar.update(lookup_task, completed=jars)
                bar.advance(download_task)

        yield step
    console.print(f"{jars} jars arrived in {time.monotonic() - started:.0f} s")
