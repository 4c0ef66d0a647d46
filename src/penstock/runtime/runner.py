"""Many tables in one session: started, watched, stopped together; each failing alone."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import FrameType

from pyspark.sql import SparkSession

from penstock.engine.session import logs_folder, spark_session
from penstock.engine.sources import Sources
from penstock.engine.store import HadoopStore, LocalStore, Store
from penstock.errors import PenstockError
from penstock.plan.model import Plan, TablePlan
from penstock.plan.select import choose
from penstock.runtime.causes import JvmDied, explain
from penstock.runtime.listener import Listener, Result
from penstock.runtime.surroundings import Surroundings
from penstock.runtime.table_run import TableRun
from penstock.runtime.upkeep import Care, Rounds

STARTS_AT_ONCE = 4
POLL = 0.05
KEEP_EVERY = 3600.0
LOOK_EVERY = 5.0


def run(
    plan: Plan,
    names: Sequence[str],
    listener: Listener,
    *,
    once: bool,
    show_logs: bool = False,
    keep_classes: bool = False,
    care: Care | None = None,
) -> Result:
    """Runs the named tables (all if none is named) until they end or a signal asks to stop. `care` looks after their
    files as often as the project says."""
    tables = choose(plan, names)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it reports reaches the user as an error of a table
    try:
        say = partial(listener.said, "")
        with spark_session(plan, show_logs=show_logs, keep_classes=keep_classes, say=say) as spark:
            return run_in(spark, plan, tables, listener, once=once, care=care)
    except Exception as error:  # the JVM can die between any two calls, also before a table is there to report it
        raise explain(error, plan.name, str(logs_folder(plan))) from error


def run_in(
    spark: SparkSession,
    plan: Plan,
    tables: Sequence[TablePlan],
    listener: Listener,
    *,
    once: bool,
    stop: threading.Event | None = None,
    care: Care | None = None,
) -> Result:
    """The same in a session that is there already. Setting `stop` asks for a clean end, as a signal does; a signal
    sets it."""
    stopping = threading.Event() if stop is None else stop
    around = Surroundings(
        spark=spark,
        plan=plan,
        store=open_store(spark, plan.lake),
        listener=listener,
        once=once,
        log=str(logs_folder(plan)),
        starts=threading.Semaphore(STARTS_AT_ONCE),
        stopping=stopping,
    )
    sources = Sources(partial(open_store, spark), spark)
    runs = [
        TableRun(around, table, partial(sources.open, table), index, len(tables)) for index, table in enumerate(tables)
    ]
    by_name = {one.thread.name: one for one in runs}
    for one, table in zip(runs, tables, strict=True):
        one.upstream = tuple(by_name[name] for name in table.waits_for if name in by_name)
    rounds = Rounds(around, care, by_name) if care is not None and plan.maintenance.scheduled else None
    with _signals(stopping):
        for one in runs:
            one.thread.start()
        if rounds is not None and not once:
            rounds.start()
        _wait(runs, stopping)
        if rounds is not None and not once:
            stopping.set()  # the last table has ended, by itself or not: there is nothing left to look after
            rounds.stop()
        for one in runs:
            one.stop()
        for one in runs:
            one.thread.join()
        if rounds is not None and once:
            rounds.catch_up()
    errors: dict[str, PenstockError] = {one.thread.name: one.error for one in runs if one.error is not None}
    return Result({one.thread.name: one.outcome for one in runs}, errors)


def open_store(spark: SparkSession, uri: str) -> Store:
    return HadoopStore(spark) if "://" in uri else LocalStore()


def _wait(runs: Sequence[TableRun], stopping: threading.Event) -> None:
    kept = looked = time.monotonic()
    while any(one.thread.is_alive() for one in runs) and not stopping.is_set():
        stopping.wait(POLL)
        if time.monotonic() - kept > KEEP_EVERY:
            kept = time.monotonic()
            for one in runs:
                one.keep()
        if time.monotonic() - looked > LOOK_EVERY:
            for one in runs:
                one.look()
            looked = time.monotonic()
        if any(isinstance(one.error, JvmDied) for one in runs):
            stopping.set()


@contextmanager
def _signals(stopping: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a clean end; the second one does not wait for it."""

    def ask(number: int, _: FrameType | None) -> None:
        if stopping.is_set():
            os._exit(128 + number)  # the JVM ends with us: its standard input is our pipe
        stopping.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
