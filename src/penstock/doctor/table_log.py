"""The recent commits of a table and when they were made, its files and its properties."""

from __future__ import annotations

import heapq
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import Origin

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, RecentLog
    from penstock.ledger.entry import Entry
    from penstock.storage.stores import Store

# The last commits of a table: its batches and how long they took, and the commits of others.


COMMITS = 100
"""How many commits are read on a local lake."""
COMMITS_REMOTE = 30
BATCHES = 20
"""Durations and lags are taken over this many batches."""


@dataclass(frozen=True)
class RecentBatch:
    version: int
    generation: int
    number: int
    planned_ms: int
    """When Spark planned it."""
    committed_ms: int
    rows: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """For a batch that was repeated after a stop, this includes the pause."""
        return max(0.0, (self.committed_ms - self.planned_ms) / 1000)


@dataclass(frozen=True)
class RecentCommits:
    """The recent commits of a table, newest first."""

    batches: tuple[RecentBatch, ...] = ()
    foreign_appends: tuple[Commit, ...] = ()
    """Commits of others that added rows since the ledger began."""
    duplicates: tuple[tuple[int, int], ...] = ()
    """Versions that hold the same batch, both with rows."""
    generations_opened: int = 0
    """How many generations were opened."""
    commits: int = 0
    newest_ms: int | None = None

    @property
    def recent(self) -> tuple[RecentBatch, ...]:
        return self.batches[:BATCHES]

    @property
    def usual_seconds(self) -> float | None:
        """The median, because the first batch of a process and a repeated batch say little."""
        return median(batch.seconds for batch in self.recent) if self.recent else None


def read_recent_commits(log: RecentLog, commits: int = COMMITS) -> RecentCommits:
    read_commits = list(islice(log.backwards(), commits))
    entries = [
        (commit, commit.entry) for commit in read_commits if commit.origin is Origin.LEDGER and commit.entry is not None
    ]
    genesis_version = next((commit.version for commit, entry in entries if entry.kind == "genesis"), -1)
    return RecentCommits(
        batches=tuple(_without_repeats([_batch(commit, entry) for commit, entry in entries if entry.kind == "batch"])),
        foreign_appends=tuple(
            commit
            for commit in read_commits
            if commit.origin is Origin.FOREIGN_APPEND and commit.version > genesis_version
        ),
        duplicates=tuple(_doubled_batches(entries)),
        generations_opened=sum(entry.kind == "open" for _, entry in entries),
        commits=len(read_commits),
        newest_ms=(read_commits[0].timestamp_ms or None) if read_commits else None,
    )


def _batch(commit: Commit, entry: Entry) -> RecentBatch:
    return RecentBatch(
        version=commit.version,
        generation=entry.generation,
        number=entry.batch,
        planned_ms=entry.pins.time_ms,
        committed_ms=commit.timestamp_ms,
        rows=commit.rows,
        before=entry.before,
        after=entry.after,
    )


def _without_repeats(batches: list[RecentBatch]) -> list[RecentBatch]:
    """A batch that a later commit repeats counts where it was written first."""
    by_key = {(batch.generation, batch.number): batch for batch in batches}
    return sorted(by_key.values(), key=lambda batch: -batch.version)


def _doubled_batches(entries: list[tuple[Commit, Entry]]) -> list[tuple[int, int]]:
    """Defined as in `verify`: both commits have rows, and the later one is not a compaction of the first."""
    pairs, first_versions = [], dict[tuple[int, int], int]()
    for commit, entry in reversed(entries):
        if entry.kind != "batch" or not commit.rows:
            continue
        if entry.key not in first_versions:
            first_versions[entry.key] = commit.version
        elif not commit.files_removed:
            pairs.append((first_versions[entry.key], commit.version))
    return pairs


# When the commits of a log were made, found with few reads: a log of 30 days may have 86,000 commits.


MAX_READS = 120
"""Commits that are read to find the longest pause. With n of them it is known to 1/n of the log's time span."""


@dataclass(frozen=True)
class Pause:
    """The longest time between two consecutive commits: the table was stopped, or nothing arrived."""

    seconds: float
    before_version: int
    """The commit that ended the pause."""
    exact: bool = True
    """If False, a stretch that was not examined may hold a longer pause, of at most `at_most` seconds."""
    at_most: float = 0.0


def oldest_version(log: RecentLog) -> int:
    """The oldest version whose commit the log still has; -1 if there is no table. Above it there is no gap."""
    newest = log.newest()
    if newest < 0 or log.commit(0) is not None:
        return min(newest, 0)
    return bisect_left(range(newest), True, key=lambda version: log.commit(version) is not None)


def version_at(log: RecentLog, time_ms: float) -> int | None:
    """The newest version that existed at a time; None if the log does not reach back that far, or there was no table
    yet."""
    oldest, newest = oldest_version(log), log.newest()
    if newest < 0:
        return None
    count = bisect_right(range(oldest, newest + 1), time_ms, key=lambda version: _commit_time(log, version))
    return oldest + count - 1 if count else None


def longest_pause(log: RecentLog, looks: int = MAX_READS) -> Pause | None:
    """None if there are fewer than two commits. The longest stretch is halved until it lies between two neighbours:
    every stretch that was not examined is then shorter."""
    first, last = oldest_version(log), log.newest()
    if last - first < 1:
        return None
    stretches = [_measure_stretch(log, first, last)]
    while True:
        negative_seconds, low, high = heapq.heappop(stretches)
        if high - low == 1:
            return Pause(-negative_seconds, high)
        if looks <= 0:
            known_pauses = [
                (-seconds, end_version)
                for seconds, start_version, end_version in stretches
                if end_version - start_version == 1
            ]
            return Pause(*max(known_pauses, default=(0.0, last)), exact=False, at_most=-negative_seconds)
        looks -= 1
        middle = (low + high) // 2
        heapq.heappush(stretches, _measure_stretch(log, low, middle))
        heapq.heappush(stretches, _measure_stretch(log, middle, high))


def _measure_stretch(log: RecentLog, low: int, high: int) -> tuple[float, int, int]:
    return -max(0.0, (_commit_time(log, high) - _commit_time(log, low)) / 1000), low, high


def _commit_time(log: RecentLog, version: int) -> int:
    """In ms. A commit that retention removed meanwhile, or that has no time, must not look like a pause: it gets the
    time of the newest commit."""
    commit = log.commit(version)
    if commit is not None and commit.timestamp_ms:
        return commit.timestamp_ms
    newest = log.commit(log.newest())
    return newest.timestamp_ms if newest is not None else 0


# How a table is stored: files and bytes, its properties, its log since Delta's last checkpoint.
#
# Delta writes the number and the size of the files next to every commit (`N.crc`), so a few small files are enough;
# `deltalake` rebuilds the table's state only where a writer left no such file.


_CRC_TRIES = 3
_MAX_SIZED_COMMITS = 1_000
"""The sizes of at most this many commits since a checkpoint are added up."""
_INTERVAL = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True)
class StoredLayout:
    files: int
    bytes: int
    properties: Mapping[str, str] = field(default_factory=dict)
    since_checkpoint: int = 0
    """Commits after Delta's last checkpoint; all of them if there was none."""
    log_bytes: int | None = None
    """Size of those commits; None if there are too many to look at, or the store does not tell."""


def read_layout(store: Store, uri: str, version: int) -> StoredLayout:
    """The layout of a table's newest version. Where no `.crc` file tells, it raises what `deltalake` raises."""
    stored = _read_crc(store, uri, version) or _rebuild_layout(uri)
    since_checkpoint = version - _last_checkpoint(store, uri)
    log_bytes = _log_bytes(uri, version, since_checkpoint)
    return replace(stored, since_checkpoint=since_checkpoint, log_bytes=log_bytes)


def bytes_at(store: Store, uri: str, version: int) -> int | None:
    """The size of a table at an earlier version, if a `.crc` file tells."""
    stored = _read_crc(store, uri, version)
    return stored.bytes if stored is not None else None


def interval_seconds(properties: Mapping[str, str], name: str, default: str) -> float | None:
    """Seconds of a property that is an interval; None if it cannot be parsed."""
    text = properties.get(name, default)
    amounts = _INTERVAL.findall(text)
    unparsed = re.sub(r"interval|\s", "", _INTERVAL.sub("", text), flags=re.IGNORECASE)
    if not amounts or unparsed:
        return None
    return float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in amounts))


def _read_crc(store: Store, uri: str, version: int) -> StoredLayout | None:
    for candidate in range(version, max(-1, version - _CRC_TRIES), -1):
        crc = _parse_object(store.read(f"{uri}/_delta_log/{candidate:020d}.crc"))
        try:
            properties = crc["metadata"]["configuration"]
            return StoredLayout(int(crc["numFiles"]), int(crc["tableSizeBytes"]), dict(properties))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _rebuild_layout(uri: str) -> StoredLayout:
    from penstock.storage.delta_rows import open_table

    table = open_table(uri)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return StoredLayout(len(sizes), sum(int(file_size) for file_size in sizes), dict(table.metadata().configuration))


def _last_checkpoint(store: Store, uri: str) -> int:
    try:
        return int(_parse_object(store.read(f"{uri}/_delta_log/_last_checkpoint"))["version"])
    except (KeyError, TypeError, ValueError):
        return -1


def _log_bytes(uri: str, version: int, commits: int) -> int | None:
    if "://" in uri or commits > _MAX_SIZED_COMMITS:
        return None
    log = Path(uri) / "_delta_log"
    total = 0
    for commit_version in range(version - commits + 1, version + 1):
        try:
            total += (log / f"{commit_version:020d}.json").stat().st_size
        except FileNotFoundError:
            continue
    return total


def _parse_object(text: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
