"""One table of a runner: prepared, run and retried on its own. What ends one table does not affect another."""

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
from penstock.operations.replay import open_replay_head, resume
from penstock.operations.status import RunnerStatus, read_state, write_state
from penstock.runtime.context import Backoff, slot_delay, trigger_of
from penstock.sources.delta_changes import read_change, refusal
from penstock.sources.files.source import FilesReader
from penstock.storage.locks import JvmLock, NoLock, acquire_run, lock_path
from penstock.storage.stores import open_store
from penstock.tables.isolation import row_at_fault
from penstock.tables.session import TableSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.source import Source
    from penstock.ledger.writer import BatchProcessor
    from penstock.operations.prepare import Ready
    from penstock.operations.status import RunnerPhase
    from penstock.plan.model import TablePlan
    from penstock.runtime.context import Outcome, RunContext
    from penstock.storage.locks import Lock

# A replay that must end before the first batch of a table: another process does it, or, if that was cut off, this one.


REPLAY_POLL = 0.5


def finish_replay(session: TableSession, system: str, stopping: threading.Event, say: Callable[[str], None]) -> None:
    """Returns when no replay is left to finish. Raises Transient if a stop is asked for meanwhile."""
    if open_replay_head(session) is None:
        return
    path = lock_path(system, session.table.name, "replay")
    lock: Lock = NoLock() if session.idempotent else JvmLock(session.spark, path)
    try:
        reported = False
        while not lock.try_acquire():
            if not reported:
                say("waits for the replay that another process does")
                reported = True
            if stopping.wait(REPLAY_POLL):
                raise Transient("stopping", where=session.table.name)
        replay_head = open_replay_head(session)
        if replay_head is None:
            return
        say("a replay was cut off: it is done now")
        replayed = resume(session, replay_head, lambda _: None)
        say(f"replay done: {replayed.rows + replayed.kept_rows:,} rows, generation {replayed.head.entry.generation}")
    finally:
        lock.close()


# While a table that reads files runs, its folder is listed shortly before each of its triggers.


LEAD = 1.0
"""Seconds before a trigger: the time that listing takes, if the folder is not large."""
Say = Callable[[str], None]
Explain = Callable[[BaseException, str], PenstockError]


def list_files(source: Source, say: Say) -> None:
    """Lists the folder before a start: all files that are there belong to the start."""
    if isinstance(source, FilesReader):
        for message in source.scan():
            say(message)


@contextmanager
def poll_files(source: Source, query: Any, interval: float | None, say: Say, explain: Explain) -> Iterator[None]:
    """Lists the folder again while the query runs. `interval` is that of the triggers; without it nothing is done."""
    if not isinstance(source, FilesReader) or not interval:
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(
        target=_poll_folder,
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


def _poll_folder(
    source: FilesReader, query: Any, interval: float, say: Say, explain: Explain, ended: threading.Event
) -> None:
    """Skips while a batch is in flight: the files that arrive meanwhile become one batch, not many small ones."""
    last_message = ""
    while not ended.wait(until_next(interval)):
        try:
            if query.status["isTriggerActive"]:
                continue
            list_files(source, say)
            last_message = ""
        except Exception as error:
            if ended.is_set():
                return
            cause = explain(error, source.table)
            if isinstance(cause, JvmDied):  # reported once, by the runner
                return
            message = f"the folder could not be looked at: {cause.message}"
            if message != last_message:
                say(message)
            last_message = message


def until_next(interval: float, *, now: float | None = None) -> float:
    """Seconds until shortly before the next trigger: Spark fires at the multiples of the interval since the epoch."""
    phase = (time.time() if now is None else now) % interval
    wait = interval - phase - min(LEAD, interval / 4)
    return wait if wait > 0.001 else wait + interval


TRIES_ONCE = 6
"""`run --once` is called by a scheduler: it gives up after about half a minute of retries."""
TRIES_UNEXPLAINED = 3
KEEP_PATIENCE = 5.0
SIGNAL_PATIENCE = 0.5
"""Seconds within which a signal to a process group reaches all of its processes."""
POLL = 0.1


class TableRun:
    def __init__(
        self, context: RunContext, table: TablePlan, open_source: Callable[[], Source], index: int, tables: int
    ) -> None:
        self._context = context
        self._table = table
        self._open_source = open_source
        self.upstream: tuple[TableRun, ...] = ()
        """The tables of the same run that this one reads."""
        self._slot = (index, tables)
        self._batch_lock = threading.Lock()
        self._query: Any = None
        self._writer: BatchWriter | None = None
        self._failure: BaseException | None = None
        self._backoff = Backoff()
        self._distrust_checkpoint = False
        self._generation: int | None = None
        self._preparing = False
        self._batch_in_flight: tuple[int, int] | None = None
        """Generation and number of the batch that is being written."""
        self._given_up = False
        self._has_lock = False
        """It holds the table's lock, so only it writes the state."""
        self.abandoned_message: str | None = None
        """What a stop cancelled, as a message."""
        self.outcome: Outcome = "stopped"
        self.error: PenstockError | None = None
        self.thread = threading.Thread(target=self._run_to_end, name=table.name, daemon=True)

    def stop(self) -> None:
        """Stops after the batch in flight. A batch that begins later is refused and planned again at the next start."""
        with self._batch_lock:
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
        """What a stop waits for: "batch", or "start" while the table is being prepared; None if there is nothing."""
        if not self.thread.is_alive():
            return None
        return "batch" if self._batch_in_flight is not None else "start" if self._preparing else None

    def break_off(self) -> None:
        """Cancels the batch in flight instead of waiting for it: the ledger tells the next start how far it got."""
        query = self._query
        if query is not None:
            with suppress(Exception):
                query.stop()

    def give_up(self, error: PenstockError | None = None) -> None:
        """Stops waiting for its thread. What the thread reports from now on is ignored, because its JVM is dead or
        about to be killed; what is recorded is that the table was stopped, or why it failed."""
        self._describe_abandoned()
        self._given_up = True
        self.outcome, self.error = "stopped" if error is None else "failed", error
        if self._has_lock:
            self._write_state(self.outcome, error)

    def _describe_abandoned(self) -> None:
        name = self._table.name
        if self._batch_in_flight is not None:
            generation, number = self._batch_in_flight
            self.abandoned_message = f"abandoned batch {generation}.{number} of {name}; the next start repeats it"
        elif self._preparing:
            self.abandoned_message = f"abandoned the start of {name}; the next start repeats it"

    def check_generation(self) -> None:
        """Called often: a table must see a new generation of another process without waiting for its next batch."""
        query, writer = self._query, self._writer
        if query is None or writer is None or self._context.stopping.is_set():
            return
        with suppress(Exception):  # whatever is wrong with the log, the next batch reports it
            entry = writer.replaced_by()
            if entry is not None and self._query is query:
                replaced = f"generation {self._generation} was replaced by generation {entry.generation}"
                message = f"{replaced} ({entry.note or entry.kind})"
                self._failure = self._failure or Fenced(message, where=self._table.name)
                self.stop()

    @property
    def running(self) -> bool:
        return self._query is not None

    @contextmanager
    def pause_batches(self) -> Iterator[None]:
        """Entered between two batches: the next batch waits, and so do others who want to commit to the table."""
        with self._batch_lock:
            if self._query is None or self._writer is None or self._context.stopping.is_set():
                raise Transient("the table does not run", where=self._table.name)
            with self._writer.commit_lock():
                yield

    def carry_ledger_forward(self) -> None:
        """Called regularly: the ledger entry of an idle table must not expire from the log. Skipped during maintenance
        of its files, which can take long: the next call is soon enough."""
        if not self._batch_lock.acquire(timeout=KEEP_PATIENCE):
            return
        try:
            if self._query is None or self._writer is None:
                return
            self._writer.maintain_ledger(self._context.spark)
        except Exception as error:
            cause = self._context.explain(error, self._table.name)
            if isinstance(cause, JvmDied):  # reported once, by the runner
                return
            self._context.listener.message(
                self._table.name, f"the ledger could not be carried forward: {cause.message}"
            )
        finally:
            self._batch_lock.release()

    def _run_to_end(self) -> None:
        table, context = self._table.name, self._context
        locks: tuple[Lock, ...] = ()
        try:
            run_lock, commit_lock = self._open_locks()
            locks = (run_lock, commit_lock)
            if isinstance(run_lock, JvmLock):
                acquire_run(run_lock, lock_path(context.plan.system, table, "run"), table)
            self._has_lock = True
            self._record_state("starting")
            if context.once:
                self._wait_for_upstream()
            self._try_until_done(commit_lock)
        except Exception as error:
            self.error = context.explain(error, table)
        finally:
            self._close_locks(locks)
        if self._given_up:
            return
        if self.error is None and self.outcome == "stopped" and (jvm_exit := context.jvm_end()) is not None:
            self.error = jvm_died(context.log, jvm_exit)  # the runner noticed it first, and asked all tables to end
        died = isinstance(self.error, JvmDied)
        if died:
            context.stopping.wait(SIGNAL_PATIENCE)
            if context.stop_asked:  # the signal went to all processes of a service, including the JVM
                self.error = None
        if self.error is not None:
            self.outcome = "failed"
            if not died:  # reported once, by the runner
                context.listener.failed(table, self.error)
        if not isinstance(self.error, LockHeld):  # then the state belongs to another runner
            self._record_state(self.outcome, self.error)
        context.listener.ended(table, self.outcome)

    def _wait_for_upstream(self) -> None:
        """With `--once`, a table reads after its upstream tables have finished, so it gets all that this run landed."""
        for upstream_run in self.upstream:
            while upstream_run.thread.is_alive() and not self._context.stopping.is_set():
                upstream_run.thread.join(0.1)
            if upstream_run.error is not None and not isinstance(upstream_run.error, JvmDied):
                self._context.listener.message(
                    self._table.name, f"{upstream_run.thread.name} failed: only what is there already is read"
                )

    def _close_locks(self, locks: tuple[Lock, ...]) -> None:
        """Releases the locks of a table that has ended, though this process continues with the other tables."""
        for lock in locks:
            try:
                lock.close()
            except Exception as error:  # the JVM is dead, and its locks with it
                self.error = self.error or self._context.explain(error, self._table.name)

    def _open_locks(self) -> tuple[Lock, Lock]:
        plan, spark = self._context.plan, self._context.spark
        if not plan.local:
            return NoLock(), NoLock()
        paths = (lock_path(plan.system, self._table.name, name) for name in ("run", "commit"))
        run, commit = (JvmLock(spark, path) for path in paths)
        return run, commit

    def _try_until_done(self, commit_lock: Lock) -> None:
        context, table = self._context, self._table.name
        while not context.stopping.is_set():
            try:
                self._run_query(commit_lock)
                self.outcome = "stopped" if context.stopping.is_set() else "finished"
                return
            except Exception as error:
                if context.stopping.is_set():
                    return
                cause = context.explain(error, table)
                if isinstance(cause, UpstreamChanged):
                    raise self._explain_upstream_change(cause) from error
                if isinstance(cause, RowRaised):
                    raise row_at_fault(context.spark, self._table) or cause from error
                if isinstance(cause, CheckpointUnreadable) and self._table.stream is not None:
                    raise state_lost(table, cause.message) from error
                self._distrust_checkpoint = isinstance(cause, CheckpointUnreadable | Unexplained)
                delay = self._backoff.next()
                limit = TRIES_UNEXPLAINED if isinstance(cause, Unexplained) else TRIES_ONCE if context.once else None
                if not isinstance(cause, Transient) or (limit is not None and self._backoff.tries >= limit):
                    raise cause from error
                context.listener.message(table, f"{cause.message}; trying again in {delay:.0f} s")
                self._record_state("retrying", cause)
                context.stopping.wait(delay)

    def _explain_upstream_change(self, cause: UpstreamChanged) -> PenstockError:
        """The same error, with what the commit did and what each option would do about it."""
        table = self._table
        sources = list(table.delta_sources)
        if cause.path is not None and len(sources) > 1:
            path = cause.path.removeprefix("file:").rstrip("/")
            sources = [source for source in sources if path.endswith(source.uri.removeprefix("file:").rstrip("/"))]
        if cause.version is None or len(sources) != 1:
            return cause
        source = sources[0]
        with suppress(Exception):  # the message of Delta is better than nothing
            change = read_change(open_store(source.uri, self._context.spark), source.uri, cause.version)
            if change is not None:
                recomputed = table.aggregate is not None and table.aggregate.emit != "final"
                name, stateful = source.table or source.uri, table.stream is not None
                return refusal(table.name, name, change, source.options, recomputed=recomputed, stateful=stateful)
        return cause

    def _run_query(self, commit_lock: Lock) -> None:
        """Returns when the query has ended by itself or was stopped; otherwise raises the error that ended it."""
        context, table = self._context, self._table
        with self._wait_for_turn() as has_turn:
            if not has_turn:
                return
            source = self._open_source()
            list_files(source, self._say)
            session = TableSession(
                context.spark, table, context.store, source, commit_lock, idempotent=not context.plan.local
            )
            finish_replay(session, context.plan.system, context.stopping, self._say)
            ready = prepare(session, say=self._say, distrust=self._distrust_checkpoint, own=self._generation)
            self._generation = ready.head.entry.generation
            self._failure = None
            query = self._start_query(ready)
        with self._batch_lock:
            self._query = query
        self._record_state("running")
        if context.stopping.is_set():
            self.stop()
        interval = None if context.once or table.trigger.kind != "interval" else table.trigger.seconds
        try:
            with poll_files(source, query, interval, self._say, context.explain):
                query.awaitTermination()
        except Exception as error:
            raise (self._failure or error) from None
        finally:
            with self._batch_lock:
                self._query = None
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _wait_for_turn(self) -> Iterator[bool]:
        """Waits for a turn, since few tables start at a time; yields False if a stop is asked for meanwhile."""
        context = self._context
        while not context.starts.acquire(timeout=POLL):
            if context.stopping.is_set():
                yield False
                return
        self._preparing = True
        try:
            yield not context.stopping.is_set()
        except BaseException:
            if context.stopping.is_set():
                self._describe_abandoned()
            raise
        finally:
            self._preparing = False
            context.starts.release()

    def _start_query(self, ready: Ready) -> Any:
        context, table = self._context, self._table
        context.spark.sparkContext.setLocalProperty("spark.scheduler.pool", table.name)
        writer = self._writer = BatchWriter(ready.settings, ready.head)

        def on_batch(batch: DataFrame, number: int) -> None:
            self._wait_for_slot()
            with self._batch_lock:
                if context.stopping.is_set():
                    raise Transient("stopping", where=table.name)
                self._batch_in_flight = (ready.head.entry.generation, number)
                try:
                    self._write(writer, ready.processor, batch, number)
                except BaseException as error:
                    if context.stopping.is_set():
                        self._describe_abandoned()
                    self._failure = error  # Spark would return it as text only
                    raise
                finally:
                    self._batch_in_flight = None

        stream = ready.settings.source.stream(context.spark).writeStream.foreachBatch(on_batch)
        return (
            stream.queryName(f"{table.name} {ready.head.entry.generation}")
            .outputMode(table.stream.output if table.stream else "append")
            .trigger(**trigger_of(table, once=context.once))
            .option("checkpointLocation", ready.settings.checkpoint)
            .start()
        )

    def _write(self, writer: BatchWriter, processor: BatchProcessor, batch: DataFrame, number: int) -> None:
        started = time.monotonic()
        table, listener = self._table, self._context.listener
        written = writer.write(batch, number, processor)
        if number == 0:  # a query that keeps state begins with an empty batch
            return
        if written.verdict is Verdict.WRITE:  # a retry is no progress: every rebuilt checkpoint causes one
            self._backoff.reset()
        for commit in written.foreign:
            listener.message(
                table.name, f"version {commit.version} ({commit.operation}): {commit.rows} rows were added by others"
            )
        for remark in written.remarks:
            listener.message(table.name, remark)
        if written.verdict is Verdict.RETRY:
            listener.message(table.name, f"batch {number} was in the table already: skipped")
        listener.batch(table.name, written, time.monotonic() - started)

    def _say(self, message: str) -> None:
        self._context.listener.message(self._table.name, message)

    def _wait_for_slot(self) -> None:
        trigger = self._table.trigger
        if trigger.kind == "interval" and not self._context.once and trigger.seconds:
            delay = slot_delay(*self._slot, trigger.seconds)
            if delay > 0:
                self._context.stopping.wait(delay)

    def _record_state(self, kind: RunnerPhase, error: PenstockError | None = None) -> None:
        if self._given_up:
            return
        if isinstance(error, JvmDied) and not self._owns_state():
            return  # its lock was freed when the JVM ended, and another process has started
        self._write_state(kind, error)

    def _owns_state(self) -> bool:
        with suppress(Exception):
            state = read_state(self._context.store, self._context.plan.system, self._table.name)
            return state is None or (state.process, state.host) == (os.getpid(), socket.gethostname())
        return False

    def _write_state(self, kind: RunnerPhase, error: PenstockError | None) -> None:
        reason = self.abandoned_message if kind == "stopped" else None
        state = RunnerStatus(kind, error.message if error else reason, error.hint if error else None)
        # Only `status` reads it: a full disk must not leave a query without its supervisor.
        with suppress(Exception):
            write_state(self._context.store, self._context.plan.system, self._table.name, state)
