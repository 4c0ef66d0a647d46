"""What goes on beside runners that are killed: a producer that sends all the while, and a reader that looks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from deltalake.exceptions import TableNotFoundError

from tests.e2e.tables import ask

TURNS = 20
"""Of a producer, in a second."""


class Beside(ABC):
    """A thread that has its turn again and again, from `start` to `stop`."""

    def __init__(self, pause: float) -> None:
        """`pause` is in seconds, before each turn."""
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        """Not in `__init__`: a turn would come before a subclass has set what it needs."""
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    @abstractmethod
    def turn(self) -> None: ...

    def _go_on(self) -> None:
        while not self._stop.wait(self._pause):
            self.turn()


class Producing(Beside):
    """A steady stream of records. After `stop` the broker has all of them."""

    def __init__(self, bootstrap: str, rate: int) -> None:
        """`rate` is in records per second."""
        super().__init__(1 / TURNS)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._rate = rate
        self.sent = 0

    @abstractmethod
    def send_one(self) -> None:
        """By `_producer`, and counted in `sent`."""

    def turn(self) -> None:
        for _ in range(self._rate // TURNS):
            self.send_one()
        self._producer.poll(0)

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(30) == 0


class Poller(Beside):
    """The concurrent reader: at no time may a table hold twice what it holds once. `once` has a query for each table,
    which counts its rows and those of them that differ."""

    def __init__(self, folder: Path, once: Mapping[str, str], pause: float = 1.0) -> None:
        super().__init__(pause)
        self._folder, self._once = folder, once
        self.polls = 0
        self.problems: list[str] = []

    def turn(self) -> None:
        for table, query in self._once.items():
            try:
                ((rows, distinct),) = ask(self._folder, table, query)
            except TableNotFoundError:
                continue
            except Exception as error:
                self.problems.append(f"a reader of {table} failed: {error}")
                continue
            self.polls += 1
            self.judge(table, rows, distinct)

    def judge(self, table: str, rows: int, distinct: int) -> None:
        if rows != distinct:
            self.problems.append(f"poll {self.polls}: {table} has {rows} rows, {distinct} of them different")
