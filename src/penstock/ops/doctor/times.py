"""When the commits of a log were made, found by few looks: a log of 30 days may have 86,000 of them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from penstock.ops.recent import RecentLog

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
