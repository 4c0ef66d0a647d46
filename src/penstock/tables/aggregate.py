"""Aggregates of a source table: groups recomputed when their rows change, or windows written once when they close."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from penstock.errors import RowRaised
from penstock.formats.base import reason
from penstock.ledger.commit import commit_metadata
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Watermark
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import BATCHES, READ, REJECTED
from penstock.ledger.times import micros, not_after, not_before, time_at
from penstock.ledger.write_target import coalesce_files
from penstock.ledger.writer import PinnedInputs
from penstock.sources.columns import SOURCE, without_tombstones
from penstock.spark.sql_text import literal, quote
from penstock.tables.expectations import as_rejected
from penstock.tables.failing_rows import NUMBER, NumberedRows, data_failure, failure_of, first_failing
from penstock.tables.suppression import TableProcessor

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

# Groups of rows: their windows, keys and metrics, as in a batch query.


START, END = "window_start", "window_end"
_WINDOW = "__window"


def source_at(session: SparkSession, source: VersionsSource, version: int) -> DataFrame:
    rows = session.read.format("delta").option("versionAsOf", version).load(source.uri)
    if source.merged:
        rows = without_tombstones(rows)
    return rows.where(source.where) if source.where is not None else rows


def aggregate_groups(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups of the rows, as in a batch query."""
    metrics = [F.expr(expression).alias(name) for name, expression in plan.metrics.items()]
    result = _windowed(rows, plan).groupBy(*_group_columns(plan)).agg(*metrics)
    return result.select(*_result_columns(plan), *map(quote, plan.metrics))


def groups_of_batch(batch: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have a row in the batch."""
    return _windowed(batch, plan).select(*_group_columns(plan)).distinct().select(*_result_columns(plan))


def _windowed(rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    if plan.time is None:
        return rows
    size, every = (f"{milliseconds} milliseconds" for milliseconds in (plan.size_ms, plan.every_ms))
    return rows.withColumn(_WINDOW, F.window(quote(plan.time), size, every))


def _group_columns(plan: AggregatePlan) -> list[str]:
    return [*map(quote, plan.keys), *([_WINDOW] if plan.time else [])]


def _result_columns(plan: AggregatePlan) -> list[Column]:
    window = [F.col(f"{_WINDOW}.start").alias(START), F.col(f"{_WINDOW}.end").alias(END)] if plan.time else []
    return [*window, *(F.col(quote(key)) for key in plan.keys)]


def group_names(plan: AggregatePlan) -> list[str]:
    return [*([START, END] if plan.time else []), *plan.keys]


# Finding the group and the metric that make an aggregate fail: a sum that overflows, an expression that raises.


def group_at_fault(
    error: Exception, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, table: str
) -> RowRaised | None:
    """The error that names the failing group; None if the data are not to blame. Without `groups`, all groups of the
    rows are searched."""
    failure = data_failure(error)
    if failure is None:
        return None
    try:
        return _locate_group(failure, rows, groups, plan, table)
    except Exception:  # then the error is reported without the group
        return _group_error(failure, "", table)


def _locate_group(
    failure: Failure, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, table: str
) -> RowRaised:
    candidates = groups if groups is not None else groups_of_batch(rows, plan)
    cached = candidates.withColumn(NUMBER, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        numbered = NumberedRows(cached)

        def probe(first: int, end: int, metrics: Mapping[str, str] = plan.metrics) -> Failure | None:
            searched = rows_in_groups(rows, numbered.between(first, end), plan, None)
            result = aggregate_groups(searched, replace(plan, metrics=metrics))
            return failure_of(result.write.format("noop").mode("overwrite").save)

        if (empty_failure := probe(0, 0)) is not None:
            return _group_error(empty_failure, "", table)
        number = first_failing(numbered.count, probe)
        if number is None:
            return _group_error(failure, "", table)
        texts = (f"CAST(`{name}` AS STRING) AS `{name}`" for name in group_names(plan))
        row = numbered.between(number, number + 1).selectExpr(*texts).first()
        assert row is not None
        group = ", ".join(f"{name} = {value}" for name, value in row.asDict().items()) or "of all rows"
        for name, expression in plan.metrics.items():
            if (metric_failure := probe(number, number + 1, {name: expression})) is not None:
                return _group_error(metric_failure, f"in the group {group}, {name}: {expression}: ", table)
        return _group_error(failure, f"in the group {group}: ", table)
    finally:
        cached.unpersist()


def _group_error(failure: Failure, where: str, table: str) -> RowRaised:
    return RowRaised(
        f"an expression of the aggregate raises: {where}{failure.full}",
        where=table,
        hint="nothing was written. An aggregate sets no rows aside: correct the rows that it reads, or the expression: "
        "sum(CAST(amount AS DECIMAL(38,2))), try_sum, try_cast, try_divide",
    )


# Groups of a source table, recomputed from it whenever one of their rows arrives.
#
# There is no state to lose or corrupt: a group's numbers are those of a batch query over the source as of the version
# that the batch has read up to. So late rows of any age, restarts and count(DISTINCT …) need no special care.


_EXISTS = "__there"


class AggregateProcessor(TableProcessor):
    def __init__(self, table: TablePlan, store: Store, suppression: Suppression) -> None:
        assert table.aggregate is not None and table.delta is not None
        self._plan, self._source = table.aggregate, table.delta
        self._table = table.name
        self._log = DeltaLog(store, table.delta.uri, table.delta.label)
        self._suppression = suppression
        self._groups: DataFrame | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.read_list()
        return PinnedInputs()

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        rows = source_at(batch.sparkSession, self._source, parse_version(entry.after[0]).read_up_to)
        rows = self._suppression.drop_suppressed_input(rows)
        try:
            self._write(batch, rows, entry, write_target, files)
        except Exception as error:
            fault = group_at_fault(error, rows, self._groups, self._plan, self._table)
            if fault is None:
                raise
            raise fault from error

    def _write(self, batch: DataFrame, rows: DataFrame, entry: Entry, write_target: WriteTarget, files: int) -> None:
        session, suppression = batch.sparkSession, self._suppression
        if write_target.replaces_all or self._plan.emit == "complete" or self._source_rewritten(entry):
            result = suppression.drop_suppressed(aggregate_groups(rows, self._plan))
            write_target.overwrite(coalesce_files(result, files), entry)
            return
        groups = groups_of_batch(batch, self._plan).persist(StorageLevel.MEMORY_AND_DISK)
        self._groups = groups
        bounds = _bounds(groups, self._plan)
        touched_rows = rows_in_groups(rows, groups, self._plan, bounds)
        current = suppression.drop_suppressed(aggregate_groups(touched_rows, self._plan))
        with commit_metadata(session, entry, idempotent=write_target.idempotent):
            _merge(session, write_target.uri, groups, current, self._plan, bounds)

    def release(self) -> None:
        groups, self._groups = self._groups, None
        self._suppression.release()
        if groups is not None:
            groups.unpersist()

    def _source_rewritten(self, entry: Entry) -> bool:
        """Whether rows counted before were removed or replaced: without a feed their groups are unknown."""
        if self._source.changes:  # the feed has the old row, so its group is among those of the batch
            return False
        before, after = parse_version(entry.before[0]), parse_version(entry.after[0])
        commits = map(self._log.commit, range(before.version, after.read_up_to + 1))
        return any(commit is not None and commit.changes for commit in commits)


def rows_in_groups(
    rows: DataFrame, groups: DataFrame, plan: AggregatePlan, bounds: tuple[str, str] | None
) -> DataFrame:
    """The rows of the source that lie in one of the groups; files that cannot hold any are not read."""
    if plan.time is not None and bounds is not None:
        first, last = bounds
        rows = rows.where(f"{quote(plan.time)} >= {first} AND {quote(plan.time)} < {last}")
    conditions = [f"found.{quote(key)} <=> wanted.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        conditions.append(f"found.{quote(plan.time)} >= wanted.{START} AND found.{quote(plan.time)} < wanted.{END}")
    return rows.alias("found").join(F.broadcast(groups).alias("wanted"), F.expr(" AND ".join(conditions)), "left_semi")


def _bounds(groups: DataFrame, plan: AggregatePlan) -> tuple[str, str] | None:
    """The first and the last time of the windows, as literals; None without windows, or without groups."""
    if plan.time is None:
        return None
    data_type = groups.schema[START].dataType
    row = groups.agg(F.expr(micros(f"min({START})", data_type)), F.expr(micros(f"max({END})", data_type))).first()
    if row is None or row[0] is None:
        return None
    return not_before(int(row[0]), data_type), not_after(int(row[1]), data_type)


def _merge(
    session: SparkSession,
    uri: str,
    groups: DataFrame,
    current: DataFrame,
    plan: AggregatePlan,
    bounds: tuple[str, str] | None,
) -> None:
    """Replaces the groups in the table by their current rows; groups without rows are deleted."""
    names = group_names(plan)
    joined = groups.alias("g").join(
        current.withColumn(_EXISTS, F.lit(True)).alias("n"),
        F.expr(" AND ".join(f"g.{quote(name)} <=> n.{quote(name)}" for name in names)),
        "left",
    )
    source = joined.selectExpr(
        *(f"g.{quote(name)} AS {quote(name)}" for name in names),
        *(f"n.{quote(name)} AS {quote(name)}" for name in plan.metrics),
        f"n.{_EXISTS} IS NOT NULL AS {_EXISTS}",
    )
    within_bounds = [f"t.{START} >= {bounds[0]} AND t.{END} <= {bounds[1]}"] if bounds is not None else []
    match = [*within_bounds, *(f"t.{quote(name)} <=> s.{quote(name)}" for name in names)]
    values = {quote(name): f"s.{quote(name)}" for name in [*names, *plan.metrics]}
    (
        DeltaTable.forPath(session, uri)
        .alias("t")
        .merge(source.alias("s"), " AND ".join(match))
        .whenMatchedDelete(f"NOT s.{_EXISTS}")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert(f"s.{_EXISTS}", values=values)  # type: ignore[arg-type]
        .execute()
    )


# Windows that are written once, when the watermark has passed their end.
#
# The watermark is the latest time read, less the delay that the user allows. It only grows, and the ledger keeps it, so
# that a batch that runs again closes the same windows. A row that arrives after its last window was closed no longer
# changes anything: it goes to quarantine.


LATE, NO_TIME = "late", "no_time"


class FinalWindowsProcessor(TableProcessor):
    def __init__(self, table: TablePlan, quarantine: Quarantine | None, suppression: Suppression) -> None:
        assert table.aggregate is not None and table.delta is not None
        self._table, self._plan, self._source, self._quarantine = table, table.aggregate, table.delta, quarantine
        self._suppression = suppression

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        """Advances the watermark. An existing table is read in no order of time, and a large version in parts: the
        watermark waits until they are read to the end, or rows that were there all along would count as late."""
        newest_row = batch.agg(F.expr(f"max({_time_micros(batch, self._plan)})")).first()
        assert newest_row is not None and self._plan.watermark_ms is not None
        previous = _watermark(last, batch, self._plan)
        read_to = None if newest_row[0] is None else int(newest_row[0]) - self._plan.watermark_ms * 1000
        reached = max((mark for mark in (previous.reached, read_to) if mark is not None), default=None)
        now = reached if parse_version(after[0]).whole else previous.now
        return PinnedInputs(watermark=replace(previous, closed=previous.now, now=now, reached=reached))

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        closing = self._closing_windows(batch, entry)
        if closing is None:
            return
        try:
            write_target.append(coalesce_files(closing, files), entry)
        except Exception as error:
            fault = group_at_fault(error, self._source_rows(batch, entry), None, self._plan, self._table.name)
            if fault is None:
                raise
            raise fault from error

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        closed = _watermark(entry.pins, batch, self._plan).closed
        rejected = F.expr(_rejected_condition(batch, self._plan, closed))
        counts = batch.agg(F.count(F.lit(1)), F.count_if(rejected)).first()
        assert counts is not None
        read, late = int(counts[0]), int(counts[1])
        if late and self._quarantine is not None and not self._quarantine.has(entry):
            self._quarantine.add(self._explained(batch.where(rejected)), entry)
        return {BATCHES: 1, READ: read, REJECTED: late}

    def _explained(self, rows: DataFrame) -> DataFrame:
        """Rejected rows, in the form in which the quarantine adds them."""
        values = ", ".join(quote(name) for name in rows.columns if name != SOURCE)
        source = SOURCE if SOURCE in rows.columns else "CAST(NULL AS STRUCT<file: STRING, row: BIGINT>)"
        time = quote(self._plan.time or "")
        late = f"concat({literal(f'{self._plan.time}: ')}, {time}, ' lies in a window that is closed')"
        no_time = literal(f"{self._plan.time} is null")
        why = f"IF({time} IS NULL, {reason(NO_TIME, no_time)}, {reason(LATE, late)})"
        return as_rejected(rows, {"value": f"to_json(struct({values}))"}, source, why)

    def _source_rows(self, batch: DataFrame, entry: Entry) -> DataFrame:
        rows = source_at(batch.sparkSession, self._source, parse_version(entry.after[0]).read_up_to)
        return self._suppression.drop_suppressed_input(rows)

    def _closing_windows(self, batch: DataFrame, entry: Entry) -> DataFrame | None:
        """The windows that end after the previous batch's watermark and not after this batch's; None if there are
        none."""
        plan, marks = self._plan, _watermark(entry.pins, batch, self._plan)
        closed, watermark = marks.closed, marks.now
        if watermark is None or watermark == closed:
            return None
        assert plan.size_ms is not None
        rows = self._source_rows(batch, entry)
        # The bounds are literals, so that files whose times lie outside them are not read.
        time, time_type = quote(plan.time or ""), _time_type(rows, plan)
        rows = rows.where(f"{time} < {not_after(watermark, time_type)}")
        if closed is not None:
            rows = rows.where(f"{time} >= {not_before(closed - plan.size_ms * 1000, time_type)}")
        result = self._suppression.drop_suppressed(aggregate_groups(rows, plan))
        windows = result.where(f"{END} <= {time_at(watermark, time_type)}")
        return windows if closed is None else windows.where(f"{END} > {time_at(closed, time_type)}")


def _watermark(pins: Pins, rows: DataFrame, plan: AggregatePlan) -> Watermark:
    """The watermark of the pins. Times without a zone are measured by their own clock; earlier versions measured them
    as instants in the session's time zone, and their marks are converted."""
    marks = pins.watermark or Watermark()
    if marks.local or not isinstance(_time_type(rows, plan), TimestampNTZType):
        return marks
    closed, now, reached = (
        None if mark is None else _as_local(mark, rows.sparkSession)
        for mark in (marks.closed, marks.now, marks.reached)
    )
    return Watermark(closed, now, reached, local=True)


def _as_local(mark: int, session: SparkSession) -> int:
    expression = micros(f"CAST(timestamp_micros({mark}L) AS TIMESTAMP_NTZ)", TimestampNTZType())
    row = session.sql(f"SELECT {expression}").first()
    assert row is not None
    return int(row[0])


def _time_type(rows: DataFrame, plan: AggregatePlan) -> DataType:
    """The type of the windows' ends."""
    local = isinstance(rows.schema[plan.time or ""].dataType, TimestampNTZType)
    return TimestampNTZType() if local else TimestampType()


def _time_micros(rows: DataFrame, plan: AggregatePlan) -> str:
    time, time_type = quote(plan.time or ""), _time_type(rows, plan)
    return micros(time if isinstance(time_type, TimestampNTZType) else f"CAST({time} AS TIMESTAMP)", time_type)


def _rejected_condition(rows: DataFrame, plan: AggregatePlan, closed: int | None) -> str:
    """The condition for rows without a time and rows whose last window was closed before the batch."""
    assert plan.size_ms is not None and plan.every_ms is not None
    no_time = f"{quote(plan.time or '')} IS NULL"
    if closed is None:
        return no_time
    size, every = plan.size_ms * 1000, plan.every_ms * 1000
    time = _time_micros(rows, plan)
    last_end = f"{time} - pmod({time}, {every}L) + {size}L"
    return f"coalesce({no_time} OR {last_end} <= {closed}L, true)"
