"""A steady feed of many topics, by the clock: what was due is sent, however late the last look was."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.load import Feed


class Trickle:
    """`rate` records per second into each topic, from the moment this is made."""

    def __init__(self, feed: Feed, topics: Sequence[str], rate: float, partitions: int) -> None:
        self._feed, self._topics, self._rate, self._partitions = feed, topics, rate, partitions
        self._start = time.time()
        self._sent = 0

    def catch_up(self) -> None:
        due = int((time.time() - self._start) * self._rate)
        if due > self._sent:
            for topic in self._topics:
                self._feed.send(topic, self._sent, due - self._sent, self._partitions)
            self._sent = due

    def finish(self) -> int:
        """How many records each topic holds."""
        self._feed.flush()
        return self._sent
