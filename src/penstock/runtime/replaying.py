"""A table that is to be made anew before its first batch: by another process, or, if that was cut off, by this one."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.engine.protocol.locks import JvmLock, Lock, NoLock, lock_path
from penstock.engine.replay.fill import Work
from penstock.engine.replay.resume import owed, resume
from penstock.errors import Transient

POLL = 0.5


def finish_replay(work: Work, system: str, stopping: threading.Event, say: Callable[[str], None]) -> None:
    """Returns when no replay is owed any more. Raises Transient if it is asked to stop meanwhile."""
    if owed(work) is None:
        return
    path = lock_path(system, work.table.name, "replay")
    lock: Lock = NoLock() if work.idempotent else JvmLock(work.spark, path)
    try:
        told = False
        while not lock.try_acquire():
            if not told:
                say("waits for the replay that another process does")
                told = True
            if stopping.wait(POLL):
                raise Transient("stopping", where=work.table.name)
        tail = owed(work)
        if tail is None:
            return
        say("a replay was cut off: it is done now")
        filled = resume(work, tail, lambda _: None)
        say(f"replay done: {filled.rows + filled.kept:,} rows, generation {filled.tail.entry.generation}")
    finally:
        lock.close()
