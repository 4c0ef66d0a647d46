"""One contender, one run: its figures, taken in the same way for all."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

from bench.contenders import Contender, Entry, Task
from bench.process import ContenderFailed, Contestant, Ended
from bench.progress import Commit
from bench.verify import Offsets, records

TICK = 0.5
"""Seconds between two looks at a contender: often enough to share CPU time out, rare enough not to cost any."""


@dataclass(frozen=True)
class Figures:
    """Times in seconds. A run with a `problem` has rates that do not count."""

    contender: str
    rows: int
    batches: int
    rate: float
    """Rows per second from the start of the first batch to the last commit."""
    steady: float
    """The same over the second half of the batches: what a warm process does."""
    wall: float
    """From the start of the process to its end."""
    first_commit: float
    """From the start of the process to the first commit with rows."""
    cpu: float
    """CPU seconds of the whole process tree, start and end included."""
    batch_cpu: float
    """CPU seconds from the start of the first batch to the last commit."""
    peak_rss: int
    gaps: list[float] = field(default_factory=list, repr=False)
    """From commit to commit; the first is that of batch 2."""
    gap_cpu: list[float] = field(default_factory=list, repr=False)
    problem: str | None = None

    def cpu_per_million(self) -> float:
        return self.cpu / self.rows * 1e6

    def batch_cpu_per_million(self) -> float:
        return self.batch_cpu / self.rows * 1e6

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("gaps", "gap_cpu")}


def run(
    contender: Contender,
    task: Task,
    expected: Offsets,
    *,
    patience: float,
    landed: Callable[[int], None] = lambda _: None,
    keep: bool = False,
) -> Figures:
    """Runs it to its end, at most `patience` seconds, checks its table, and removes what it wrote unless `keep`.

    `landed` hears how many rows are committed so far.
    """
    if not keep:
        shutil.rmtree(task.folder, ignore_errors=True)  # of a run that failed
    task.folder.mkdir(parents=True, exist_ok=True)
    entry = contender.enter(task)
    with Contestant(entry.argv, task.folder) as process:
        give_up = process.started + patience
        while process.alive and time.time() < give_up:
            process.sample()
            landed(sum(commit.rows for commit in entry.progress.commits()))
            time.sleep(TICK)
        ended = process.ended(timeout=max(0.1, give_up - time.time()))
    found = _figures(contender.name, entry, process, ended, expected)
    if not keep:
        shutil.rmtree(task.folder)
    return found


def _figures(name: str, entry: Entry, process: Contestant, ended: Ended, expected: Offsets) -> Figures:
    # A run that goes on in a table counts only what it did itself.
    commits = [commit for commit in entry.progress.commits() if commit.at >= process.started]
    if not commits:
        raise ContenderFailed(f"nothing landed\n{process.tail()}")
    first = max(entry.progress.first_batch() or 0.0, process.started)
    last = commits[-1].at
    rows = records(expected)  # what the table must hold; the check below says whether it does
    gaps, gap_cpu = [], []
    for before, after in pairwise(commits):
        gaps.append(after.at - before.at)
        gap_cpu.append(process.cpu_between(before.at, after.at))
    return Figures(
        contender=name,
        rows=rows,
        batches=len(commits),
        rate=rows / (last - first),
        steady=_steady(commits) or rows / (last - first),
        wall=ended.at - process.started,
        first_commit=commits[0].at - process.started,
        cpu=ended.cpu,
        batch_cpu=process.cpu_between(first, last),
        peak_rss=process.peak_rss,
        gaps=gaps,
        gap_cpu=gap_cpu,
        problem=entry.check(expected),
    )


def _steady(commits: list[Commit]) -> float | None:
    warm = len(commits) // 2
    if warm == 0 or warm == len(commits):
        return None
    seconds = commits[-1].at - commits[warm - 1].at
    return sum(commit.rows for commit in commits[warm:]) / seconds if seconds > 0 else None
