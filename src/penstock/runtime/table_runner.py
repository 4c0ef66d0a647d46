"""One table of a runner: prepared, run, and tried again, alone. What ends one table does not touch another."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import Fenced, LockHeld, PenstockError, RowRaised, Transient
from penstock.ledger.checkpoint import state_lost
from penstock.ledger.head import Verdict
from penstock.ledger.writer import BatchWriter
from penstock.operations.causes import CheckpointUnreadable, JvmDied, Unexplained, UpstreamChanged, jvm_died
from penstock.operations.prepare import prepare
from penstock.operations.replay import owed, resume
from penstock.operations.status import State, read_state, write_state
from penstock.runtime.context import Backoff, slot_delay, trigger_of
from penstock.sources.delta_changes import read_change, refusal
from penstock.sources.files.source import FilesReader
from penstock.storage.locks import JvmLock, NoLock, acquire_run, lock_path
from penstock.storage.stores import HadoopStore, LocalStore
from penstock.tables.isolation import row_at_fault
from penstock.tables.session import TableSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.source import Source
    from penstock.ledger.writer import BatchProcessor
    from penstock.operations.prepare import Ready
    from penstock.operations.status import Kind
    from penstock.plan.model import TablePlan
    from penstock.runtime.context import Outcome, RunContext
    from penstock.storage.locks import Lock

# A table that is to be made anew before its first batch: by another process, or, if that was cut off, by this one.


REPLAY_POLL = 0.5


def finish_replay(work: TableSession, system: str, stopping: threading.Event, say: Callable[[str], None]) -> None:
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
            if stopping.wait(REPLAY_POLL):
                raise Transient("stopping", where=work.table.name)
        tail = owed(work)
        if tail is None:
            return
        say("a replay was cut off: it is done now")
        filled = resume(work, tail, lambda _: None)
        say(f"replay done: {filled.rows + filled.kept:,} rows, generation {filled.tail.entry.generation}")
    finally:
        lock.close()


# While a table runs that reads files, its folder is looked at shortly before each of its triggers.


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


# One table of a runner: prepared, run, and tried again, alone. What ends one table does not touch another.


TRIES_ONCE = 6
"""`run --once` is called by a scheduler: it gives up after about half a minute of trying again."""
TRIES_UNEXPLAINED = 3
KEEP_PATIENCE = 5.0
SIGNAL_PATIENCE = 0.5
"""Seconds in which a signal for a whole group of processes reaches all of them."""
POLL = 0.1


class TableRun:
    def __init__(
        self, around: RunContext, table: TablePlan, open_source: Callable[[], Source], index: int, tables: int
    ) -> None:
        self._around = around
        self._table = table
        self._open_source = open_source
        self.upstream: tuple[TableRun, ...] = ()
        """Tables of this run that it reads."""
        self._slot = (index, tables)
        self._gate = threading.Lock()
        self._query: Any = None
        self._writer: BatchWriter | None = None
        self._failure: BaseException | None = None
        self._backoff = Backoff()
        self._distrust = False
        self._generation: int | None = None
        self._preparing = False
        self._batch: tuple[int, int] | None = None
        """Generation and number of the batch that is being written."""
        self._given_up = False
        self._mine = False
        """It has the table's lock, so the state is its own to write."""
        self.abandoned: str | None = None
        """What a stop broke off, for people."""
        self.outcome: Outcome = "stopped"
        self.error: PenstockError | None = None
        self.thread = threading.Thread(target=self._live, name=table.name, daemon=True)

    def stop(self) -> None:
        """After the batch in flight. A batch that begins later is refused and planned again at the next start."""
        with self._gate:
            query = self._query
        if query is None:
            return
        try:
            deadline = time.monotonic() + 1.0
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.02)
            query.stop()
        except Exception as error:
            self._failure = self._failure or error

    @property
    def in_flight(self) -> str | None:
        """What a stop waits for: "batch", or "start" while the table is made ready; None if there is nothing."""
        if not self.thread.is_alive():
            return None
        return "batch" if self._batch is not None else "start" if self._preparing else None

    def break_off(self) -> None:
        """Cancels the batch in flight instead of waiting for it: the ledger tells the next start how far it came."""
        query = self._query
        if query is not None:
            with suppress(Exception):
                query.stop()

    def give_up(self, error: PenstockError | None = None) -> None:
        """Its thread is not waited for any more. What it says from now on is of no interest, because its JVM is dead or
        about to be killed; what is recorded is that it was stopped, or why it failed."""
        self._note_abandoned()
        self._given_up = True
        self.outcome, self.error = "stopped" if error is None else "failed", error
        if self._mine:
            self._write_state(self.outcome, error.message if error else self.abandoned, error.hint if error else None)

    def _note_abandoned(self) -> None:
        name = self._table.name
        if self._batch is not None:
            generation, number = self._batch
            self.abandoned = f"abandoned batch {generation}.{number} of {name}; the next start repeats it"
        elif self._preparing:
            self.abandoned = f"abandoned the start of {name}; the next start repeats it"

    def look(self) -> None:
        """Called often: a table that another process has moved on must not wait for its next batch to see it."""
        query, writer = self._query, self._writer
        if query is None or writer is None or self._around.stopping.is_set():
            return
        with suppress(Exception):  # whatever is wrong with the log, its next batch says it
            entry = writer.replaced_by()
            if entry is not None and self._query is query:
                was = f"generation {self._generation} was replaced by generation {entry.generation}"
                what = f"{was} ({entry.note or entry.kind})"
                self._failure = self._failure or Fenced(what, where=self._table.name)
                self.stop()

    @property
    def running(self) -> bool:
        return self._query is not None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Between two of its batches: the next one waits, and so do others who want to commit to the table."""
        with self._gate:
            if self._query is None or self._writer is None or self._around.stopping.is_set():
                raise Transient("the table does not run", where=self._table.name)
            with self._writer.held():
                yield

    def keep(self) -> None:
        """Called now and then: an idle table's ledger entry must not age out of the log. Not while its files are looked
        after, which can take long: there is another time."""
        if not self._gate.acquire(timeout=KEEP_PATIENCE):
            return
        try:
            if self._query is None or self._writer is None:
                return
            self._writer.keep(self._around.spark)
        except Exception as error:
            cause = self._around.explain(error, self._table.name)
            if isinstance(cause, JvmDied):  # that is told once, by the runner
                return
            self._around.listener.said(self._table.name, f"the ledger could not be carried forward: {cause.message}")
        finally:
            self._gate.release()

    def _live(self) -> None:
        table, around = self._table.name, self._around
        locks: tuple[Lock, ...] = ()
        try:
            run_lock, commit_lock = self._locks()
            locks = (run_lock, commit_lock)
            if isinstance(run_lock, JvmLock):
                acquire_run(run_lock, lock_path(around.plan.system, table, "run"), table)
            self._mine = True
            self._state("starting")
            if around.once:
                self._wait_for_upstream()
            self._try_until_done(commit_lock)
        except Exception as error:
            self.error = around.explain(error, table)
        finally:
            self._close(locks)
        if self._given_up:
            return
        if self.error is None and self.outcome == "stopped" and (how := around.jvm_end()) is not None:
            self.error = jvm_died(around.log, how)  # the runner saw it first, and asked all tables to end
        died = isinstance(self.error, JvmDied)
        if died:
            around.stopping.wait(SIGNAL_PATIENCE)
            if around.stop_asked:  # the signal was for all processes of a service, the JVM among them
                self.error = None
        if self.error is not None:
            self.outcome = "failed"
            if not died:  # that is told once, by the runner
                around.listener.failed(table, self.error)
        if not isinstance(self.error, LockHeld):  # then it is another runner that has a state
            self._state(self.outcome, self.error)
        around.listener.ended(table, self.outcome)

    def _wait_for_upstream(self) -> None:
        """`--once` reads what is there when its upstream has finished: all that this run landed."""
        for one in self.upstream:
            while one.thread.is_alive() and not self._around.stopping.is_set():
                one.thread.join(0.1)
            if one.error is not None and not isinstance(one.error, JvmDied):
                self._around.listener.said(
                    self._table.name, f"{one.thread.name} failed: only what is there already is read"
                )

    def _close(self, locks: tuple[Lock, ...]) -> None:
        """A table that has ended is free for others, though this process goes on with the rest."""
        for lock in locks:
            try:
                lock.close()
            except Exception as error:  # the JVM is dead, and its locks with it
                self.error = self.error or self._around.explain(error, self._table.name)

    def _locks(self) -> tuple[Lock, Lock]:
        plan, spark = self._around.plan, self._around.spark
        if not plan.local:
            return NoLock(), NoLock()
        paths = (lock_path(plan.system, self._table.name, name) for name in ("run", "commit"))
        run, commit = (JvmLock(spark, path) for path in paths)
        return run, commit

    def _try_until_done(self, commit_lock: Lock) -> None:
        around, table = self._around, self._table.name
        while not around.stopping.is_set():
            try:
                self._once_through(commit_lock)
                self.outcome = "stopped" if around.stopping.is_set() else "finished"
                return
            except Exception as error:
                if around.stopping.is_set():
                    return
                cause = around.explain(error, table)
                if isinstance(cause, UpstreamChanged):
                    raise self._change_of_upstream(cause) from error
                if isinstance(cause, RowRaised):
                    raise row_at_fault(around.spark, self._table) or cause from error
                if isinstance(cause, CheckpointUnreadable) and self._table.stream is not None:
                    raise state_lost(table, cause.message) from error
                self._distrust = isinstance(cause, CheckpointUnreadable | Unexplained)
                delay = self._backoff.next()
                limit = TRIES_UNEXPLAINED if isinstance(cause, Unexplained) else TRIES_ONCE if around.once else None
                if not isinstance(cause, Transient) or (limit is not None and self._backoff.tries >= limit):
                    raise cause from error
                around.listener.said(table, f"{cause.message}; trying again in {delay:.0f} s")
                self._state("retrying", cause)
                around.stopping.wait(delay)

    def _change_of_upstream(self, cause: UpstreamChanged) -> PenstockError:
        """The same with what the commit did, and what each option would make of it."""
        table = self._table
        sources = list(table.delta_sources)
        if cause.path is not None and len(sources) > 1:
            path = cause.path.removeprefix("file:")
            sources = [one for one in sources if path.rstrip("/").endswith(one.uri.removeprefix("file:").rstrip("/"))]
        if cause.version is None or len(sources) != 1:
            return cause
        source = sources[0]
        with suppress(Exception):  # what Delta said is better than nothing
            store = HadoopStore(self._around.spark) if "://" in source.uri else LocalStore()
            change = read_change(store, source.uri, cause.version)
            if change is not None:
                recomputed = table.aggregate is not None and table.aggregate.emit != "final"
                name = source.table or source.uri
                stateful = table.stream is not None
                return refusal(table.name, name, change, source.options, recomputed=recomputed, stateful=stateful)
        return cause

    def _once_through(self, commit_lock: Lock) -> None:
        """Returns when the query has ended by itself or was stopped; raises what ended it otherwise."""
        around, table = self._around, self._table
        with self._turn_to_start() as mine:
            if not mine:
                return
            source = self._open_source()
            look(source, self._say)
            work = TableSession(
                around.spark, table, around.store, source, commit_lock, idempotent=not around.plan.local
            )
            finish_replay(work, around.plan.system, around.stopping, self._say)
            ready = prepare(
                around.spark,
                table,
                around.store,
                source,
                commit_lock,
                idempotent=not around.plan.local,
                say=self._say,
                distrust=self._distrust,
                own=self._generation,
            )
            self._generation = ready.tail.entry.generation
            self._failure = None
            query = self._start(ready)
        with self._gate:
            self._query = query
        self._state("running")
        if around.stopping.is_set():
            self.stop()
        interval = None if around.once or table.trigger.kind != "interval" else table.trigger.seconds
        try:
            with looking(source, query, interval, self._say, around.explain):
                query.awaitTermination()
        except Exception as error:
            raise (self._failure or error) from None
        finally:
            with self._gate:
                self._query = None
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _turn_to_start(self) -> Iterator[bool]:
        """Few tables start at a time; False if all are asked to stop meanwhile."""
        around = self._around
        while not around.starts.acquire(timeout=POLL):
            if around.stopping.is_set():
                yield False
                return
        self._preparing = True
        try:
            yield not around.stopping.is_set()
        except BaseException:
            if around.stopping.is_set():
                self._note_abandoned()
            raise
        finally:
            self._preparing = False
            around.starts.release()

    def _start(self, ready: Ready) -> Any:
        around, table = self._around, self._table
        around.spark.sparkContext.setLocalProperty("spark.scheduler.pool", table.name)
        writer = self._writer = BatchWriter(ready.target, ready.tail)

        def on_batch(batch: DataFrame, number: int) -> None:
            self._wait_for_slot()
            with self._gate:
                if around.stopping.is_set():
                    raise Transient("stopping", where=table.name)
                self._batch = (ready.tail.entry.generation, number)
                try:
                    self._write(writer, ready.function, batch, number)
                except BaseException as error:
                    if around.stopping.is_set():
                        self._note_abandoned()
                    self._failure = error  # Spark would hand it back as text
                    raise
                finally:
                    self._batch = None

        stream = ready.target.source.stream(around.spark).writeStream.foreachBatch(on_batch)
        return (
            stream.queryName(f"{table.name} {ready.tail.entry.generation}")
            .outputMode(table.stream.output if table.stream else "append")
            .trigger(**trigger_of(table, once=around.once))
            .option("checkpointLocation", ready.target.checkpoint)
            .start()
        )

    def _write(self, writer: BatchWriter, function: BatchProcessor, batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        table, listener = self._table, self._around.listener
        written = writer.write(batch, number, function)
        if number == 0:  # the empty batch with which a query that keeps state begins
            return
        if written.verdict is Verdict.WRITE:  # a retry is no progress: it comes with every rebuilt checkpoint
            self._backoff.reset()
        for commit in written.foreign:
            listener.said(
                table.name, f"version {commit.version} ({commit.operation}): {commit.rows} rows were added by others"
            )
        for remark in written.remarks:
            listener.said(table.name, remark)
        if written.verdict is Verdict.RETRY:
            listener.said(table.name, f"batch {number} was in the table already: skipped")
        listener.batch(table.name, written, time.monotonic() - began)

    def _say(self, message: str) -> None:
        self._around.listener.said(self._table.name, message)

    def _wait_for_slot(self) -> None:
        trigger = self._table.trigger
        if trigger.kind == "interval" and not self._around.once and trigger.seconds:
            delay = slot_delay(*self._slot, trigger.seconds)
            if delay > 0:
                self._around.stopping.wait(delay)

    def _state(self, kind: Kind, error: PenstockError | None = None) -> None:
        if self._given_up:
            return
        if isinstance(error, JvmDied) and not self._is_last():
            return  # its lock is free since the JVM ended, and somebody else has begun
        reason = self.abandoned if kind == "stopped" else None
        self._write_state(kind, error.message if error else reason, error.hint if error else None)

    def _is_last(self) -> bool:
        with suppress(Exception):
            said = read_state(self._around.store, self._around.plan.system, self._table.name)
            return said is None or (said.process, said.host) == (os.getpid(), socket.gethostname())
        return False

    def _write_state(self, kind: Kind, reason: str | None = None, hint: str | None = None) -> None:
        # For `status` only: a full disk must not leave a query without its supervisor.
        with suppress(Exception):
            write_state(self._around.store, self._around.plan.system, self._table.name, State(kind, reason, hint))
