"""Whether a table keeps up: what had come and what had been read, at the times of a few of its batches.

Right after a batch, not now: whoever looks in the middle of a long trigger sees what waits for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from penstock.ops.doctor.lately import Batch

_CHANCE = 20
"""A part of what came, in which a difference means nothing: batches do not end at even times."""
_PAUSE, _LEAST_PAUSE = 10, 60_000
"""So many times the usual time between two batches, and so many ms, was no trigger but a stop."""


@dataclass(frozen=True)
class Point:
    """Offsets of topics, or versions of tables, added up over all that the table reads."""

    time_ms: int
    came: int
    """Where the source ended."""
    read: int
    """Where the table stood."""

    @property
    def lag(self) -> int:
        return max(0, self.came - self.read)


@dataclass(frozen=True)
class Trend:
    """Oldest first; at least two."""

    points: tuple[Point, ...]
    batch: int = 1
    """What comes while two batches run: so much may be left after any of them."""

    @property
    def seconds(self) -> float:
        return max(0.001, (self.points[-1].time_ms - self.points[0].time_ms) / 1000)

    @property
    def came(self) -> float:
        """Per second."""
        return (self.points[-1].came - self.points[0].came) / self.seconds

    @property
    def read(self) -> float:
        return (self.points[-1].read - self.points[0].read) / self.seconds

    @property
    def grows(self) -> bool:
        """From the first to the last, and to the end: who catches up after a pause has more lag than before it, too."""
        chance = max(self.batch, (self.points[-1].came - self.points[0].came) // _CHANCE)
        last = self.points[-1].lag
        return last - self.points[0].lag > chance and last > self.points[-2].lag


def chosen(batches: Sequence[Batch]) -> list[Batch]:
    """The first, the middle and the last batch since the last stop, oldest first, as far as they are different ones."""
    newest_first = _since_stop(sorted(batches, key=lambda batch: -batch.version))
    if len(newest_first) < 2:
        return []
    picked = [newest_first[-1], newest_first[len(newest_first) // 2], newest_first[0]]
    return [batch for index, batch in enumerate(picked) if batch not in picked[:index]]


def _since_stop(newest_first: Sequence[Batch]) -> list[Batch]:
    gaps = [later.committed_ms - earlier.committed_ms for later, earlier in pairwise(newest_first)]
    longest = max(_LEAST_PAUSE, _PAUSE * median(gaps)) if gaps else 0
    stop = next((index for index, gap in enumerate(gaps) if gap > longest), len(gaps))
    return list(newest_first[: stop + 1])


def trend_of(points: Sequence[Point], batch_seconds: float, least: int) -> Trend | None:
    """`batch_seconds` is what a batch usually takes; a lag of `least` is never one."""
    if len(points) < 2 or points[0].time_ms >= points[-1].time_ms:
        return None
    found = Trend(tuple(points))
    return replace(found, batch=max(least, round(2 * batch_seconds * found.came)))
