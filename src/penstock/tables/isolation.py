"""Lets a table continue when an expression raises on some records: those records go to quarantine.

When a batch fails because of its data, the failing records are found by bisection: the table's processor runs on
parts of the batch and writes nothing. The records are pinned (beside the batch's offsets, and in the entry of the
batch's commit) before anything is written; then the batch is written without them, and they go to quarantine. So a
batch that runs again, after a crash at any point, sets the same records aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import RowRaised, Terminal
from penstock.ledger.writer import BatchProcessor
from penstock.sources.columns import SOURCE
from penstock.sources.files.unreadable import error_text
from penstock.spark.expressions import error_of, with_fence
from penstock.tables.failing_rows import (
    NOWHERE,
    NUMBER,
    PLACE,
    FailTogether,
    Failure,
    NumberedRows,
    Places,
    TooManyFailures,
    data_failure,
    failure_of,
    find_failing,
    is_committed,
    place_text,
)
from penstock.tables.pipeline import DETAIL, STRICT_ERROR, TRANSFORM_FAILED
from penstock.tables.staged import IsolatedRecords

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.entry import Entry, Pins, Place, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import PinnedInputs
    from penstock.plan.model import TablePlan
    from penstock.tables.staged import StagedProcessor
    from penstock.tables.suppression import RowProcessor

_MAX_ROUNDS = 5
"""One search finds all failing records; another follows only if the batch still fails without them."""
_MANY_BATCHES = 10
_SHOWN = 3


class IsolatingProcessor(BatchProcessor):
    def __init__(
        self,
        inner: RowProcessor,
        staged: StagedProcessor,
        table: TablePlan,
        log: DeltaLog,
        *,
        redriving: bool = False,
    ) -> None:
        """`staged` is the processor that `inner` wraps, or `inner` itself. `redriving`: the batches are quarantined
        rows."""
        self._inner, self._staged, self._table, self._log = inner, staged, table, log
        self._places, self._redriving = Places(table), redriving
        self._isolated: tuple[Place, ...] = ()
        self._detail_by_place: dict[Place, str] = {}
        self._cached: list[DataFrame] = []
        self._newly_found: list[tuple[Place, str]] = []
        self._max_failed = table.max_failed_records

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the records of the batch that were set aside."""
        if not self._newly_found:
            return ()
        count = len(self._newly_found)
        examples = "; ".join(f"{place_text(place)}: {detail}" for place, detail in self._newly_found[:_SHOWN])
        more = f"; and {count - _SHOWN} more" if count > _SHOWN else ""
        return (f"{count} {'record' if count == 1 else 'records'} set aside: {TRANSFORM_FAILED} ({examples}{more})",)

    @property
    def suppression_changed(self) -> bool:
        return self._inner.suppression_changed

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return self._inner.pin(batch, last, after)

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        self._detail_by_place, self._newly_found = {}, []
        self._max_failed = self._failure_limit(write_target)
        self._staged.strict = True
        for _ in range(_MAX_ROUNDS):
            self._isolate_pinned(batch, entry)
            remaining = self._remaining_rows(batch)
            if write_target.lazy and self._staged.strict:  # nothing runs until it is too late to refuse
                self._refuse_many_raising(remaining, entry)
            try:
                if write_target.lazy and self._can_raise:
                    self._inner.probe(remaining, entry)
                self._inner.write(remaining, entry, write_target, files=files)
                return
            except Exception as error:
                if self._staged.strict and STRICT_ERROR in error_text(error):
                    self._inner.release()
                    self._refuse_many_raising(remaining, entry)
                    continue
                places = self._find_failing_records(batch, entry, error)
                if not places or (not write_target.lazy and is_committed(self._log, entry)):
                    raise
                entry = self._with_pins(entry, (*self._isolated, *places))
                write_target.repin(entry)
        raise self._never_ending_error(entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        for _ in range(_MAX_ROUNDS):
            self._isolate_pinned(batch, entry)
            try:
                return self._inner.complete(self._remaining_rows(batch), entry, rows=rows, written=written)
            except Exception as error:
                # With another definition, or at another time, other records may fail: those that are not in the table.
                places = self._find_failing_records(batch, entry, error) if self._staged.knows_its_rows() else ()
                if not places:
                    raise
                entry = self._with_pins(entry, (*self._isolated, *places))
        raise self._never_ending_error(entry)

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        return self._inner.rejected(self._remaining_rows(batch), entry)

    def inspect(self, batch: DataFrame, entry: Entry) -> None:
        self._isolate_pinned(batch, entry)
        self._inner.inspect(self._remaining_rows(batch), entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        return self._inner.counted(self._remaining_rows(batch), entry, rows)

    def release(self) -> None:
        self._inner.release()
        self._release()
        self._isolated, self._detail_by_place, self._newly_found = (), {}, []

    @property
    def _can_raise(self) -> bool:
        """Whether the table has expressions that can raise: decoding and expectations cannot."""
        stages = self._table.stages
        return self._table.write.merge is not None or (stages is not None and stages.transform is not None)

    def _refuse_many_raising(self, remaining: DataFrame, entry: Entry) -> None:
        """Raises if `where`, a key or a sequence raises on too many rows. The rows themselves carry these errors, so no
        search is needed. From here on such rows are rejected."""
        if self._table.isolates_where or self._table.write.merge is not None:
            read, count, first, error = self._inner.raising(remaining, entry)
            if count > self._max_failed - len(self._isolated):
                place: Place = tuple(first) if first is not None else (NOWHERE,)
                raise self._too_many_error(read, place, Failure("", error))
        self._staged.strict = False

    def _failure_limit(self, write_target: WriteTarget) -> int:
        """The limit of failing records: higher for a rebuild or redrive, which cover more than one batch."""
        limit = self._table.max_failed_records
        return limit * _MANY_BATCHES if write_target.replaces_all or self._redriving else limit

    def _release(self) -> None:
        cached, self._cached = self._cached, []
        self._staged.isolated = None
        for frame in cached:
            frame.unpersist()

    def _with_pins(self, entry: Entry, places: tuple[Place, ...]) -> Entry:
        pins = entry.pins
        pins = replace(pins, redrive_set_aside=places) if self._redriving else replace(pins, set_aside=places)
        return replace(entry, pins=pins)

    def _isolate_pinned(self, batch: DataFrame, entry: Entry) -> None:
        """Sets aside the records that the entry pins."""
        pinned = entry.pins.redrive_set_aside if self._redriving else entry.pins.set_aside
        if self._staged.isolated is not None and pinned == self._isolated:
            return
        self._release()
        self._isolated = pinned
        if self._isolated:
            self._staged.isolated = self._set_aside(batch, entry)

    def _remaining_rows(self, batch: DataFrame) -> DataFrame:
        return with_fence(self._places.without(batch, self._isolated)) if self._isolated else batch

    def _set_aside(self, batch: DataFrame, entry: Entry) -> IsolatedRecords:
        records = with_fence(batch.where(self._places.matches(batch, self._isolated)))
        for place in self._isolated:
            if place not in self._detail_by_place:  # found by an earlier run, which did not finish
                self._detail_by_place[place] = self._explain(records, place, entry)
        if self._places.by_content(batch):
            records = records.withColumn(DETAIL, self._detail(self._places.expressions(batch)))
            detail = F.col(DETAIL)
        else:
            names = ("topic", "partition", "offset") if self._table.input.origin == "kafka" else ("file", "row")
            detail = self._detail([f"{SOURCE}.{name}" for name in names])
        frame = self._staged.set_aside(records, entry, detail).persist(StorageLevel.MEMORY_AND_DISK)
        self._cached.append(frame)
        return IsolatedRecords(frame, frame.count())

    def _detail(self, parts: Sequence[str]) -> Column:
        pairs = [F.lit(value) for place in self._isolated for value in (_key(place), self._detail_by_place[place])]
        key = F.concat_ws("\n", *(F.expr(f"CAST({part} AS STRING)") for part in parts))
        return F.element_at(F.create_map(*pairs), key)

    def _explain(self, records: DataFrame, place: Place, entry: Entry) -> str:
        failure = self._probe(with_fence(records.where(self._places.matches(records, [place]))), entry)
        return failure.full if failure is not None else "it raised an error when its batch was written"

    def _probe(self, rows: DataFrame, entry: Entry) -> Failure | None:
        return failure_of(lambda: self._inner.probe(rows, entry))

    def _find_failing_records(self, batch: DataFrame, entry: Entry, error: Exception) -> tuple[Place, ...]:
        """The records that make the batch fail; empty if the cause is another. Raises if a person has to decide."""
        failure = data_failure(error)
        if failure is None or not self._table.max_failed_records:
            return ()
        self._inner.release()
        remaining = self._places.without(batch, self._isolated) if self._isolated else batch
        parts = self._places.expressions(remaining)
        place = F.array(*(F.expr(f"CAST({part} AS STRING)") for part in parts)).alias(PLACE)
        numbered = remaining.select("*", place, F.monotonically_increasing_id().alias(NUMBER))
        cached = numbered.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            return self._search(NumberedRows(cached), entry, failure)
        finally:
            cached.unpersist()

    def _search(self, records: NumberedRows, entry: Entry, failure: Failure) -> tuple[Place, ...]:
        def probe(first: int, end: int) -> Failure | None:
            return self._probe(records.between(first, end), entry)

        if probe(0, 0) is not None:  # it fails without any record, so the definition fails whatever the data
            return ()
        overall_failure = probe(0, records.count)
        if overall_failure is None:
            return ()
        most = self._max_failed - len(self._isolated)
        try:
            failing = find_failing(records.count, probe, overall_failure, most)
        except TooManyFailures as too_many:
            first = records.place(too_many.failing[0].number)
            raise self._too_many_error(records.count, first, too_many.failing[0].failure) from None
        except FailTogether as together:
            first, last = records.place(together.first), records.place(together.end - 1)
            raise self._together_error(first, last, together.end - together.first, together.failure) from None
        places = records.places([record.number for record in failing])
        for record in failing:
            if record.number not in places:
                raise self._no_coordinates_error(record.failure)
            place = places[record.number]
            if place not in self._detail_by_place:  # several rows can come from one record
                self._newly_found.append((place, record.failure.full))
                self._detail_by_place[place] = record.failure.full
        return tuple(dict.fromkeys(places[record.number] for record in failing))

    def _too_many_error(self, records: int, first: Place, failure: Failure) -> Terminal:
        return Terminal(
            f"more than {self._max_failed} of {records:,} records fail, so the definition is taken to be wrong. "
            f"The first is {place_text(first)}: {failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. Correct the definition: try_cast, try_divide and their like give "
            "NULL, which an expectation can reject; or allow more: max_failed_records: 500",
        )

    def _together_error(self, first: Place, last: Place, count: int, failure: Failure) -> Terminal:
        return Terminal(
            f"no single record fails, but {count:,} records together do, from {place_text(first)} to "
            f"{place_text(last)}: {failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. An expression over several records raises (a sum that overflows, a "
            "window, a join), or not each time: correct the definition",
        )

    def _no_coordinates_error(self, failure: Failure) -> Terminal:
        return Terminal(
            f"a record fails that has no coordinates, so it cannot be set aside: {failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. Correct the definition, or give the row of the table upstream a "
            f"{SOURCE}",
        )

    def _never_ending_error(self, entry: Entry) -> Terminal:
        return Terminal(
            f"batch {entry.generation}.{entry.batch} fails on other records each time that it is run",
            where=self._table.name,
            hint="nothing of it was written. The transform depends on the moment or on chance: correct it",
        )


def _key(place: Place) -> str:
    return "\n".join(map(str, place))


# Finding the row on which `from: {where: …}` raises, for tables that set no rows aside: aggregates, sinks, streams.


_ERROR, _PLACE = "__error", "__place"
_LANDED = ("topic", "partition", "offset")
_LONGEST = 200


def row_at_fault(spark: SparkSession, table: TablePlan) -> RowRaised | None:
    """The error for the first such row in the current sources; None if their conditions raise on no row."""
    for source in table.delta_sources:
        if source.where is not None and not table.isolates_where:
            rows = spark.read.format("delta").load(source.uri)
            errors = rows.select(_place_of(rows).alias(_PLACE), error_of(spark, source.where).alias(_ERROR))
            row = errors.where(f"{_ERROR} IS NOT NULL").agg(F.expr(f"min(struct({_PLACE}, {_ERROR}))")).first()
            if row is not None and row[0] is not None:
                place, raised = row[0]
                location = place[:_LONGEST] if isinstance(place, str) else place_text(tuple(place))
                return RowRaised(
                    f"from.where raises on a row of {source.label}, {location}: {raised}",
                    where=table.name,
                    hint="nothing of the batch was written. Correct the condition: try_cast, try_divide and their like "
                    "give NULL, which is not met; or make a table of those rows first, which sets such rows aside",
                )
    return None


def _place_of(rows: DataFrame) -> Column:
    """A row's coordinates, or its content if it has none."""
    if SOURCE in rows.columns and isinstance(rows.schema[SOURCE].dataType, StructType):
        return F.col(SOURCE)
    if {*_LANDED} <= {*rows.columns}:
        return F.struct(*_LANDED)
    return F.to_json(F.struct("*"))
