"""Writing a batch exactly once: chain check, pins, the rows with their entry, and the read of the log that confirms
them."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from penstock.errors import Transient
from penstock.ledger.checkpoint import read_pins, read_planned, store_pins
from penstock.ledger.commit import append_entry, confirm, must_confirm
from penstock.ledger.entry import Pins
from penstock.ledger.generations import carry_forward, needs_carry
from penstock.ledger.head import Verdict, advance, check, refuse_foreign_changes
from penstock.ledger.row_counts import store_row_counts
from penstock.ledger.write_target import DeltaTableTarget
from penstock.spark.jvm import java_frame
from penstock.storage.locks import acquire_commit

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.ledger.checkpoint import PlannedBatch
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry, RowCounts, Watermark
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.source import Source
    from penstock.ledger.write_target import WriteTarget
    from penstock.storage.locks import Lock
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class PinnedInputs:
    """What a batch must see again when it is retried; `Pins` says what each means."""

    lookups: Mapping[str, int] = field(default_factory=dict)
    watermark: Watermark | None = None


class BatchProcessor(ABC):
    """Turns a batch into rows of its table."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person should know about the batch that was written."""
        return ()

    @property
    @abstractmethod
    def suppression_changed(self) -> bool:
        """A subject was added to the suppression list since the batch began: its results must not be committed."""

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        """The inputs of a batch that starts now and reads up to `after`; `last` are the pins of the batch before."""
        return PinnedInputs()

    @abstractmethod
    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        """Makes one commit with the entry, or none if the batch has no row. `files` is how many files its rows deserve;
        0 leaves that to Spark."""

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        """Called when that many rows are in the table: completes whatever else belongs to the batch. `written` says
        that this processor wrote them; else they were there already. Returns what became of the batch; empty if nothing
        is counted."""
        return {}

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame | None:
        """The rows that would go to quarantine, with the reasons; called after `write`. None if that is not known."""
        return None

    def release(self) -> None:  # noqa: B027
        """The batch has ended, successfully or not: releases what was cached for it."""


ROWS_PER_FILE = 20_000
BYTES_PER_FILE = 16 * 1024 * 1024


@dataclass(frozen=True)
class WriterSettings:
    """A table and its checkpoint, as the writer of its batches sees them."""

    table: str
    uri: str
    checkpoint: str
    definition: str
    source: Source
    store: Store
    log: DeltaLog
    lock: Lock
    idempotent: bool
    """On stores without our locks: every write carries Delta's transaction options."""
    purge: Callable[[LedgerHead], None] | None = None
    """For a table that does not keep its tombstones forever: called now and then, under the lock."""


@dataclass(frozen=True)
class Written:
    batch: int
    rows: int
    verdict: Verdict
    version: int
    time_ms: int
    foreign: tuple[Commit, ...]
    """Appends by others since the last batch: reported, not refused."""
    row_counts: RowCounts = field(default_factory=dict)
    """What became of the rows that it read."""
    remarks: tuple[str, ...] = ()
    """The source's about the range that was read, and the processor's about its rows."""


class BatchWriter:
    """Writes the batches of one running query, in their order. Knows the end of the ledger, so that a batch reads only
    what is new in the log."""

    def __init__(self, settings: WriterSettings, head: LedgerHead) -> None:
        self._settings = settings
        self._head = head
        self._generation = head.entry.generation
        self._reported_version = head.commit.version
        self._planned: tuple[int, PlannedBatch] | None = None
        self._checked_pins = False

    @property
    def head(self) -> LedgerHead:
        return self._head

    def write(
        self,
        batch: DataFrame,
        number: int,
        processor: BatchProcessor,
    ) -> Written:
        """Raises, without writing, if the batch does not follow the ledger or its source is not what was read before;
        the source is checked before the lock is taken, because that may talk to a broker."""
        settings, started_ms = self._settings, round(time.time() * 1000)
        before, planned = self._planned_range(number)
        after, time_ms = planned.after, planned.time_ms
        ids = settings.source.ids(after)
        acquire_commit(settings.lock, settings.table)
        try:
            self._head = advance(self._head, settings.log)
            appends = refuse_foreign_changes(self._head, settings.log)
            verdict = check(self._head.entry, self._generation, number, before, after)
            if verdict is Verdict.WRITE:
                self._refuse_at_limit(before)
            rows = 0
            if verdict is Verdict.WRITE:
                pins = self._pin(batch, number, planned, processor)
                entry = replace(self._next_entry(number, before, after, pins, ids), started_ms=started_ms)
                self._head = self._commit(batch, entry, processor)
                rows = self._head.commit.rows
                appends += refuse_foreign_changes(self._head, settings.log)  # what was committed meanwhile
            row_counts = self._complete(batch, number, processor, written=verdict is Verdict.WRITE)
            foreign = tuple(commit for commit in appends if commit.version > self._reported_version)
            self._reported_version = self._head.version
            remarks = tuple(settings.source.remarks(before, after)) if verdict is Verdict.WRITE else ()
            remarks += processor.remarks
            return Written(number, rows, verdict, self._head.commit.version, time_ms, foreign, row_counts, remarks)
        finally:
            settings.lock.release()
            processor.release()

    @contextmanager
    def commit_lock(self) -> Iterator[None]:
        """Holds the commit lock: nobody else commits to the table meanwhile."""
        acquire_commit(self._settings.lock, self._settings.table)
        try:
            yield
        finally:
            self._settings.lock.release()

    def replaced_by(self) -> Entry | None:
        """The last entry, if it is of a later generation: an idle query would not reach the check that finds it. None
        while another process is still doing what it was opened for: on stores without our locks both would do it."""
        entries = [commit.entry for commit in self._settings.log.since(self._head.version) if commit.entry is not None]
        last = entries[-1] if entries else None
        return last if last is not None and last.generation > self._generation and not last.unfinished else None

    def maintain_ledger(self, spark: SparkSession) -> None:
        """Called now and then. Repeats the last entry of an idle table before log retention removes it, and removes old
        tombstones."""
        settings = self._settings
        if not needs_carry(self._head) and settings.purge is None:
            return
        acquire_commit(settings.lock, settings.table)
        try:
            self._head = carry_forward(spark, settings.log, advance(self._head, settings.log), settings.uri)
            if settings.purge is not None:
                settings.purge(self._head)
        finally:
            settings.lock.release()

    def _planned_range(self, number: int) -> tuple[tuple[str, ...], PlannedBatch]:
        """Spark writes `offsets/N` before it calls foreachBatch(N): that file says what the batch reads."""
        settings, last = self._settings, self._head.entry
        planned = read_planned(settings.store, settings.checkpoint, number)
        if planned is None:
            raise Transient(f"offsets/{number} of the checkpoint is gone", where=settings.table)
        if self._planned is not None and self._planned[0] == number - 1:
            before = self._planned[1].after
        elif (earlier := read_planned(settings.store, settings.checkpoint, number - 1)) is not None:
            before = earlier.after
        elif number == last.batch == 0:
            before = last.before  # the empty batch with which a query that keeps state begins
        elif number == last.batch + 1:
            before = last.after  # the folder was emptied under a running query: Spark continues from memory, so do we
        else:
            raise Transient(f"offsets/{number - 1} of the checkpoint is gone", where=settings.table)
        self._planned = (number, planned)
        return before, planned

    def _pin(self, batch: DataFrame, number: int, planned: PlannedBatch, processor: BatchProcessor) -> Pins:
        settings = self._settings
        earlier_pins = None if self._checked_pins else read_pins(settings.store, settings.checkpoint, number)
        self._checked_pins = True  # only the first batch of a query can have been started before
        inputs = processor.pin(batch, self._head.entry.pins, planned.after)
        lookups = {**inputs.lookups, **(earlier_pins.lookups if earlier_pins else {})}
        aside = (
            earlier_pins.set_aside
            if earlier_pins is not None and earlier_pins.definition == settings.definition
            else ()
        )
        pins = Pins(planned.time_ms, settings.definition, lookups, inputs.watermark, aside)
        store_pins(settings.store, settings.checkpoint, number, pins)
        return pins

    def _next_entry(
        self, number: int, before: tuple[str, ...], after: tuple[str, ...], pins: Pins, ids: Mapping[str, str]
    ) -> Entry:
        settings, head = self._settings, self._head
        return head.entry.next_entry(
            "batch",
            generation=self._generation,
            batch=number,
            before=before,
            after=after,
            pins=pins,
            topics=ids,
            subscription=settings.source.subscription,
            counts=head.counts,
            seen=head.version,
            filled=head.filled,
            pending=head.entry.pending if head.entry.stop_position is not None else {},
        )

    def _refuse_at_limit(self, before: tuple[str, ...]) -> None:
        """Raises at the position where its generation stops: its next start continues elsewhere."""
        if before == (self._head.entry.stop_position,):
            raise Transient(
                "the next upstream versions were rewound: the table restarts after them", where=self._settings.table
            )

    def _commit(self, batch: DataFrame, entry: Entry, processor: BatchProcessor) -> LedgerHead:
        settings, log = self._settings, self._settings.log
        store = partial(store_pins, settings.store, settings.checkpoint, entry.batch)
        write_target = DeltaTableTarget(settings.uri, settings.idempotent, store=store)
        processor.write(batch, entry, write_target, files=self._file_count(entry, batch))
        entry = write_target.entry or entry
        confirmed = confirm(self._head, log, entry)
        if confirmed is not None:
            return confirmed
        # No row in the range (only transaction markers, say): Delta by itself makes no commit of that.
        append_entry(batch.sparkSession, settings.uri, entry)
        return must_confirm(self._head, log, entry)

    def _complete(self, batch: DataFrame, number: int, processor: BatchProcessor, *, written: bool) -> RowCounts:
        head, settings = self._head, self._settings
        row_counts = processor.complete(batch, head.entry, rows=head.counts.rows, written=written)
        if row_counts:
            store_row_counts(settings.store, settings.checkpoint, number, row_counts)
            self._head = replace(head, row_counts=row_counts)
        return row_counts

    def _file_count(self, entry: Entry, batch: DataFrame) -> int:
        """How many files the rows deserve: a small batch costs one task and leaves one file."""
        rows = self._settings.source.size(entry.before, entry.after)
        if rows is None:
            return max(1, math.ceil(_bytes_read(batch) / BYTES_PER_FILE))
        commit = self._head.commit
        bytes_per_row = commit.bytes / commit.rows if commit.rows else 0
        return max(1, math.ceil(rows / ROWS_PER_FILE), math.ceil(rows * bytes_per_row / BYTES_PER_FILE))


def _bytes_read(batch: DataFrame) -> int:
    """The size of the files that a batch reads, according to Spark's plan."""
    return int(str(java_frame(batch).queryExecution().optimizedPlan().stats().sizeInBytes()))


# What the write of a batch counted along the way, so that no second pass is needed.


PATIENCE = 10.0
"""Seconds to wait: Spark delivers the metrics after the write has ended, from another thread."""


class BatchMetrics:
    """`Observation.get` waits for ever if its write was skipped; this class gives up."""

    def __init__(self) -> None:
        self._observation = Observation()

    def on(self, frame: DataFrame, *metrics: Column) -> DataFrame:
        return frame.observe(self._observation, *metrics)

    def result(self) -> dict[str, Any] | None:
        """Values as the JVM has them; None if none were delivered."""
        observation = self._observation._jo
        if observation is None:
            return None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            observed = observation.getOrEmpty()
            if not observed.isEmpty():
                keys = observed.keys().toSeq()
                return {str(keys.apply(i)): observed.apply(keys.apply(i)) for i in range(keys.size())}
            time.sleep(0.002)
        return None
