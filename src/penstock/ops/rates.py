"""How fast a table reads: over the last minutes, and while its batches ran. From the end of its log alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.fates import READ, read_fates
from penstock.engine.protocol.log import Commit, Origin
from penstock.engine.store import Store

WINDOW = 300.0
"""Seconds."""
MOST_BATCHES = 30
"""Of a table with many small batches, so that `status` of many tables stays quick: the window is shorter then."""
_MOST_COMMITS = 2 * MOST_BATCHES
"""With those of maintenance among them."""


@dataclass(frozen=True)
class BatchPace:
    """One batch, as the ledger tells it."""

    generation: int
    batch: int
    committed_ms: int
    rows: int
    """Read: rejected, dropped and duplicate rows among them."""
    seconds: float
    """From the start of the batch to its commit."""


@dataclass(frozen=True)
class Rates:
    window_seconds: float
    input_rows: int
    """Read by the batches of the window."""
    batch_seconds: float
    """That these batches took."""
    last: BatchPace | None
    """The last batch, however long ago."""

    @property
    def input_rows_per_second(self) -> float:
        """Per second of the window: 0 if nothing came in it."""
        return self.input_rows / self.window_seconds if self.window_seconds > 0 else 0.0

    @property
    def processed_rows_per_second(self) -> float | None:
        """Per second of batch time; None if there was no batch in the window."""
        return self.input_rows / self.batch_seconds if self.batch_seconds > 0 else None


def rates(commits: Iterable[Commit], store: Store, checkpoints: str, *, now_ms: float | None = None) -> Rates:
    """`commits` are those of the table's log, the newest first."""
    now = time.time() * 1000 if now_ms is None else now_ms
    last: BatchPace | None = None
    begin = now - WINDOW * 1000
    rows, seconds, count = 0, 0.0, 0
    later: Entry | None = None
    for index, commit in enumerate(islice(commits, _MOST_COMMITS), start=1):
        entry = commit.entry
        if index == _MOST_COMMITS:
            begin = max(begin, commit.timestamp_ms)  # what was before it is not looked at
            break
        if commit.origin is not Origin.LEDGER or entry is None:
            continue
        if commit.timestamp_ms < begin and last is not None:
            break
        if entry.kind == "genesis":
            begin = max(begin, commit.timestamp_ms)
            break
        if entry.kind != "batch":
            later = later or entry
            continue
        pace = _pace(commit, entry, later, store, checkpoints)
        last, later = last or pace, entry
        if commit.timestamp_ms < begin:
            break
        if count == MOST_BATCHES:
            begin = commit.timestamp_ms  # this batch and those before it are not in the window
            break
        rows, seconds, count = rows + pace.rows, seconds + pace.seconds, count + 1
    return Rates(max(0.0, now - begin) / 1000, rows, seconds, last)


def _pace(commit: Commit, entry: Entry, later: Entry | None, store: Store, checkpoints: str) -> BatchPace:
    began = entry.started_ms if entry.started_ms is not None else entry.pins.time_ms
    seconds = max(1, commit.timestamp_ms - began) / 1000
    return BatchPace(
        entry.generation, entry.batch, commit.timestamp_ms, _rows(commit, entry, later, store, checkpoints), seconds
    )


def _rows(commit: Commit, entry: Entry, later: Entry | None, store: Store, checkpoints: str) -> int:
    """What a batch read is in the totals of the next entry; of the last one in a file beside its offsets. A table
    without stages counts nothing, because it writes what it reads."""
    if later is not None:
        read = later.counts.fates.get(READ, 0) - entry.counts.fates.get(READ, 0)
        return read if read > 0 else commit.rows
    found = read_fates(store, f"{checkpoints}/{entry.generation}", entry.batch)
    return found.get(READ) or commit.rows
