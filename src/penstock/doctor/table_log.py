"""The recent commits of a table and when they were made, its files and its properties."""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import Origin

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, RecentLog
    from penstock.storage.stores import Store

# The last commits of a table: its batches and how long they took, and what others did.


COMMITS = 100
"""That many are looked at on a local lake."""
COMMITS_REMOTE = 30
BATCHES = 20
"""Over so many of them durations and lags are taken."""


@dataclass(frozen=True)
class RecentBatch:
    version: int
    generation: int
    number: int
    began_ms: int
    """When Spark planned it."""
    committed_ms: int
    rows: int
    before: tuple[str, ...]
    after: tuple[str, ...]

    @property
    def seconds(self) -> float:
        """Of one that was run again after a stop, the pause is in it."""
        return max(0.0, (self.committed_ms - self.began_ms) / 1000)


@dataclass(frozen=True)
class Lately:
    """Newest first."""

    batches: tuple[RecentBatch, ...] = ()
    appended: tuple[Commit, ...] = ()
    """Commits of others that added rows, after the ledger was begun."""
    doubled: tuple[tuple[int, int], ...] = ()
    """Versions that hold the same batch, both with rows."""
    opened: int = 0
    """Generations that were opened."""
    commits: int = 0
    newest_ms: int | None = None

    @property
    def recent(self) -> tuple[RecentBatch, ...]:
        return self.batches[:BATCHES]

    @property
    def usual_seconds(self) -> float | None:
        """The median: the first batch of a process and one that was run again say little."""
        return median(batch.seconds for batch in self.recent) if self.recent else None


def lately(log: RecentLog, commits: int = COMMITS) -> Lately:
    found = list(islice(log.backwards(), commits))
    ours = [commit for commit in found if commit.origin is Origin.LEDGER and commit.entry is not None]
    batches = [_batch(commit) for commit in ours if commit.entry is not None and commit.entry.kind == "batch"]
    begun = next((c.version for c in ours if c.entry is not None and c.entry.kind == "genesis"), -1)
    return Lately(
        batches=tuple(_once(batches)),
        appended=tuple(c for c in found if c.origin is Origin.FOREIGN_APPEND and c.version > begun),
        doubled=tuple(_doubled(ours)),
        opened=sum(commit.entry is not None and commit.entry.kind == "open" for commit in ours),
        commits=len(found),
        newest_ms=(found[0].timestamp_ms or None) if found else None,
    )


def _batch(commit: Commit) -> RecentBatch:
    entry = commit.entry
    assert entry is not None
    return RecentBatch(
        version=commit.version,
        generation=entry.generation,
        number=entry.batch,
        began_ms=entry.pins.time_ms,
        committed_ms=commit.timestamp_ms,
        rows=commit.rows,
        before=entry.before,
        after=entry.after,
    )


def _once(batches: list[RecentBatch]) -> list[RecentBatch]:
    """A batch whose text a later commit repeats counts where it was written first."""
    by_key = {(batch.generation, batch.number): batch for batch in batches}
    return sorted(by_key.values(), key=lambda batch: -batch.version)


def _doubled(ours: list[Commit]) -> list[tuple[int, int]]:
    """As `verify` sees it: rows in both, and the later one is no compaction of the first."""
    found, first = [], dict[tuple[int, int], int]()
    for commit in reversed(ours):
        entry = commit.entry
        if entry is None or entry.kind != "batch" or not commit.rows:
            continue
        if entry.key not in first:
            first[entry.key] = commit.version
        elif not commit.files_removed:
            found.append((first[entry.key], commit.version))
    return found


# When the commits of a log were made, found by few looks: a log of 30 days may have 86,000 of them.


MOST_LOOKS = 120
"""Commits that are read to find the longest pause. With n of them it is known to 1/n of the log's time."""


@dataclass(frozen=True)
class Pause:
    """The longest time between two commits that follow each other: stopped, or nothing came."""

    seconds: float
    before_version: int
    """The commit that ended it."""
    exact: bool = True
    """Else there may be a longer one, of at most `at_most` seconds, that was not looked at."""
    at_most: float = 0.0


def oldest(log: RecentLog) -> int:
    """The oldest version whose commit the log still has; -1 if there is no table."""
    low, high = 0, log.newest()
    if high < 0 or log.commit(0) is not None:
        return min(high, 0)
    while high - low > 1:  # low is gone, high is there, and there is no hole between
        middle = (low + high) // 2
        if log.commit(middle) is None:
            low = middle
        else:
            high = middle
    return high


def version_at(log: RecentLog, time_ms: float) -> int | None:
    """The newest version that was there at a time; None if the log does not go back so far, or the table was not made
    yet."""
    low, high = oldest(log), log.newest()
    if high < 0 or _time(log, low) > time_ms:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if _time(log, middle) <= time_ms:
            low = middle
        else:
            high = middle - 1
    return low


def longest_pause(log: RecentLog, looks: int = MOST_LOOKS) -> Pause | None:
    """None if there are fewer than two commits. The longest stretch is halved again and again, until it is one between
    two neighbours: whatever was not looked into is shorter."""
    first, last = oldest(log), log.newest()
    if last - first < 1:
        return None
    stretches = [_stretch(log, first, last)]
    while True:
        minus, low, high = heapq.heappop(stretches)
        if high - low == 1:
            return Pause(-minus, high)
        if looks <= 0:
            known = [(-seconds, end) for seconds, start, end in stretches if end - start == 1]
            return Pause(*max(known, default=(0.0, last)), exact=False, at_most=-minus)
        looks -= 1
        middle = (low + high) // 2
        heapq.heappush(stretches, _stretch(log, low, middle))
        heapq.heappush(stretches, _stretch(log, middle, high))


def _stretch(log: RecentLog, low: int, high: int) -> tuple[float, int, int]:
    return -max(0.0, (_time(log, high) - _time(log, low)) / 1000), low, high


def _time(log: RecentLog, version: int) -> int:
    """One that retention took meanwhile, or whose writer gave no time, is not allowed to look like a pause."""
    commit = log.commit(version)
    if commit is not None and commit.timestamp_ms:
        return commit.timestamp_ms
    newest = log.commit(log.newest())
    return newest.timestamp_ms if newest is not None else 0


# How a table lies on its store: files and bytes, its properties, its log since Delta's last checkpoint.
#
# Delta notes the number and the size of the files beside every commit (`N.crc`), so that a few small files tell all
# of it; `deltalake` rebuilds the table's state only where a writer left no such note.


_NOTES_TRIED = 3
_MOST_SIZED = 1_000
"""Commits since a checkpoint whose sizes are added up."""
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
    """Of those commits; None if there are too many to look, or the store does not tell."""


def layout(store: Store, uri: str, version: int) -> StoredLayout:
    """Of a table's newest version. Raises what `deltalake` raises if nothing else tells."""
    found = _noted(store, uri, version) or _rebuilt(uri)
    since = version - _last_checkpoint(store, uri)
    return StoredLayout(found.files, found.bytes, found.properties, since, _log_bytes(uri, version, since))


def bytes_at(store: Store, uri: str, version: int) -> int | None:
    """The size of a table at an earlier version, if that was noted."""
    found = _noted(store, uri, version)
    return found.bytes if found is not None else None


def kept_for(properties: Mapping[str, str], name: str, usually: str) -> float | None:
    """Seconds of a property that is an interval; None if it cannot be read."""
    text = properties.get(name, usually)
    found = _INTERVAL.findall(text)
    left = re.sub(r"interval|\s", "", _INTERVAL.sub("", text), flags=re.IGNORECASE)
    return None if not found or left else float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in found))


def _noted(store: Store, uri: str, version: int) -> StoredLayout | None:
    for one in range(version, max(-1, version - _NOTES_TRIED), -1):
        note = _document(store.read(f"{uri}/_delta_log/{one:020d}.crc"))
        try:
            properties = note["metadata"]["configuration"]
            return StoredLayout(int(note["numFiles"]), int(note["tableSizeBytes"]), dict(properties))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _rebuilt(uri: str) -> StoredLayout:
    from penstock.storage.delta_rows import open_table

    table = open_table(uri)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return StoredLayout(len(sizes), sum(int(one) for one in sizes), dict(table.metadata().configuration))


def _last_checkpoint(store: Store, uri: str) -> int:
    try:
        return int(_document(store.read(f"{uri}/_delta_log/_last_checkpoint"))["version"])
    except (KeyError, TypeError, ValueError):
        return -1


def _log_bytes(uri: str, version: int, since: int) -> int | None:
    if "://" in uri or since > _MOST_SIZED:
        return None
    log = Path(uri) / "_delta_log"
    total = 0
    for one in range(version - since + 1, version + 1):
        try:
            total += (log / f"{one:020d}.json").stat().st_size
        except FileNotFoundError:
            continue
    return total


def _document(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
