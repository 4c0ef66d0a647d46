"""The last commits of a table: its batches and how long they took, and what others did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from statistics import median

from penstock.engine.protocol.log import Commit, Origin
from penstock.ops.recent import RecentLog

COMMITS = 100
"""That many are looked at on a local lake."""
COMMITS_REMOTE = 30
BATCHES = 20
"""Over so many of them durations and lags are taken."""


@dataclass(frozen=True)
class Batch:
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

    batches: tuple[Batch, ...] = ()
    appended: tuple[Commit, ...] = ()
    """Commits of others that added rows, after the ledger was begun."""
    doubled: tuple[tuple[int, int], ...] = ()
    """Versions that hold the same batch, both with rows."""
    opened: int = 0
    """Generations that were opened."""
    commits: int = 0
    newest_ms: int | None = None

    @property
    def recent(self) -> tuple[Batch, ...]:
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


def _batch(commit: Commit) -> Batch:
    entry = commit.entry
    assert entry is not None
    return Batch(
        version=commit.version,
        generation=entry.generation,
        number=entry.batch,
        began_ms=entry.pins.time_ms,
        committed_ms=commit.timestamp_ms,
        rows=commit.rows,
        before=entry.before,
        after=entry.after,
    )


def _once(batches: list[Batch]) -> list[Batch]:
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
