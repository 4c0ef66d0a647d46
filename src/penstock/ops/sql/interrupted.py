"""Ctrl-C while a query runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext

_AGAIN = 0.3


@contextmanager
def ended_by_ctrl_c(context: SparkContext) -> Iterator[None]:
    """Ends the jobs of what runs within, and then raises KeyboardInterrupt; the second one does not wait for that.

    PySpark's own handler asks for it on the connection that waits for the answer, which breaks it and ends no job.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    over, asked = threading.Event(), threading.Event()

    def end_jobs() -> None:
        while not over.is_set():
            context.cancelAllJobs()
            over.wait(_AGAIN)  # and once more: the job may not have begun

    def ask(*_: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        threading.Thread(target=end_jobs, daemon=True).start()

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    except Exception:
        if asked.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
    if asked.is_set():
        raise KeyboardInterrupt
