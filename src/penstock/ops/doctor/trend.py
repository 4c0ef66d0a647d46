"""Whether a table keeps up: what had come and what had been read, at the times of a few of its batches.

Right after a batch, not now: whoever looks in the middle of a long trigger sees what waits for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.ops.doctor.lately import Batch

_CHANCE = 20
"""A part of what came, in which a difference means nothing: batches do not end at even times."""


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
        chance = max(1, (self.points[-1].came - self.points[0].came) // _CHANCE)
        last = self.points[-1].lag
        return last - self.points[0].lag > chance and last > self.points[-2].lag


def chosen(batches: Sequence[Batch]) -> list[Batch]:
    """The first, the middle and the last of some batches, oldest first, as far as they are different ones."""
    if len(batches) < 2:
        return []
    oldest_first = sorted(batches, key=lambda batch: batch.version)
    picked = [oldest_first[0], oldest_first[len(batches) // 2], oldest_first[-1]]
    return [batch for index, batch in enumerate(picked) if batch not in picked[:index]]


def trend_of(points: Sequence[Point]) -> Trend | None:
    return Trend(tuple(points)) if len(points) > 1 and points[0].time_ms < points[-1].time_ms else None
