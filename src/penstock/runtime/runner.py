"""Many tables in one session: started, watched and stopped together; a failure of one does not stop the others."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.errors import StopRequested
from penstock.operations.causes import JvmDied, explain, jvm_died
from penstock.plan.build import select_tables
from penstock.runtime.context import Result, RunContext
from penstock.runtime.maintenance import MaintenanceRounds
from penstock.runtime.signals import StoppedAtStart
from penstock.runtime.table_runner import SIGNAL_PATIENCE, TableRun
from penstock.spark.session import current_log, spark_session
from penstock.spec.quantity import counted
from penstock.storage.stores import open_store
from penstock.tables.stream import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.writer import Written
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.context import Listener, Outcome
    from penstock.runtime.signals import StopSignals

# The end of a run: tables finish the batch in flight, or, when the time is up, leave it to the next start.
#
# To abandon a batch is as safe as `kill -9`: the ledger tells the next start how far it got. Nothing here waits for an
# answer of the JVM in the main thread, which must be free to receive the next signal.


JVM_ENDS_WITHIN = 20.0
"""Seconds for the JVM to end if no signal asked to stop."""
DEAD_WITHIN = 10.0
"""Seconds until every call into a dead JVM has failed."""
BREAK_OFF = 5.0
"""Batches in flight are cancelled this many seconds before the time limit; fewer if the limit is near."""
RECORD = 2.0
"""Seconds to wait until it is recorded that tables were stopped; on an object store that needs the JVM."""
POLL = 0.05


def end_runs(context: RunContext, runs: Sequence[TableRun], rounds: MaintenanceRounds | None, *, died: bool) -> None:
    """Returns when every table has ended; after a signal, at its time limit in any case."""
    signals = context.signals if context.stop_asked else None
    if signals is None:
        context.stopping.set()  # there is nothing left to run or to maintain
        stop_threads = _ask_to_stop(runs, rounds)
        _wait_until_ended(runs, DEAD_WITHIN if died else None)
        if died:
            give_up(context, runs, jvm_died(context.log, context.jvm_end() or "it does not answer"))
        for thread in stop_threads:
            thread.join(0.0 if died else None)
        return
    _announce(context, runs, signals.timeout)
    _ask_to_stop(runs, rounds)
    reserve = min(BREAK_OFF, signals.timeout / 2)
    _wait_until_ended(runs, signals.remaining() - reserve)
    if any(table_run.thread.is_alive() for table_run in runs):
        for table_run in runs:
            _in_background(table_run.break_off)
        _in_background(context.spark.sparkContext.cancelAllJobs)  # those of tables that are still being prepared
        _wait_until_ended(runs, signals.remaining() - reserve / 2)
    give_up(context, runs)


def give_up(context: RunContext, runs: Sequence[TableRun], error: PenstockError | None = None) -> None:
    """Records tables that have not ended as stopped, or as failed with `error`; reports what the stop cancelled."""
    threads = [_in_background(partial(table_run.give_up, error)) for table_run in runs if table_run.thread.is_alive()]
    deadline = time.monotonic() + RECORD
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    for table_run in runs:
        if table_run.abandoned_message is not None and error is None:
            context.listener.message("", table_run.abandoned_message)


def _announce(context: RunContext, runs: Sequence[TableRun], timeout: float) -> None:
    states = [table_run.in_flight for table_run in runs]
    batches, starts = states.count("batch"), states.count("start")
    parts = [f"{counted(batches, 'batch')} in flight".replace("batchs", "batches")] if batches else []
    parts += [f"{counted(starts, 'table')} to start"] if starts else []
    if parts:
        waiting_for = " and ".join(parts)
        context.listener.message(
            "", f"stopping: waiting up to {timeout:g} s for {waiting_for}; press Ctrl-C again to stop now"
        )
    else:
        context.listener.message("", "stopping: no batch is in flight")


def _ask_to_stop(runs: Sequence[TableRun], rounds: MaintenanceRounds | None) -> list[threading.Thread]:
    """Stops all at once: each waits for its own batch."""
    return [_in_background(work.stop) for work in (*runs, rounds) if work is not None]


def _wait_until_ended(runs: Sequence[TableRun], patience: float | None) -> None:
    deadline = None if patience is None else time.monotonic() + patience
    while any(table_run.thread.is_alive() for table_run in runs):
        if deadline is not None and time.monotonic() >= deadline:
            return
        time.sleep(POLL)


def _in_background(work: Callable[[], object]) -> threading.Thread:
    def ignore_errors() -> None:
        try:
            work()
        except Exception:  # a call into a dying JVM; what counts is whether the table has ended
            return

    thread = threading.Thread(target=ignore_errors, name="end of a run", daemon=True)
    thread.start()
    return thread


# Start and watch.


STARTS_AT_ONCE = 4
KEEP_LEDGER_SECONDS = 3600.0
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
    as the project configures. `signals` are those that the caller listens to: the run ends within their time limit;
    a signal during the start, and a second signal, raise StopRequested."""
    tables = select_tables(plan, names)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # its errors reach the user as errors of a table

    def patience() -> float:
        return signals.remaining() if signals is not None and signals.stop_asked else JVM_ENDS_WITHIN

    try:
        say = partial(listener.message, "")
        with spark_session(plan, show_logs=show_logs, keep_classes=keep_classes, say=say, patience=patience) as spark:
            if signals is not None:
                signals.begin()
            return run_in(spark, plan, tables, listener, once=once, signals=signals)
    except Exception as error:  # the JVM can die between any two calls, even before a table exists to report it
        if signals is not None and signals.interrupted_start:  # what it interrupted may raise an error of its own
            raise StoppedAtStart(signals.number) from None
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
    """Like `run`, in an existing session. Setting `stop` asks for a clean end, after the batches in flight. No signal
    handler is installed: Ctrl-C ends it like any other program. `maintain=False` leaves scheduled maintenance to
    another run."""
    stopping = signals.event if signals is not None else threading.Event() if stop is None else stop
    context = RunContext(
        spark=spark,
        plan=plan,
        store=open_store(plan, spark),
        listener=listener,
        once=once,
        log=current_log(plan),
        starts=threading.Semaphore(STARTS_AT_ONCE),
        stopping=stopping,
        signals=signals,
    )
    sources = Sources(partial(open_store, spark=spark), spark)
    runs = [
        TableRun(context, table, partial(sources.open, table), index, len(tables)) for index, table in enumerate(tables)
    ]
    by_name = {table_run.thread.name: table_run for table_run in runs}
    for table_run, table in zip(runs, tables, strict=True):
        table_run.upstream = tuple(by_name[name] for name in table.waits_for if name in by_name)
    rounds = MaintenanceRounds(context, by_name) if maintain and plan.maintenance.scheduled else None
    try:
        for table_run in runs:
            table_run.thread.start()
        if rounds is not None and not once:
            rounds.start()
        died = _wait_for_end(context, runs)
        if rounds is not None and once and not stopping.is_set():
            rounds.start()
            rounds.wait()
        end_runs(context, runs, rounds, died=died)
    except (StopRequested, KeyboardInterrupt):
        give_up(context, runs)
        raise
    errors: dict[str, PenstockError] = {
        table_run.thread.name: table_run.error for table_run in runs if table_run.error is not None
    }
    if jvm_died := next((error for error in errors.values() if isinstance(error, JvmDied)), None):
        listener.failed("", jvm_died)
    unfinished = any(table_run.thread.is_alive() for table_run in runs)
    return Result({table_run.thread.name: table_run.outcome for table_run in runs}, errors, unfinished)


def catch_up(spark: SparkSession, plan: Plan, tell: Tell, table: TablePlan) -> PenstockError | None:
    """Runs one table until it has read all that its source has now, for a command that needs it; returns its error."""
    return run_in(spark, plan, [table], _Progress(tell), once=True, maintain=False).errors.get(table.name)


class _Progress:
    """A listener that reports everything a table does as progress."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def message(self, table: str, message: str) -> None:
        if table:
            self._tell(table, message)

    def batch(self, table: str, written: Written, seconds: float) -> None:
        self._tell(table, f"batch {written.batch}")

    def failed(self, table: str, error: PenstockError) -> None:
        pass

    def ended(self, table: str, outcome: Outcome) -> None:
        pass


def _wait_for_end(context: RunContext, runs: Sequence[TableRun]) -> bool:
    """Waits until all tables have ended, a stop is asked for, or the JVM is dead; True if it died on its own. Nothing
    here calls the JVM: a signal must not wait for an answer."""
    threading.Thread(target=_watch, args=(context, runs), name="watch", daemon=True).start()
    while any(table_run.thread.is_alive() for table_run in runs) and not context.stopping.is_set():
        context.stopping.wait(POLL)
        if context.jvm_end() is not None or any(isinstance(table_run.error, JvmDied) for table_run in runs):
            context.stopping.wait(SIGNAL_PATIENCE)
            context.stopping.set()
            return not context.stop_asked
    return False


def _watch(context: RunContext, runs: Sequence[TableRun]) -> None:
    """Does the regular work for each table: looks for replaced generations, and keeps ledger entries from expiring."""
    last_keep = time.monotonic()
    while not context.stopping.wait(LOOK_EVERY) and any(table_run.thread.is_alive() for table_run in runs):
        for table_run in runs:
            table_run.check_generation()
        if time.monotonic() - last_keep > KEEP_LEDGER_SECONDS:
            last_keep = time.monotonic()
            for table_run in runs:
                table_run.carry_ledger_forward()
