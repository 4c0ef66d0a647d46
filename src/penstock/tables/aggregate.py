"""Groups of a source table: recomputed when one of their rows arrives, or emitted once when their window closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from penstock.errors import RowRaised
from penstock.formats.base import reason
from penstock.ledger.commit import carrying
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Watermark
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import BATCHES, READ, REJECTED
from penstock.ledger.times import micros, not_after, not_before, time_at
from penstock.ledger.write_target import in_files
from penstock.ledger.writer import BatchProcessor, PinnedInputs
from penstock.plan.sources import DeltaSource
from penstock.sources.columns import SOURCE, living
from penstock.spark.sql_text import literal, quote
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW
from penstock.tables.failing_rows import NUMBER, Numbered, data_failure, first_failing

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import VersionsSource
    from penstock.plan.stages import AggregatePlan
    from penstock.storage.stores import Store
    from penstock.tables.failing_rows import Failure
    from penstock.tables.quarantine import Quarantine
    from penstock.tables.suppression import Suppression

# Groups of rows: their windows, their keys, their metrics, as a batch query has them.


START, END = "window_start", "window_end"
_WINDOW = "__window"


def source_at(session: SparkSession, source: VersionsSource, version: int) -> DataFrame:
    rows = session.read.format("delta").option("versionAsOf", version).load(source.uri)
    if source.merged:
        rows = living(rows)
    return rows.where(source.where) if source.where is not None else rows


def computed(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups of the rows, as a batch query has them."""
    metrics = [F.expr(expression).alias(name) for name, expression in plan.metrics.items()]
    made = _windowed(rows, plan).groupBy(*_group_columns(plan)).agg(*metrics)
    return made.select(*_named(plan), *map(quote, plan.metrics))


def touched(batch: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have a row in the batch."""
    return _windowed(batch, plan).select(*_group_columns(plan)).distinct().select(*_named(plan))


def _windowed(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    if plan.time is None:
        return rows
    size, every = (f"{milliseconds} milliseconds" for milliseconds in (plan.size_ms, plan.every_ms))
    return rows.withColumn(_WINDOW, F.window(quote(plan.time), size, every))


def _group_columns(plan: AggregatePlan) -> list[str]:
    return [*map(quote, plan.keys), *([_WINDOW] if plan.time else [])]


def _named(plan: AggregatePlan) -> list[Column]:
    window = [F.col(f"{_WINDOW}.start").alias(START), F.col(f"{_WINDOW}.end").alias(END)] if plan.time else []
    return [*window, *(F.col(quote(key)) for key in plan.keys)]


def group_names(plan: AggregatePlan) -> list[str]:
    return [*([START, END] if plan.time else []), *plan.keys]


# Which group of an aggregate makes it fail, and in which metric: a sum that overflows, an expression that raises.


Within = Callable[[DataFrame, DataFrame], DataFrame]
"""Of rows, those that lie in some groups."""


def group_at_fault(
    error: Exception, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, within: Within, table: str
) -> RowRaised | None:
    """None if the data are not to blame. Without `groups` all that the rows have are looked at."""
    failure = data_failure(error)
    if failure is None:
        return None
    try:
        return _found(failure, rows, groups, plan, within, table)
    except Exception:  # it is told without the group then
        return _told(failure, "", table)


def _found(
    failure: Failure, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, within: Within, table: str
) -> RowRaised:
    some = groups if groups is not None else touched(rows, plan)
    kept = some.withColumn(NUMBER, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        numbered = Numbered(kept)

        def probe(first: int, end: int, metrics: Mapping[str, str] = plan.metrics) -> Failure | None:
            made = computed(within(rows, numbered.between(first, end)), replace(plan, metrics=metrics))
            return _raised(made)

        if (without := probe(0, 0)) is not None:
            return _told(without, "", table)
        number = first_failing(numbered.count, probe)
        if number is None:
            return _told(failure, "", table)
        shown = numbered.between(number, number + 1).selectExpr(
            *(f"CAST(`{name}` AS STRING) AS `{name}`" for name in group_names(plan))
        )
        row = shown.first()
        assert row is not None
        group = ", ".join(f"{name} = {value}" for name, value in row.asDict().items()) or "of all rows"
        for name, expression in plan.metrics.items():
            if (raised := probe(number, number + 1, {name: expression})) is not None:
                return _told(raised, f"in the group {group}, {name}: {expression}: ", table)
        return _told(failure, f"in the group {group}: ", table)
    finally:
        kept.unpersist()


def _raised(made: DataFrame) -> Failure | None:
    try:
        made.write.format("noop").mode("overwrite").save()
    except Exception as error:
        failure = data_failure(error)
        if failure is None:
            raise
        return failure
    return None


def _told(failure: Failure, where: str, table: str) -> RowRaised:
    return RowRaised(
        f"an expression of the aggregate raises: {where}{failure.full}",
        where=table,
        hint="nothing was written. An aggregate sets no rows aside: correct the rows that it reads, or the expression: "
        "sum(CAST(amount AS DECIMAL(38,2))), try_sum, try_cast, try_divide",
    )


# Groups of a source table, recomputed from it whenever one of their rows arrives.
#
# There is no state that could be lost or go wrong: a group's numbers are those of a batch query over the source as of
# the version up to which the batch has read. So late rows of any age, restarts and count(DISTINCT …) are all the
# same.


_THERE = "__there"


class AggregateProcessor(BatchProcessor):
    def __init__(self, table: TablePlan, store: Store, suppression: Suppression) -> None:
        assert table.aggregate is not None and table.delta is not None
        self._plan, self._source = table.aggregate, table.delta
        self._table = table.name
        self._log = DeltaLog(store, table.delta.uri, table.delta.label)
        self._suppression = suppression
        self._groups: DataFrame | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.look()
        return PinnedInputs()

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        rows = source_at(batch.sparkSession, self._source, parse_version(entry.after[0]).read_up_to)
        rows = self._suppression.source(rows)
        try:
            self._write(batch, rows, entry, into, files)
        except Exception as error:
            found = group_at_fault(error, rows, self._groups, self._plan, self._rows_of, self._table)
            if found is None:
                raise
            raise found from error

    def _rows_of(self, rows: DataFrame, groups: DataFrame) -> DataFrame:
        return within(rows, groups, self._plan, None)

    def _write(self, batch: DataFrame, rows: DataFrame, entry: Entry, into: WriteTarget, files: int) -> None:
        session = batch.sparkSession
        suppression = self._suppression
        if into.anew or self._plan.emit == "complete" or self._changed(entry):
            into.overwrite(in_files(suppression.own(computed(rows, self._plan)), files), entry)
            return
        groups = touched(batch, self._plan).persist(StorageLevel.MEMORY_AND_DISK)
        self._groups = groups
        bounds = _bounds(groups, self._plan)
        now = suppression.own(computed(within(rows, groups, self._plan, bounds), self._plan))
        with carrying(session, entry, idempotent=into.idempotent):
            _merge(session, into.uri, groups, now, self._plan, bounds)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        return {}

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def done(self) -> None:
        groups, self._groups = self._groups, None
        self._suppression.let_go()
        if groups is not None:
            groups.unpersist()

    def _changed(self, entry: Entry) -> bool:
        """Rows that were counted before are gone or replaced: nobody says which groups they were in."""
        if self._source.changes:  # the feed has the row as it was: its group is among those of the batch
            return False
        before, after = parse_version(entry.before[0]), parse_version(entry.after[0])
        for version in range(before.version, after.read_up_to + 1):
            commit = self._log.commit(version)
            if commit is not None and commit.changes:
                return True
        return False


def within(rows: DataFrame, groups: DataFrame, plan: AggregatePlan, bounds: tuple[str, str] | None) -> DataFrame:
    """The rows of the source that lie in one of the groups; files that cannot hold one are not read."""
    if plan.time is not None and bounds is not None:
        first, last = bounds
        rows = rows.where(f"{quote(plan.time)} >= {first} AND {quote(plan.time)} < {last}")
    keys = [f"found.{quote(key)} <=> wanted.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        keys.append(f"found.{quote(plan.time)} >= wanted.{START} AND found.{quote(plan.time)} < wanted.{END}")
    return rows.alias("found").join(F.broadcast(groups).alias("wanted"), F.expr(" AND ".join(keys)), "left_semi")


def _bounds(groups: DataFrame, plan: AggregatePlan) -> tuple[str, str] | None:
    """The first and the last time of the windows, as literals; None without windows, or without groups."""
    if plan.time is None:
        return None
    kind = groups.schema[START].dataType
    found = groups.agg(F.expr(micros(f"min({START})", kind)), F.expr(micros(f"max({END})", kind))).first()
    if found is None or found[0] is None:
        return None
    return not_before(int(found[0]), kind), not_after(int(found[1]), kind)


def _merge(
    session: SparkSession,
    uri: str,
    groups: DataFrame,
    now: DataFrame,
    plan: AggregatePlan,
    bounds: tuple[str, str] | None,
) -> None:
    """The groups as they are now in place of what the table says of them; those without rows go."""
    names = group_names(plan)
    wanted = groups.alias("g").join(
        now.withColumn(_THERE, F.lit(True)).alias("n"),
        F.expr(" AND ".join(f"g.{quote(name)} <=> n.{quote(name)}" for name in names)),
        "left",
    )
    source = wanted.selectExpr(
        *(f"g.{quote(name)} AS {quote(name)}" for name in names),
        *(f"n.{quote(name)} AS {quote(name)}" for name in plan.metrics),
        f"n.{_THERE} IS NOT NULL AS {_THERE}",
    )
    match = [*_target_bounds(bounds), *(f"t.{quote(name)} <=> s.{quote(name)}" for name in names)]
    values = {quote(name): f"s.{quote(name)}" for name in [*names, *plan.metrics]}
    (
        DeltaTable.forPath(session, uri)
        .alias("t")
        .merge(source.alias("s"), " AND ".join(match))
        .whenMatchedDelete(f"NOT s.{_THERE}")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert(f"s.{_THERE}", values=values)  # type: ignore[arg-type]
        .execute()
    )


def _target_bounds(bounds: tuple[str, str] | None) -> Iterator[str]:
    if bounds is not None:
        yield f"t.{START} >= {bounds[0]} AND t.{END} <= {bounds[1]}"


# Windows that appear once, when a watermark has passed their end.
#
# The watermark is the latest time that was read, less the delay that the user grants; it only grows, and stands in
# the ledger, so that a batch that runs again closes the same windows. A row that comes when its last window is closed
# changes nothing any more: it is kept aside, in quarantine.


LATE, NO_TIME = "late", "no_time"


class FinalWindowsProcessor(BatchProcessor):
    def __init__(self, table: TablePlan, quarantine: Quarantine | None, suppression: Suppression) -> None:
        assert table.aggregate is not None and table.delta is not None
        self._table, self._plan, self._source, self._quarantine = table, table.aggregate, table.delta, quarantine
        self._suppression = suppression

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        """A table that is there already is read in no order of time, and a large version in parts: the watermark waits
        until they are read to their end, or rows that were there all along would come too late."""
        newest = batch.agg(F.expr(f"max({_micros(batch, self._plan)})")).first()
        assert newest is not None and self._plan.watermark_ms is not None
        before = _marks(last, batch, self._plan)
        read = None if newest[0] is None else int(newest[0]) - self._plan.watermark_ms * 1000
        reached = max((mark for mark in (before.reached, read) if mark is not None), default=None)
        now = reached if parse_version(after[0]).whole else before.now
        return PinnedInputs(watermark=replace(before, closed=before.now, now=now, reached=reached))

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        closing = closing_windows(batch, self._source, self._plan, entry, self._suppression)
        if closing is None:
            return
        try:
            into.append(in_files(closing, files), entry)
        except Exception as error:
            rows = source_at(batch.sparkSession, self._source, parse_version(entry.after[0]).read_up_to)
            rows_of = partial(within, plan=self._plan, bounds=None)
            found = group_at_fault(error, self._suppression.source(rows), None, self._plan, rows_of, self._table.name)
            if found is None:
                raise
            raise found from error

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
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
    rows = suppression.source(source_at(batch.sparkSession, source, parse_version(entry.after[0]).read_up_to))
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
