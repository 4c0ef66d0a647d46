"""While a table runs that reads files, its folder is looked at shortly before each of its triggers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.engine.files.reader import FilesReader
from penstock.engine.source import Source
from penstock.errors import PenstockError
from penstock.runtime.causes import JvmDied

LEAD = 1.0
"""Seconds before a trigger: what a look takes, if the folder is not large."""
Say = Callable[[str], None]
Explain = Callable[[BaseException, str], PenstockError]


def look(source: Source, say: Say) -> None:
    """Before a start: all that is there belongs to it."""
    if isinstance(source, FilesReader):
        for message in source.look():
            say(message)


@contextmanager
def looking(source: Source, query: Any, interval: float | None, say: Say, explain: Explain) -> Iterator[None]:
    """`interval` is that of the triggers; without one there is nothing to look for."""
    if not isinstance(source, FilesReader) or not interval:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_look_again,
        args=(source, query, interval, say, explain, ended),
        name=f"{source.table} files",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _look_again(
    source: FilesReader, query: Any, interval: float, say: Say, explain: Explain, ended: threading.Event
) -> None:
    """A batch in flight is waited for: what has come meanwhile is then one batch, not many small ones."""
    said = ""
    while not ended.wait(until_next(interval)):
        try:
            if query.status["isTriggerActive"]:
                continue
            look(source, say)
            said = ""
        except Exception as error:
            if ended.is_set():
                return
            cause = explain(error, source.table)
            if isinstance(cause, JvmDied):  # that is told once, by the runner
                return
            message = f"the folder could not be looked at: {cause.message}"
            if message != said:
                say(message)
            said = message


def until_next(interval: float, *, now: float | None = None) -> float:
    """Seconds until shortly before the next trigger: Spark fires at the multiples of the interval since the epoch."""
    phase = (time.time() if now is None else now) % interval
    wait = interval - phase - min(LEAD, interval / 4)
    return wait if wait > 0.001 else wait + interval
