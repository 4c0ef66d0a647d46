"""Ctrl-C and SIGTERM: the first one asks for an end within a time limit, the second one does not wait.

Imports nothing from Spark, so that a run can be stopped from its first moment.
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
"""Seconds from the signal to the end of the process; most supervisors kill after 30."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedAtStart(StopRequested):
    """A signal before any table has started: there is nothing to wait for."""


class StopNow(StopRequested):
    """The second signal."""


class StopSignals:
    """Used as a context manager around a run, in the main thread; in other threads it receives no signals."""

    def __init__(self, timeout: float = STOP_TIMEOUT) -> None:
        self.timeout = timeout
        self.event = threading.Event()
        self.number = int(signal.SIGTERM)
        self._asked_at: float | None = None
        self._starting = True
        self._old_handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._old_handlers = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._asked_at is not None:
            raise StopNow(number)
        self.number, self._asked_at = number, time.monotonic()
        self.event.set()
        if self._starting:
            raise StoppedAtStart(number)

    def begin(self) -> None:
        """From now on the main thread watches `event`, and the first signal no longer raises."""
        self._starting = False

    @property
    def stop_asked(self) -> bool:
        """Whether a signal asked to stop; the event can also be set because there is nothing left to run."""
        return self._asked_at is not None

    @property
    def interrupted_start(self) -> bool:
        """Whether a signal came before `begin`."""
        return self._starting and self.stop_asked

    def remaining(self) -> float:
        """Seconds until the time limit; the full timeout while no signal has come."""
        return self.timeout if self._asked_at is None else max(0.0, self._asked_at + self.timeout - time.monotonic())


@contextmanager
def stop_on_signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM set the event; a second signal does not wait for a clean end. Only in the main thread."""

    def handle(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(128 + number)  # the JVM ends with this process: its standard input is our pipe
        stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old_handlers = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in old_handlers.items():
            signal.signal(number, handler)
