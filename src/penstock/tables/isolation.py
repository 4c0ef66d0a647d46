"""A table continues though an expression raises on some of its records: they go to quarantine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import RowRaised, Terminal
from penstock.ledger.writer import BatchProcessor
from penstock.sources.columns import SOURCE
from penstock.sources.files.unreadable import story
from penstock.spark.expressions import error_of, fenced
from penstock.tables.failing_rows import (
    NOWHERE,
    NUMBER,
    PLACE,
    Failure,
    Numbered,
    Places,
    Together,
    TooMany,
    data_failure,
    find_failing,
    shown,
)
from penstock.tables.pipeline import DETAIL, RAISES, TRANSFORM_FAILED
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

# The function of a table that goes on though an expression raises on some of its records.
#
# When a batch fails because of its data, the records that make it fail are searched for by halves, by running the
# table's function on parts of the batch and writing nothing. They are pinned (beside the batch's offsets, and in the
# entry of the batch's commit) before anything is written; then the batch is written without them, and they go to its
# quarantine. So whoever runs the batch again, after a crash at any point, sets the same records aside.


_ROUNDS = 5
"""A search finds all records that fail; another one follows only if the batch fails without them as well."""
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
        """`staged` is what `inner` runs in the end. `redriving`: its batches are rows of the quarantine."""
        self._inner, self._staged, self._table, self._log = inner, staged, table, log
        self._places, self._redriving = Places(table), redriving
        self._aside: tuple[Place, ...] = ()
        self._details: dict[Place, str] = {}
        self._kept: list[DataFrame] = []
        self._found: list[tuple[Place, str]] = []
        self._most = table.max_failed_records

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said of the batch."""
        if not self._found:
            return ()
        count = len(self._found)
        told = "; ".join(f"{shown(place)}: {detail}" for place, detail in self._found[:_SHOWN])
        more = f"; and {count - _SHOWN} more" if count > _SHOWN else ""
        return (f"{count} {'record' if count == 1 else 'records'} set aside: {TRANSFORM_FAILED} ({told}{more})",)

    @property
    def outdated(self) -> bool:
        return self._inner.outdated

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return self._inner.pin(batch, last, after)

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        self._details, self._found = {}, []
        self._most = self._bound(into)
        self._staged.strict = True
        for _ in range(_ROUNDS):
            self._begin(batch, entry)
            rest = self._without(batch)
            if into.lazy and self._staged.strict:  # nothing runs before it is too late to say so
                self._refuse_many_raising(rest, entry)
            try:
                if into.lazy and self._raises:
                    self._inner.probe(rest, entry)
                self._inner.write(rest, entry, into, files=files)
                return
            except Exception as error:
                if self._staged.strict and RAISES in story(error):
                    self._inner.done()
                    self._refuse_many_raising(rest, entry)
                    continue
                found = self._blamed(batch, entry, error)
                if not found or (not into.lazy and self._is_committed(entry)):
                    raise
                entry = self._pinned(entry, (*self._aside, *found))
                into.repin(entry)
        raise self._never_ending(entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        for _ in range(_ROUNDS):
            self._begin(batch, entry)
            try:
                return self._inner.complete(self._without(batch), entry, rows=rows, written=written)
            except Exception as error:
                # By another definition, or at another time, other records may fail: those that are not in the table.
                found = self._blamed(batch, entry, error) if self._staged.knows_its_rows() else ()
                if not found:
                    raise
                entry = self._pinned(entry, (*self._aside, *found))
        raise self._never_ending(entry)

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        return self._inner.rejected(self._without(batch), entry)

    def look(self, batch: DataFrame, entry: Entry) -> None:
        self._begin(batch, entry)
        self._inner.look(self._without(batch), entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        return self._inner.counted(self._without(batch), entry, rows)

    def done(self) -> None:
        self._inner.done()
        self._let_go()
        self._aside, self._details, self._found = (), {}, []

    @property
    def _raises(self) -> bool:
        """It has expressions that can raise: what decodes and what is expected cannot."""
        stages = self._table.stages
        return self._table.write.merge is not None or (stages is not None and stages.transform is not None)

    def _refuse_many_raising(self, rest: DataFrame, entry: Entry) -> None:
        """What `where`, a key or a sequence raises is told by the row itself: nothing has to be searched for. From here
        on these rows are rejected."""
        if self._table.isolates_where or self._table.write.merge is not None:
            read, count, first, told = self._inner.raising(rest, entry)
            if count > self._most - len(self._aside):
                place: Place = tuple(first) if first is not None else (NOWHERE,)
                raise self._too_many(read, place, Failure("", told))
        self._staged.strict = False

    def _bound(self, into: WriteTarget) -> int:
        """All that was ever read, or ever rejected, may hold more of them than a batch."""
        most = self._table.max_failed_records
        return most * _MANY_BATCHES if into.anew or self._redriving else most

    def _let_go(self) -> None:
        kept, self._kept = self._kept, []
        self._staged.aside = None
        for frame in kept:
            frame.unpersist()

    def _pinned(self, entry: Entry, places: tuple[Place, ...]) -> Entry:
        pins = replace(entry.pins, kept=places) if self._redriving else replace(entry.pins, aside=places)
        return replace(entry, pins=pins)

    def _begin(self, batch: DataFrame, entry: Entry) -> None:
        """Sets the records aside that the entry names."""
        aside = entry.pins.kept if self._redriving else entry.pins.aside
        if self._staged.aside is not None and aside == self._aside:
            return
        self._let_go()
        self._aside = aside
        if self._aside:
            self._staged.aside = self._set_aside(batch, entry)

    def _without(self, batch: DataFrame) -> DataFrame:
        return fenced(self._places.without(batch, self._aside)) if self._aside else batch

    def _set_aside(self, batch: DataFrame, entry: Entry) -> IsolatedRecords:
        chosen = fenced(batch.where(self._places.are(batch, self._aside)))
        for place in self._aside:
            if place not in self._details:  # found by a run before, which came to its end too early
                self._details[place] = self._explain(chosen, place, entry)
        by_content = self._places.by_content(batch)
        parts = self._places.of(batch)
        if by_content:
            chosen = chosen.withColumn(DETAIL, self._detail(parts))
        frame = self._staged.set_aside(chosen, entry, self._of_records(by_content)).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        self._kept.append(frame)
        return IsolatedRecords(frame, frame.count())

    def _of_records(self, by_content: bool) -> Callable[[DataFrame], Column]:
        if by_content:
            return lambda _: F.col(DETAIL)
        names = ("topic", "partition", "offset") if self._table.input.origin == "kafka" else ("file", "row")
        return lambda _: self._detail([f"{SOURCE}.{name}" for name in names])

    def _detail(self, parts: Sequence[str]) -> Column:
        known = [F.lit(value) for place in self._aside for value in (_key(place), self._details[place])]
        key = F.concat_ws("\n", *(F.expr(f"CAST({part} AS STRING)") for part in parts))
        return F.element_at(F.create_map(*known), key)

    def _explain(self, chosen: DataFrame, place: Place, entry: Entry) -> str:
        failure = self._probe(fenced(chosen.where(self._places.are(chosen, [place]))), entry)
        return failure.full if failure is not None else "it raised an error when its batch was written"

    def _probe(self, rows: DataFrame, entry: Entry) -> Failure | None:
        """What an expression raises on these rows; raises itself if something else is wrong."""
        try:
            self._inner.probe(rows, entry)
        except Exception as error:
            failure = data_failure(error)
            if failure is None:
                raise
            return failure
        return None

    def _blamed(self, batch: DataFrame, entry: Entry, error: Exception) -> tuple[Place, ...]:
        """The records that make the batch fail; none if something else does. Raises where a person has to decide."""
        failure = data_failure(error)
        if failure is None or not self._table.max_failed_records:
            return ()
        self._inner.done()
        rest = self._places.without(batch, self._aside) if self._aside else batch
        parts = self._places.of(rest)
        place = F.array(*(F.expr(f"CAST({part} AS STRING)") for part in parts)).alias(PLACE)
        kept = rest.select("*", place, F.monotonically_increasing_id().alias(NUMBER)).persist(
            StorageLevel.MEMORY_AND_DISK
        )
        try:
            return self._search(Numbered(kept), entry, failure)
        finally:
            kept.unpersist()

    def _search(self, records: Numbered, entry: Entry, failure: Failure) -> tuple[Place, ...]:
        def probe(first: int, end: int) -> Failure | None:
            return self._probe(records.between(first, end), entry)

        if probe(0, 0) is not None:  # it fails without any record: so does the definition, whatever the data are
            return ()
        whole = probe(0, records.count)
        if whole is None:
            return ()
        most = self._most - len(self._aside)
        try:
            found = find_failing(records.count, probe, whole, most)
        except TooMany as many:
            first = records.place(many.found[0].number)
            raise self._too_many(records.count, first, many.found[0].failure) from None
        except Together as some:
            first, last = records.place(some.first), records.place(some.end - 1)
            raise self._together(first, last, some.end - some.first, some.failure) from None
        places = records.places([one.number for one in found])
        for one in found:
            if one.number not in places:
                raise self._unnamed(one.failure)
            place = places[one.number]
            if place not in self._details:  # several rows can have come from one record
                self._found.append((place, one.failure.full))
                self._details[place] = one.failure.full
        return tuple(dict.fromkeys(places[one.number] for one in found))

    def _is_committed(self, entry: Entry) -> bool:
        """What was raised after that is no matter of the data."""
        since = -1 if entry.seen is None else entry.seen
        return any(
            commit.entry is not None and (commit.entry.key, commit.entry.kind) == (entry.key, entry.kind)
            for commit in self._log.since(since)
        )

    def _too_many(self, records: int, first: Place, failure: Failure) -> Terminal:
        return Terminal(
            f"more than {self._most} of {records:,} records fail, so the definition is taken to be wrong. The first is "
            f"{shown(first)}: {failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. Correct the definition: try_cast, try_divide and their like give "
            "NULL, which an expectation can reject; or allow more: max_failed_records: 500",
        )

    def _together(self, first: Place, last: Place, count: int, failure: Failure) -> Terminal:
        return Terminal(
            f"no single record fails, but {count:,} records together do, from {shown(first)} to {shown(last)}: "
            f"{failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. An expression over several records raises (a sum that overflows, a "
            "window, a join), or not each time: correct the definition",
        )

    def _unnamed(self, failure: Failure) -> Terminal:
        return Terminal(
            f"a record fails that has no coordinates, so it cannot be set aside: {failure.full}",
            where=self._table.name,
            hint="nothing of the batch was written. Correct the definition, or give the row of the table upstream a "
            f"{SOURCE}",
        )

    def _never_ending(self, entry: Entry) -> Terminal:
        return Terminal(
            f"batch {entry.generation}.{entry.batch} fails on other records each time that it is run",
            where=self._table.name,
            hint="nothing of it was written. The transform depends on the moment or on chance: correct it",
        )


def _key(place: Place) -> str:
    return "\n".join(map(str, place))


# Which row `from: {where: …}` raises on, of a table that sets no rows aside: aggregates, sinks, stream functions.


_ERROR, _PLACE = "__error", "__place"
_LANDED = ("topic", "partition", "offset")
_LONGEST = 200


def row_at_fault(spark: SparkSession, table: TablePlan) -> RowRaised | None:
    """The first one in its sources as they are now; None if their conditions raise on no row."""
    for source in table.delta_sources:
        if source.where is not None and not table.isolates_where:
            rows = spark.read.format("delta").load(source.uri)
            tried = rows.select(_place(rows).alias(_PLACE), error_of(spark, source.where).alias(_ERROR))
            found = tried.where(f"{_ERROR} IS NOT NULL").agg(F.expr(f"min(struct({_PLACE}, {_ERROR}))")).first()
            if found is not None and found[0] is not None:
                place, raised = found[0]
                at = place[:_LONGEST] if isinstance(place, str) else shown(tuple(place))
                return RowRaised(
                    f"from.where raises on a row of {source.label}, {at}: {raised}",
                    where=table.name,
                    hint="nothing of the batch was written. Correct the condition: try_cast, try_divide and their like "
                    "give NULL, which is not met; or make a table of those rows first, which sets such rows aside",
                )
    return None


def _place(rows: DataFrame) -> Column:
    """Its coordinates, or what is in it."""
    if SOURCE in rows.columns and isinstance(rows.schema[SOURCE].dataType, StructType):
        return F.col(SOURCE)
    if {*_LANDED} <= {*rows.columns}:
        return F.struct(*_LANDED)
    return F.to_json(F.struct("*"))
