"""Many tables in one session: started, watched, stopped together; each failing alone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import StopRequested
from penstock.operations.causes import JvmDied, explain, jvm_died
from penstock.plan.build import choose
from penstock.runtime.context import Result, RunContext
from penstock.runtime.maintenance import MaintenanceRounds
from penstock.runtime.table_runner import SIGNAL_PATIENCE, TableRun
from penstock.spark.session import current_log, spark_session
from penstock.spec.quantity import counted
from penstock.storage.stores import HadoopStore, LocalStore
from penstock.tables.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.writer import Written
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.context import Listener, Outcome
    from penstock.runtime.signals import StopSignals
    from penstock.storage.stores import Store

# The end of a run: tables finish the batch in flight, or, when the time is up, leave it to the next start.
#
# To abandon a batch is as safe as `kill -9`: the ledger tells the next start how far it came. Nothing here waits for
# an answer of the JVM in the main thread, which must hear the next signal.


JVM_ENDS_WITHIN = 20.0
"""Seconds, when nobody waits for the end."""
DEAD_WITHIN = 10.0
"""Seconds until every call into a dead JVM has failed."""
BREAK_OFF = 5.0
"""Seconds before the bound at which batches in flight are broken off; less if the bound is near."""
RECORD = 2.0
"""Seconds that it may take to write down that tables were stopped; on an object store it needs the JVM."""
POLL = 0.05


def end_runs(around: RunContext, runs: Sequence[TableRun], rounds: MaintenanceRounds | None, *, died: bool) -> None:
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


def give_up(around: RunContext, runs: Sequence[TableRun], error: PenstockError | None = None) -> None:
    """What has not ended is recorded as stopped, or as failed with `error`; what a stop broke off is told."""
    recording = [_beside(partial(one.give_up, error)) for one in runs if one.thread.is_alive()]
    deadline = time.monotonic() + RECORD
    for thread in recording:
        thread.join(max(0.0, deadline - time.monotonic()))
    for one in runs:
        if one.abandoned is not None and error is None:
            around.listener.said("", one.abandoned)


def _announce(around: RunContext, runs: Sequence[TableRun], timeout: float) -> None:
    found = [one.in_flight for one in runs]
    batches, starts = found.count("batch"), found.count("start")
    parts = [f"{counted(batches, 'batch')} in flight".replace("batchs", "batches")] if batches else []
    parts += [f"{counted(starts, 'table')} to start"] if starts else []
    if parts:
        what = " and ".join(parts)
        around.listener.said("", f"stopping: waiting up to {timeout:g} s for {what}; press Ctrl-C again to stop now")
    else:
        around.listener.said("", "stopping: no batch is in flight")


def _ask(runs: Sequence[TableRun], rounds: MaintenanceRounds | None) -> list[threading.Thread]:
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


# Many tables in one session: started, watched, stopped together; each failing alone.


STARTS_AT_ONCE = 4


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
    signals: StopSignals | None = None,
) -> Result:
    """Runs the named tables (all if none is named) until they end or a signal asks to stop, and maintains them as often
    as the project says. `signals` are those that the caller listens to: the run ends within their bound;
    StopRequested is raised by a signal during the start, and by a second one."""
    tables = choose(plan, names)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what it reports reaches the user as an error of a table

    def patience() -> float:
        return signals.remaining() if signals is not None and signals.asked else JVM_ENDS_WITHIN

    try:
        say = partial(listener.said, "")
        with spark_session(plan, show_logs=show_logs, keep_classes=keep_classes, say=say, patience=patience) as spark:
            if signals is not None:
                signals.begin()
            return run_in(spark, plan, tables, listener, once=once, signals=signals)
    except Exception as error:  # the JVM can die between any two calls, also before a table is there to report it
        raise explain(error, plan.name, current_log(plan)) from error


def run_in(
    spark: SparkSession,
    plan: Plan,
    tables: Sequence[TablePlan],
    listener: Listener,
    *,
    once: bool,
    stop: threading.Event | None = None,
    maintain: bool = True,
    signals: StopSignals | None = None,
) -> Result:
    """The same in a session that is there already. Setting `stop` asks for a clean end, after the batches in flight. No
    signal handler is installed: Ctrl-C ends it as it ends any other program. `maintain=False` leaves scheduled
    maintenance to another run."""
    stopping = signals.event if signals is not None else threading.Event() if stop is None else stop
    around = RunContext(
        spark=spark,
        plan=plan,
        store=open_store(spark, plan.lake),
        listener=listener,
        once=once,
        log=current_log(plan),
        starts=threading.Semaphore(STARTS_AT_ONCE),
        stopping=stopping,
        signals=signals,
    )
    sources = Sources(partial(open_store, spark), spark)
    runs = [
        TableRun(around, table, partial(sources.open, table), index, len(tables)) for index, table in enumerate(tables)
    ]
    by_name = {one.thread.name: one for one in runs}
    for one, table in zip(runs, tables, strict=True):
        one.upstream = tuple(by_name[name] for name in table.waits_for if name in by_name)
    rounds = MaintenanceRounds(around, by_name) if maintain and plan.maintenance.scheduled else None
    try:
        for one in runs:
            one.thread.start()
        if rounds is not None and not once:
            rounds.start()
        died = _wait(around, runs)
        if rounds is not None and once and not stopping.is_set():
            rounds.start()
            rounds.wait()
        end_runs(around, runs, rounds, died=died)
    except (StopRequested, KeyboardInterrupt):
        give_up(around, runs)
        raise
    errors: dict[str, PenstockError] = {one.thread.name: one.error for one in runs if one.error is not None}
    if jvm_died := next((error for error in errors.values() if isinstance(error, JvmDied)), None):
        listener.failed("", jvm_died)
    unfinished = any(one.thread.is_alive() for one in runs)
    return Result({one.thread.name: one.outcome for one in runs}, errors, unfinished)


def catch_up(spark: SparkSession, plan: Plan, tell: Tell, table: TablePlan) -> PenstockError | None:
    """Runs one table up to what is there, for a verb that needs it; what it failed with, if it did."""
    return run_in(spark, plan, [table], _Progress(tell), once=True, maintain=False).errors.get(table.name)


class _Progress:
    """A listener for which everything that a table does is progress."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def said(self, table: str, message: str) -> None:
        if table:
            self._tell(table, message)

    def batch(self, table: str, written: Written, seconds: float) -> None:
        self._tell(table, f"batch {written.batch}")

    def failed(self, table: str, error: PenstockError) -> None:
        pass

    def ended(self, table: str, outcome: Outcome) -> None:
        pass


def open_store(spark: SparkSession, uri: str) -> Store:
    return HadoopStore(spark) if "://" in uri else LocalStore()


def _wait(around: RunContext, runs: Sequence[TableRun]) -> bool:
    """Until all tables have ended, somebody asks to stop, or the JVM is dead; whether it is. Nothing here calls the
    JVM: a signal must not wait for an answer."""
    threading.Thread(target=_watch, args=(around, runs), name="watch", daemon=True).start()
    while any(one.thread.is_alive() for one in runs) and not around.stopping.is_set():
        around.stopping.wait(POLL)
        if around.jvm_end() is not None or any(isinstance(one.error, JvmDied) for one in runs):
            around.stopping.wait(SIGNAL_PATIENCE)
            around.stopping.set()
            return not around.stop_asked
    return False


def _watch(around: RunContext, runs: Sequence[TableRun]) -> None:
    """What is done for each table now and then."""
    kept = time.monotonic()
    while not around.stopping.wait(LOOK_EVERY) and any(one.thread.is_alive() for one in runs):
        for one in runs:
            one.look()
        if time.monotonic() - kept > KEEP_EVERY:
            kept = time.monotonic()
            for one in runs:
                one.keep()
