"""Growing delays between tries, and slots that keep many tables from starting their batches at one moment."""

from __future__ import annotations

import random
import time

FIRST, LONGEST = 1.0, 60.0
SLOT = 0.1
"""Seconds between the batches of two tables of one trigger: about what a small batch costs, so it delays nobody."""


class Backoff:
    """1, 2, 4 … 60 seconds, each with up to a fifth more, so that many tables do not come back at one moment."""

    def __init__(self) -> None:
        self.tries = 0

    def reset(self) -> None:
        self.tries = 0

    def next(self) -> float:
        self.tries += 1
        return min(LONGEST, FIRST * 2.0 ** min(self.tries - 1, 10)) * random.uniform(1.0, 1.2)


def slot_delay(index: int, tables: int, interval: float, *, now: float | None = None) -> float:
    """Seconds that table `index` waits before its batch. Spark fires all triggers of one interval together, at its
    multiples since the epoch; a batch that is already later than its slot waits no more."""
    if interval < 2 or tables < 2:
        return 0.0
    slot = index * min(SLOT, interval / 3 / tables)
    phase = (time.time() if now is None else now) % interval
    return max(0.0, slot - phase)
