"""The end of a run: tables finish the batch in flight, or, when the time is up, leave it to the next start.

To abandon a batch is as safe as `kill -9`: the ledger tells the next start how far it came. Nothing here waits for an
answer of the JVM in the main thread, which must hear the next signal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from penstock.errors import PenstockError
from penstock.runtime.causes import jvm_died
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.table_run import TableRun
from penstock.runtime.upkeep import Rounds
from penstock.spec.quantity import counted

JVM_ENDS_WITHIN = 20.0
"""Seconds, when nobody waits for the end."""
DEAD_WITHIN = 10.0
"""Seconds until every call into a dead JVM has failed."""
BREAK_OFF = 5.0
"""Seconds before the bound at which batches in flight are broken off; less if the bound is near."""
RECORD = 2.0
"""Seconds that it may take to write down that tables were stopped; on an object store it needs the JVM."""
POLL = 0.05


def end_runs(around: Surroundings, runs: Sequence[TableRun], rounds: Rounds | None, *, died: bool) -> None:
    """Returns when every table has ended; with a signal, at its bound in any case."""
    asked = around.signals if around.stop_asked else None
    if asked is None:
        around.stopping.set()  # there is nothing left to run, or to look after
        asking = _ask(runs, rounds)
        _until_ended(runs, DEAD_WITHIN if died else None)
        if died:
            give_up(around, runs, jvm_died(around.log, around.jvm_end() or "it does not answer"))
        for thread in asking:
            thread.join(0.0 if died else None)
        return
    _announce(around, runs, asked.timeout)
    _ask(runs, rounds)
    reserve = min(BREAK_OFF, asked.timeout / 2)
    _until_ended(runs, asked.remaining() - reserve)
    if any(one.thread.is_alive() for one in runs):
        for one in runs:
            _beside(one.break_off)
        _beside(around.spark.sparkContext.cancelAllJobs)  # of tables that are made ready
        _until_ended(runs, asked.remaining() - reserve / 2)
    give_up(around, runs)


def give_up(around: Surroundings, runs: Sequence[TableRun], error: PenstockError | None = None) -> None:
    """What has not ended is recorded as stopped, or as failed with `error`; what a stop broke off is told."""
    recording = [_beside(partial(one.give_up, error)) for one in runs if one.thread.is_alive()]
    deadline = time.monotonic() + RECORD
    for thread in recording:
        thread.join(max(0.0, deadline - time.monotonic()))
    for one in runs:
        if one.abandoned is not None and error is None:
            around.listener.said("", one.abandoned)


def _announce(around: Surroundings, runs: Sequence[TableRun], timeout: float) -> None:
    found = [one.in_flight for one in runs]
    batches, starts = found.count("batch"), found.count("start")
    parts = [f"{counted(batches, 'batch')} in flight".replace("batchs", "batches")] if batches else []
    parts += [f"{counted(starts, 'table')} to start"] if starts else []
    if parts:
        what = " and ".join(parts)
        around.listener.said("", f"stopping: waiting up to {timeout:g} s for {what}; press Ctrl-C again to stop now")
    else:
        around.listener.said("", "stopping: no batch is in flight")


def _ask(runs: Sequence[TableRun], rounds: Rounds | None) -> list[threading.Thread]:
    """All at once: each waits for its own batch."""
    return [_beside(one.stop) for one in runs] + ([_beside(rounds.stop)] if rounds is not None else [])


def _until_ended(runs: Sequence[TableRun], patience: float | None) -> None:
    deadline = None if patience is None else time.monotonic() + patience
    while any(one.thread.is_alive() for one in runs):
        if deadline is not None and time.monotonic() >= deadline:
            return
        time.sleep(POLL)


def _beside(work: Callable[[], object]) -> threading.Thread:
    def quietly() -> None:
        try:
            work()
        except Exception:  # a call into a JVM that is going; what counts is whether the table has ended
            return

    thread = threading.Thread(target=quietly, name="end of a run", daemon=True)
    thread.start()
    return thread
