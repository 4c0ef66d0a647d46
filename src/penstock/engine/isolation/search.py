"""Which of many records make a batch fail: found by halves.

    probes = failing records * log2(records), about

A half that passes is known to be fine; then the other half has to fail, and is not tried as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.isolation.failure import Failure

Probe = Callable[[int, int], Failure | None]
"""Runs the records from one number up to, but not including, another; what they raise."""


@dataclass(frozen=True)
class Found:
    number: int
    failure: Failure


class TooMany(Exception):
    """More records fail than may."""

    def __init__(self, found: list[Found]) -> None:
        super().__init__(len(found))
        self.found = found


class Together(Exception):
    """No single record fails, but these do together: the smallest range that was found."""

    def __init__(self, first: int, end: int, failure: Failure) -> None:
        super().__init__(first, end)
        self.first, self.end, self.failure = first, end, failure


def find_failing(count: int, probe: Probe, failure: Failure, most: int) -> list[Found]:
    """Of `count` records that fail together with `failure`. Raises TooMany, or Together."""
    found: list[Found] = []
    # Ranges that are to be looked into, the first last; with what each raises, None if that is only concluded. And the
    # smallest range around it that is known to fail.
    waiting: list[tuple[int, int, Failure | None, tuple[int, int, Failure]]] = [
        (0, count, failure, (0, count, failure))
    ]
    while waiting:
        first, end, known, around = waiting.pop()
        if known is not None:
            around = (first, end, known)
        if end - first == 1:
            known = known or probe(first, end)
            if known is None:
                raise _smallest(*around, probe)
            found.append(Found(first, known))
            if len(found) > most:
                raise TooMany(found)
            continue
        middle = (first + end) // 2
        left = probe(first, middle)
        if left is None:
            waiting.append((middle, end, None, around))
            continue
        right = probe(middle, end)
        if right is not None:
            waiting.append((middle, end, right, around))
        waiting.append((first, middle, left, around))
    return found


def first_failing(count: int, probe: Probe) -> int | None:
    """The number of the first that fails by itself; None if none does."""
    first, end = 0, count
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (first, middle) if probe(first, middle) is not None else (middle, end)
    return first if count and probe(first, end) is not None else None


def _smallest(first: int, end: int, failure: Failure, probe: Probe) -> Together:
    """A range of which nothing can be left out at its ends."""
    low, high = first, end  # the end: the smallest that fails lies in (low, high]
    while high - low > 1:
        middle = (low + high) // 2
        tried = probe(first, middle)
        if tried is None:
            low = middle
        else:
            high, failure = middle, tried
    end = high
    low, high = first, end  # the beginning: the largest that fails lies in [low, high)
    while high - low > 1:
        middle = (low + high) // 2
        tried = probe(middle, end)
        if tried is None:
            high = middle
        else:
            low, failure = middle, tried
    return Together(low, end, failure)
