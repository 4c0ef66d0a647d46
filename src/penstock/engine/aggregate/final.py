"""Windows that appear once, when a watermark has passed their end.

The watermark is the latest time that was read, less the delay that the user grants; it only grows, and stands in the
ledger, so that a batch that runs again closes the same windows. A row that comes when its last window is closed changes
nothing any more: it is kept aside, in quarantine.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampNTZType, TimestampType

from penstock.engine.aggregate.fault import group_at_fault
from penstock.engine.aggregate.groups import END, computed, source_at
from penstock.engine.aggregate.recomputed import within
from penstock.engine.delta.version import parse
from penstock.engine.forget.suppression import Suppression
from penstock.engine.identifiers import quote
from penstock.engine.protocol.entry import Entry, Pins, Watermark
from penstock.engine.protocol.fates import BATCHES, READ, REJECTED, Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into, in_files
from penstock.engine.quarantine import Quarantine
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import literal, reason
from penstock.engine.stages.rejects import FAILED, NOTHING_FAILED, RAW
from penstock.engine.times import micros, not_after, not_before, time_at
from penstock.plan.model import DeltaSource, TablePlan
from penstock.plan.stages import AggregatePlan

LATE, NO_TIME = "late", "no_time"


class Final:
    def __init__(self, table: TablePlan, quarantine: Quarantine | None, suppression: Suppression) -> None:
        assert table.aggregate is not None and isinstance(table.source, DeltaSource)
        self._table, self._plan, self._source, self._quarantine = table, table.aggregate, table.source, quarantine
        self._suppression = suppression

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        """A table that is there already is read in no order of time, and a large version in parts: the watermark waits
        until they are read to their end, or rows that were there all along would come too late."""
        newest = batch.agg(F.expr(f"max({_micros(batch, self._plan)})")).first()
        assert newest is not None and self._plan.watermark_ms is not None
        before = _marks(last, batch, self._plan)
        read = None if newest[0] is None else int(newest[0]) - self._plan.watermark_ms * 1000
        reached = max((mark for mark in (before.reached, read) if mark is not None), default=None)
        now = reached if parse(after[0]).whole else before.now
        return Pinned(watermark=replace(before, closed=before.now, now=now, reached=reached))

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        closing = closing_windows(batch, self._source, self._plan, entry, self._suppression)
        if closing is None:
            return
        try:
            into.append(in_files(closing, files), entry)
        except Exception as error:
            rows = source_at(batch.sparkSession, self._source, parse(entry.after[0]).read_up_to)
            rows_of = partial(within, plan=self._plan, bounds=None)
            found = group_at_fault(error, self._suppression.source(rows), None, self._plan, rows_of, self._table.name)
            if found is None:
                raise
            raise found from error

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        closed = _marks(entry.pins, batch, self._plan).closed
        counted = batch.agg(F.count(F.lit(1)), F.count_if(F.expr(_aside(batch, self._plan, closed)))).first()
        assert counted is not None
        read, late = int(counted[0]), int(counted[1])
        if late and self._quarantine is not None and not self._quarantine.has(entry):
            self._quarantine.add(self._kept_aside(batch, entry.pins), entry)
        return {BATCHES: 1, READ: read, REJECTED: late}

    def done(self) -> None:
        pass

    def _kept_aside(self, batch: DataFrame, pins: Pins) -> DataFrame:
        rows = batch.where(_aside(batch, self._plan, _marks(pins, batch, self._plan).closed))
        values = ", ".join(quote(name) for name in batch.columns if name != SOURCE)
        raw = {**dict.fromkeys(RAW, "NULL"), "value": f"to_json(struct({values}))"}
        source = SOURCE if SOURCE in batch.columns else "CAST(NULL AS STRUCT<file: STRING, row: BIGINT>)"
        time = quote(self._plan.time or "")
        late = reason(LATE, f"concat({literal(f'{self._plan.time}: ')}, {time}, ' lies in a window that is closed')")
        without = reason(NO_TIME, literal(f"{self._plan.time} is null"))
        return rows.selectExpr(
            *(f"CAST({raw[name]} AS {kind}) AS {name}" for name, kind in RAW.items()),
            f"{source} AS {SOURCE}",
            f"{NOTHING_FAILED} AS {FAILED}",
            f"IF({time} IS NULL, {without}, {late}) AS why",
        )


def closing_windows(
    batch: DataFrame, source: DeltaSource, plan: AggregatePlan, entry: Entry, suppression: Suppression
) -> DataFrame | None:
    """The windows that end after the watermark of the batch before and not after that of this one."""
    marks = _marks(entry.pins, batch, plan)
    closed, watermark = marks.closed, marks.now
    if watermark is None or watermark == closed:
        return None
    assert plan.size_ms is not None
    rows = suppression.source(source_at(batch.sparkSession, source, parse(entry.after[0]).read_up_to))
    # Files whose times lie outside are not read: the bounds are literals.
    time, kind = quote(plan.time or ""), _kind(rows, plan)
    rows = rows.where(f"{time} < {not_after(watermark, kind)}")
    if closed is not None:
        rows = rows.where(f"{time} >= {not_before(closed - plan.size_ms * 1000, kind)}")
    windows = suppression.own(computed(rows, plan)).where(f"{END} <= {time_at(watermark, kind)}")
    return windows if closed is None else windows.where(f"{END} > {time_at(closed, kind)}")


def _marks(pins: Pins, rows: DataFrame, plan: AggregatePlan) -> Watermark:
    """Of times without a zone it counts by their own clock. Earlier versions counted these as instants in the zone of
    the session: their marks are converted."""
    marks = pins.watermark or Watermark()
    if marks.local or not isinstance(_kind(rows, plan), TimestampNTZType):
        return marks
    closed, now, reached = (
        None if mark is None else _local(mark, rows.sparkSession) for mark in (marks.closed, marks.now, marks.reached)
    )
    return Watermark(closed, now, reached, local=True)


def _local(mark: int, session: SparkSession) -> int:
    asked = micros(f"CAST(timestamp_micros({mark}L) AS TIMESTAMP_NTZ)", TimestampNTZType())
    found = session.sql(f"SELECT {asked}").first()
    assert found is not None
    return int(found[0])


def _kind(rows: DataFrame, plan: AggregatePlan) -> DataType:
    """Of the windows' ends."""
    local = isinstance(rows.schema[plan.time or ""].dataType, TimestampNTZType)
    return TimestampNTZType() if local else TimestampType()


def _micros(rows: DataFrame, plan: AggregatePlan) -> str:
    time, kind = quote(plan.time or ""), _kind(rows, plan)
    return micros(time if isinstance(kind, TimestampNTZType) else f"CAST({time} AS TIMESTAMP)", kind)


def _aside(rows: DataFrame, plan: AggregatePlan, closed: int | None) -> str:
    """Rows without a time, and those whose last window was closed before the batch."""
    assert plan.size_ms is not None and plan.every_ms is not None
    without = f"{quote(plan.time or '')} IS NULL"
    if closed is None:
        return without
    size, every = plan.size_ms * 1000, plan.every_ms * 1000
    time = _micros(rows, plan)
    last_end = f"{time} - pmod({time}, {every}L) + {size}L"
    return f"coalesce({without} OR {last_end} <= {closed}L, true)"
