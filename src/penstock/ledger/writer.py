"""Writing a batch exactly once: chain check, pins, the rows with their entry, and the look that confirms them."""

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
from penstock.ledger.commit import append_nothing, confirm, must_confirm
from penstock.ledger.entry import Pins
from penstock.ledger.generations import carry_forward, is_old
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

# What the writer of a table's batches asks of the table.


@dataclass(frozen=True)
class PinnedInputs:
    """What a batch shall see again if it runs again; `Pins` says what each means."""

    lookups: Mapping[str, int] = field(default_factory=dict)
    watermark: Watermark | None = None


class BatchProcessor(ABC):
    """What a table makes of a batch."""

    @property
    @abstractmethod
    def outdated(self) -> bool:
        """A subject was added to the suppression list since it began: what it has made must not be committed."""

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        """Of a batch which begins now and reads up to `after`; `last` are the pins of the batch before."""
        return PinnedInputs()

    @abstractmethod
    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        """One commit with the entry, or none if the batch makes no row. `files` is how many its rows deserve; 0 leaves
        that to Spark."""

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        """After the rows are in the table, so many: whatever else belongs to the batch. `written` says that this
        function wrote them; else they were there already. What became of the batch; empty where nothing is counted."""
        return {}

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame | None:
        """The rows that would go to quarantine, with the reasons; after `write`. None where that is not known."""
        return None

    def done(self) -> None:  # noqa: B027
        """The batch has ended, well or not: what was kept for it is let go."""


# Writing a batch exactly once: chain check, pins, the rows with their entry, and the look that confirms them.


ROWS_PER_FILE = 20_000
BYTES_PER_FILE = 16 * 1024 * 1024


@dataclass(frozen=True)
class WriterTarget:
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
    """Of a table that does not keep its tombstones forever: called now and then, under the lock."""


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
    """What the source has to say of the range that was read."""


class BatchWriter:
    """The batches of one running query, in their order. Knows the end of the ledger, so that a batch reads only what is
    new in the log."""

    def __init__(self, target: WriterTarget, tail: LedgerHead) -> None:
        self._target = target
        self._tail = tail
        self._generation = tail.entry.generation
        self._seen = tail.commit.version
        self._planned: tuple[int, PlannedBatch] | None = None
        self._begun = False

    @property
    def tail(self) -> LedgerHead:
        return self._tail

    def write(
        self,
        batch: DataFrame,
        number: int,
        function: BatchProcessor,
    ) -> Written:
        """Raises rather than writes whenever the batch does not follow the ledger, or its source is not what was read
        before; that is asked before the lock is taken, because it may talk to a broker."""
        target, started_ms = self._target, round(time.time() * 1000)
        before, planned = self._range(number)
        after, time_ms = planned.after, planned.time_ms
        ids = target.source.ids(after)
        acquire_commit(target.lock, target.table)
        try:
            self._tail = advance(self._tail, target.log)
            appends = refuse_foreign_changes(self._tail, target.log)
            verdict = check(self._tail.entry, self._generation, number, before, after)
            if verdict is Verdict.WRITE:
                self._stop(before)
            rows = 0
            if verdict is Verdict.WRITE:
                pins = self._pin(batch, number, planned, function)
                entry = replace(self._entry(number, before, after, pins, ids), started_ms=started_ms)
                self._tail = self._commit(batch, entry, function)
                rows = self._tail.commit.rows
                appends += refuse_foreign_changes(self._tail, target.log)  # what slipped in meanwhile
            row_counts = self._complete(batch, number, function, written=verdict is Verdict.WRITE)
            foreign = tuple(commit for commit in appends if commit.version > self._seen)
            self._seen = self._tail.version
            remarks = tuple(target.source.remarks(before, after)) if verdict is Verdict.WRITE else ()
            remarks += tuple(getattr(function, "remarks", ()))
            return Written(number, rows, verdict, self._tail.commit.version, time_ms, foreign, row_counts, remarks)
        finally:
            target.lock.release()
            function.done()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody else commits to the table meanwhile."""
        acquire_commit(self._target.lock, self._target.table)
        try:
            yield
        finally:
            self._target.lock.release()

    def replaced_by(self) -> Entry | None:
        """The last entry, if it is of a later generation: an idle query would not come to the check that finds it. Not
        while another process is still at what it was opened for: on stores without our locks both would do it."""
        entries = [commit.entry for commit in self._target.log.since(self._tail.version) if commit.entry is not None]
        last = entries[-1] if entries else None
        return last if last is not None and last.generation > self._generation and not last.unfinished else None

    def keep(self, spark: SparkSession) -> None:
        """Called now and then. Says the last entry of an idle table again before log retention takes it, and lets old
        tombstones go."""
        target = self._target
        if not is_old(self._tail) and target.purge is None:
            return
        acquire_commit(target.lock, target.table)
        try:
            self._tail = carry_forward(spark, target.log, advance(self._tail, target.log), target.uri)
            if target.purge is not None:
                target.purge(self._tail)
        finally:
            target.lock.release()

    def _range(self, number: int) -> tuple[tuple[str, ...], PlannedBatch]:
        """Spark writes `offsets/N` before it calls foreachBatch(N): what the batch reads stands there."""
        target, last = self._target, self._tail.entry
        planned = read_planned(target.store, target.checkpoint, number)
        if planned is None:
            raise Transient(f"offsets/{number} of the checkpoint is gone", where=target.table)
        if self._planned is not None and self._planned[0] == number - 1:
            before = self._planned[1].after
        elif (earlier := read_planned(target.store, target.checkpoint, number - 1)) is not None:
            before = earlier.after
        elif number == last.batch == 0:
            before = last.before  # the empty batch with which a query that keeps state begins
        elif number == last.batch + 1:
            before = last.after  # the folder was emptied under a running query: Spark goes on from memory, so do we
        else:
            raise Transient(f"offsets/{number - 1} of the checkpoint is gone", where=target.table)
        self._planned = (number, planned)
        return before, planned

    def _pin(self, batch: DataFrame, number: int, planned: PlannedBatch, function: BatchProcessor) -> Pins:
        target = self._target
        begun = None if self._begun else read_pins(target.store, target.checkpoint, number)
        self._begun = True  # only the first batch of a query can be one that was begun before
        pinned = function.pin(batch, self._tail.entry.pins, planned.after)
        lookups = {**pinned.lookups, **(begun.lookups if begun else {})}
        aside = begun.aside if begun is not None and begun.definition == target.definition else ()
        pins = Pins(planned.time_ms, target.definition, lookups, pinned.watermark, aside)
        store_pins(target.store, target.checkpoint, number, pins)
        return pins

    def _entry(
        self, number: int, before: tuple[str, ...], after: tuple[str, ...], pins: Pins, ids: Mapping[str, str]
    ) -> Entry:
        target, tail = self._target, self._tail
        return tail.entry.followed(
            "batch",
            generation=self._generation,
            batch=number,
            before=before,
            after=after,
            pins=pins,
            topics=ids,
            subscription=target.source.subscription,
            counts=tail.counts,
            seen=tail.version,
            filled=tail.filled,
            pending=tail.entry.pending if tail.entry.stops_at is not None else {},
        )

    def _stop(self, before: tuple[str, ...]) -> None:
        """Its next start goes on elsewhere."""
        if before == (self._tail.entry.stops_at,):
            raise Transient("what comes next was undone upstream: it goes on after that", where=self._target.table)

    def _commit(self, batch: DataFrame, entry: Entry, function: BatchProcessor) -> LedgerHead:
        target, log = self._target, self._target.log
        keep = partial(store_pins, target.store, target.checkpoint, entry.batch)
        into = DeltaTableTarget(target.uri, target.idempotent, store=keep)
        function.write(batch, entry, into, files=self._files(entry, batch))
        entry = into.entry or entry
        written = confirm(self._tail, log, entry)
        if written is not None:
            return written
        # No row in the range (only transaction markers, say): Delta makes no commit of that by itself.
        append_nothing(batch.sparkSession, target.uri, entry)
        return must_confirm(self._tail, log, entry)

    def _complete(self, batch: DataFrame, number: int, function: BatchProcessor, *, written: bool) -> RowCounts:
        tail, target = self._tail, self._target
        row_counts = function.complete(batch, tail.entry, rows=tail.counts.rows, written=written)
        if row_counts:
            store_row_counts(target.store, target.checkpoint, number, row_counts)
            self._tail = replace(tail, row_counts=row_counts)
        return row_counts

    def _files(self, entry: Entry, batch: DataFrame) -> int:
        """As many files as the rows deserve: a small batch costs one task and leaves one file."""
        rows = self._target.source.size(entry.before, entry.after)
        if rows is None:
            return max(1, math.ceil(_bytes_read(batch) / BYTES_PER_FILE))
        commit = self._tail.commit
        bytes_per_row = commit.bytes / commit.rows if commit.rows else 0
        return max(1, math.ceil(rows / ROWS_PER_FILE), math.ceil(rows * bytes_per_row / BYTES_PER_FILE))


def _bytes_read(batch: DataFrame) -> int:
    """What Spark's plan says of the files that a batch reads."""
    return int(str(java_frame(batch).queryExecution().optimizedPlan().stats().sizeInBytes()))


# What the write of a batch counted on its way, so that no second pass is needed to know it.


PATIENCE = 10.0
"""Spark tells what was observed after the write has ended, by another thread."""


class BatchMetrics:
    """`Observation.get` waits for ever if its write was skipped; this one gives up."""

    def __init__(self) -> None:
        self._observation = Observation()

    def on(self, frame: DataFrame, *metrics: Column) -> DataFrame:
        return frame.observe(self._observation, *metrics)

    def result(self) -> dict[str, Any] | None:
        """Values as the JVM has them; None if nothing was told."""
        observation = self._observation._jo
        if observation is None:
            return None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = observation.getOrEmpty()
            if not found.isEmpty():
                keys = found.keys().toSeq()
                return {str(keys.apply(i)): found.apply(keys.apply(i)) for i in range(keys.size())}
            time.sleep(0.002)
        return None
