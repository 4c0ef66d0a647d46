"""Ctrl-C and SIGTERM: the first one asks for an end within a bound, the second one does not wait.

Loads nothing of Spark, so that a run can be stopped from its first moment on.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from penstock.errors import StopRequested

STOP_TIMEOUT = 20.0
"""Seconds from the signal to the end of the process: most supervisors kill after 30."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedAtStart(StopRequested):
    """Before any table has begun: there is nothing to wait for."""


class StopNow(StopRequested):
    """The second signal."""


class StopSignals:
    """Used as a context manager around a run, in the main thread; elsewhere it hears nothing."""

    def __init__(self, timeout: float = STOP_TIMEOUT) -> None:
        self.timeout = timeout
        self.event = threading.Event()
        self.number = int(signal.SIGTERM)
        self._asked: float | None = None
        self._starting = True
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _listen(self) -> None:
        for number in self._before:
            signal.signal(number, self._ask)

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self._asked is not None:
            raise StopNow(number)
        self.number, self._asked = number, time.monotonic()
        self.event.set()
        if self._starting:
            raise StoppedAtStart(number)

    def begin(self) -> None:
        """From now on the main thread watches `event`; nothing is raised by the first signal. Spark has taken Ctrl-C
        for itself when its context was made."""
        self._starting = False
        self._listen()

    @property
    def asked(self) -> bool:
        """By a signal; the event can also be set because there is nothing left to run."""
        return self._asked is not None

    def remaining(self) -> float:
        """Seconds until the bound; all of them while nobody has asked."""
        return self.timeout if self._asked is None else max(0.0, self._asked + self.timeout - time.monotonic())


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event; the second one does not wait for a clean end. Only in the main thread."""

    def ask(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(128 + number)  # the JVM ends with us: its standard input is our pipe
        stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
