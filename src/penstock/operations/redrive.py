"""Rejected rows run again with the current definition: those that pass land once and leave the quarantine."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import Terminal, Transient, UsageError
from penstock.ledger.commit import append_entry, commit_metadata, confirm, must_confirm
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import REPLACING_KINDS, Counts, Pins
from penstock.ledger.head import advance, read_head, refuse_foreign_changes
from penstock.ledger.row_counts import NOT_WRITTEN, REJECTED, RESHAPED, add_counts, unexplained
from penstock.ledger.write_target import DeltaTableTarget
from penstock.operations.quarantine_rows import quarantine_exists, quarantine_log, tables_with_quarantine
from penstock.operations.replay_plan import open_table_session
from penstock.operations.staleness import refuse_open_work
from penstock.operations.steps import FinishRedrive, RunAgain
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import FILE, ROW, SOURCE, with_own_source
from penstock.sources.files.format import Survey
from penstock.sources.files.listing import list_files
from penstock.sources.files.manifest import Manifest
from penstock.sources.files.source import FilesReader
from penstock.spark.expressions import selected
from penstock.spark.sql_text import literal, quote
from penstock.storage.locks import acquire_commit
from penstock.tables.columns import settle_columns
from penstock.tables.files import extend_by_rejected_lines, staged_table, with_schema
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.kinds import StagedTable, resolve_table
from penstock.tables.merge.merge import table_schema
from penstock.tables.merge.tombstones import tombstone_table
from penstock.tables.new_fields import GrowingTableProcessor, adds_new_fields, stages_for
from penstock.tables.staged import MOST_IN_FILE, StagedProcessor
from penstock.tables.suppression import SuppressingRows, Suppression
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.pipeline import StagedPipeline
    from penstock.tables.session import TableSession


@dataclass(frozen=True)
class Runnable:
    processor: IsolatingProcessor
    rejected: DataFrame
    """Rows of the quarantine."""
    make_batch: Callable[[DataFrame], DataFrame]
    """Turns rows of the quarantine into the batch that the table's function is given."""
    untouched: DataFrame | None = None
    """Requested rows that cannot be run again: they stay as they are."""


_COORDINATES = ("topic", "partition", "offset")
_KAFKA_RECORD = {
    "key": "coalesce(key_binary, CAST(key AS BINARY))",
    "value": "coalesce(value_binary, CAST(value AS BINARY))",
    **{name: f"{SOURCE}.{name}" for name in _COORDINATES},
    "timestamp": "kafka_timestamp",
    "timestampType": "0",
    "headers": "headers",
}
"""A record as Kafka's connector gives it."""


def refuse_kind(table: TablePlan) -> None:
    """UsageError where rejected rows cannot be run again."""
    if not table.may_reject:
        raise UsageError(
            f"{table.name} rejects nothing, so it has no quarantine", hint="`penstock dlq list` names them"
        )
    why = None
    if table.sink is not None:
        why = "what could not be sent is of a state of the table that may have changed since"
    elif table.aggregate is not None:
        why = "late rows belong to windows that are closed"
    elif not table.input.stable or (table.write.merge is None and not table.write.source):
        why = "its rows do not say where they came from"
    if why is not None:
        raise UsageError(
            f"rejected rows of {table.name} cannot be run again by themselves: {why}",
            hint=f"`penstock replay {table.name}` rebuilds the whole table with its current definition"
            if table.sink is None
            else "correct the rows in the table that it follows: they are sent again",
        )


def as_batch(rejected: DataFrame, table: TablePlan) -> DataFrame:
    """The batch of these rows of the quarantine, each record once."""
    records = rejected.dropDuplicates([SOURCE])
    if table.topics is not None:
        return records.selectExpr(*(f"{value} AS `{name}`" for name, value in _KAFKA_RECORD.items()))
    if table.input.raw:
        raw = records.selectExpr(
            *(f"{_raw_expression(name, table)} AS {quote(column)}" for name, column in table.input.raw.items())
        )
        return _select_source_rows(raw, table)
    assert table.delta is not None
    # Their text in the quarantine is not exact, so they are read from the table that they came from.
    upstream = rejected.sparkSession.read.format("delta").load(table.delta.uri)
    return _select_source_rows(upstream.join(records.select(SOURCE), SOURCE, "left_semi"), table)


def _select_source_rows(rows: DataFrame, table: TablePlan) -> DataFrame:
    """The rows that the table reads: `where` may have raised on a row before, and exclude it by now."""
    where = table.source.condition
    return rows if where is None else selected(rows, where)


def _raw_expression(name: str, table: TablePlan) -> str:
    if name in _COORDINATES:
        return f"{SOURCE}.{name}"
    if table.payload == "binary" or "value_binary" not in table.input.raw:
        return {"key": "key_binary", "value": "value_binary"}.get(name, name)
    return name


# Rejected lines of files, read again from their files.
#
# If a file was removed or changed since it was listed, its lines can no longer be read as they were: they stay in
# quarantine. So do files that could not be read at all: once corrected, such a file is landed under a new name.


_FILES_A_TASK = 100


def files_runnable(work: TableSession, rejected: DataFrame) -> Runnable:
    reader = work.source
    assert isinstance(reader, FilesReader)
    unchanged_files = _unchanged_files(work, reader, rejected)
    can_run_again = F.coalesce(
        F.col(f"{SOURCE}.row").isNotNull() & F.col(f"{SOURCE}.file").isin(unchanged_files), F.lit(False)
    )
    choice = extend_by_rejected_lines(
        reader, unchanged_files, reader.schema.require(), partial(_lines, rejected=rejected.where(can_run_again))
    )
    choice = replace(choice, stops_at_new_fields=False)
    survey = reader.schema.format.survey(unchanged_files, StructType()) if unchanged_files else Survey()
    stages = staged_table(work.table, reader, choice, survey)
    rows = reader.schema.format.rows(unchanged_files, choice, survey, max(1, len(unchanged_files) // _FILES_A_TASK))
    lookups = Lookups(work.table, work.store)
    if reader.files.new_fields == "add":
        pins = Pins(0, "", lookups.newest())
        batch = stages.run(rows, pins, lookups.read(work.spark, pins))
        settle_columns(work.spark, work.table, table_schema(work.table, batch.rows))
    suppression = Suppression(work.table, work.store)
    return Runnable(
        _processor(work, with_schema(work.table, choice), stages, lookups, suppression),
        rejected.where(can_run_again),
        partial(_lines, rows),
        rejected.where(~can_run_again),
    )


def _processor(
    work: TableSession, table: TablePlan, stages: StagedPipeline, lookups: Lookups, suppression: Suppression
) -> IsolatingProcessor:
    tombstones = tombstone_table(work.spark, work.store, work.table, idempotent=work.idempotent)
    staged = StagedProcessor(table, stages, lookups, None, suppression, tombstones)
    return IsolatingProcessor(SuppressingRows(staged, suppression), staged, work.table, work.log, redriving=True)


def _lines(rows: DataFrame, rejected: DataFrame) -> DataFrame:
    """The lines that have the coordinates of rejected rows."""
    coordinates = rejected.selectExpr(f"{SOURCE}.file AS __at", f"{SOURCE}.row AS __number").distinct()
    same_line = (F.col(FILE) == F.col("__at")) & (F.col(ROW) == F.col("__number"))
    return rows.join(coordinates, same_line, "left_semi")


def _unchanged_files(work: TableSession, reader: FilesReader, rejected: DataFrame) -> Sequence[str]:
    file_rows = rejected.where(f"{SOURCE}.row IS NOT NULL").select(f"{SOURCE}.file").distinct().collect()
    names = [str(row[0]) for row in file_rows if row[0] is not None]
    if not names:
        return []
    manifest = Manifest(work.spark, work.store, reader.files.uri, work.table.name)
    recorded_files = manifest.known(names, manifest.newest())
    current_files = {file.name: file for file in list_files(work.spark, reader.files, work.table.name).files}
    return sorted(name for name in names if name in current_files and current_files[name] == recorded_files.get(name))


# The rows of a quarantine that are being redriven: they carry the redrive's id from one commit to another.


MARK = "redrive"


class RedriveMarks:
    def __init__(self, spark: SparkSession, store: Store, table: TablePlan) -> None:
        """UsageError if the table has no quarantine."""
        self._session, self.uri = spark.newSession(), quarantine_of(table.name, table.uri).uri
        self._log = quarantine_log(table, store)
        if not self._log.versions():
            raise UsageError(f"{table.name} has no quarantine", hint="nothing of it was ever rejected")
        if MARK not in self.rows().columns:
            self._session.sql(f"ALTER TABLE delta.{quote(self.uri)} ADD COLUMNS ({MARK} STRING)")

    def rows(self) -> DataFrame:
        return self._session.read.format("delta").load(self.uri)

    def open_redrive(self) -> str | None:
        """The id of a redrive that was cut off; None if there is none."""
        row = self.rows().where(f"{MARK} IS NOT NULL").agg(F.max(MARK)).first()
        return None if row is None or row[0] is None else str(row[0])

    def marked_rows(self, redrive_id: str) -> DataFrame:
        return self.rows().where(f"{MARK} = {literal(redrive_id)}")

    def mark(self, redrive_id: str, condition: str | None) -> int:
        """Returns how many rows it marked, without those that another process marked first on a store without locks."""
        unmarked = f"{MARK} IS NULL AND ({condition or 'true'})"
        with self._carry_ledger():
            DeltaTable.forPath(self._session, self.uri).update(unmarked, {MARK: F.lit(redrive_id)})
        return self.marked_rows(redrive_id).count()

    def settle(self, redrive_id: str, remaining: DataFrame, *, files: int = 1) -> None:
        """Replaces the marked rows by `remaining`, which has the columns of the quarantine, in one commit."""
        unmarked = remaining.withColumn(MARK, F.lit(None).cast("string")).select(*map(quote, self.rows().columns))
        rows = unmarked.coalesce(1) if files == 1 else unmarked.repartition(files)
        writer = rows.write.format("delta").mode("overwrite")
        constraint_check = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
        self._session.conf.set(constraint_check, "false")  # the remaining rows lose their mark
        try:
            with self._carry_ledger() as (head, entry):
                writer.option("replaceWhere", f"{MARK} = {literal(redrive_id)}").save(self.uri)
            must_confirm(head, self._log, entry)
        finally:
            self._session.conf.unset(constraint_check)

    @contextmanager
    def _carry_ledger(self) -> Iterator[tuple[LedgerHead, Entry]]:
        """Repeats the quarantine's last entry in the commit: a batch that it lacks must not seem to be there."""
        head = read_head(self._log)
        assert head is not None
        entry = head.entry.with_new_id(kind="redrive", counts=head.counts, seen=head.version, pending={})
        with commit_metadata(self._session, entry, idempotent=False):
            yield head, entry


PARTLY = "partly_landed"
_PARTLY_DETAIL = (
    "rows of this record are in the table already, or of another with its place, if the topic was recreated; so it "
    "cannot be run again alone: replay the table"
)
_WHY = "__why"


def remaining_rows(
    rejected: DataFrame,
    rejected_again: DataFrame,
    entry: Entry,
    ambiguous: DataFrame,
    landed: DataFrame | None,
) -> DataFrame:
    """The rows that stay. `rejected_again` has the records that failed again, with `why`. `ambiguous` are coordinates
    that the table had before: of another row of the record, or of another record of a topic that was recreated since.
    They were not run, and a row that is not known to have landed stays. `landed` is set if the redrive was cut off: the
    coordinates that the table has now; rows in none of these stay as they were."""
    reasons = rejected_again.groupBy(SOURCE).agg(F.first("why").alias(_WHY))
    with_reasons = rejected.join(reasons, SOURCE)
    remaining = _with_reason(with_reasons, F.col(f"{_WHY}.reason"), F.col(f"{_WHY}.detail"), entry).drop(_WHY)
    partly_landed = rejected.join(ambiguous, SOURCE)
    remaining = remaining.unionByName(_with_reason(partly_landed, F.lit(PARTLY), F.lit(_PARTLY_DETAIL), entry))
    if landed is not None:
        resolved = landed.union(ambiguous).distinct()
        unresolved = rejected.join(resolved, SOURCE, "left_anti").join(reasons, SOURCE, "left_anti")
        remaining = remaining.unionByName(unresolved)
    return remaining


def _with_reason(rows: DataFrame, reason: object, detail: object, entry: Entry) -> DataFrame:
    return rows.withColumns(
        {
            "error_reason": reason,  # type: ignore[dict-item]
            "error_detail": detail,  # type: ignore[dict-item]
            "error_timestamp": F.expr(f"timestamp_millis({entry.pins.time_ms}L)"),
            "definition": F.lit(entry.pins.definition),
        }
    )


# A redrive makes four commits: it marks the rows in the quarantine, appends those that pass to the table, records their
# counts in a ledger entry, and settles the marked rows. If it is killed in between, the next redrive finds the marks
# and finishes it first. All under the table's commit lock.


_COUNTED_SUFFIX = ", counted"


@dataclass(frozen=True)
class RedriveResult:
    id: str
    rows: int
    """Requested rows of the quarantine."""
    landed: int
    left: int
    """Rows that left the quarantine: landed, dropped, or already in the table."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Rows that stay, by reason."""


def redrive(work: TableSession, condition: str | None) -> list[RedriveResult]:
    """Redrives the rows that meet the condition, all if it is None; a redrive that was cut off is finished first."""
    refuse_kind(work.table)
    acquire_commit(work.lock, work.table.name)
    try:
        marks = RedriveMarks(work.spark, work.store, work.table)
        results: list[RedriveResult] = []
        failure: Exception | None = None
        if (cut_off := marks.open_redrive()) is not None:
            try:
                results.append(_run_or_leave(work, marks, cut_off, marks.marked_rows(cut_off).count(), since=-1))
            except Exception as error:  # raised after the requested rows have been run
                failure = error
        newest, redrive_id = max(work.log.versions(), default=-1), uuid.uuid4().hex
        if rows := marks.mark(redrive_id, condition):
            results.append(_run_or_leave(work, marks, redrive_id, rows, since=newest))
        if failure is not None:
            raise failure
        return results
    finally:
        work.lock.release()


def _run_or_leave(work: TableSession, marks: RedriveMarks, redrive_id: str, rows: int, *, since: int) -> RedriveResult:
    """On failure, unmarks the rows unless some have landed: left marked, they would come before every later redrive.
    If even that fails, the next redrive does it. `since` is a version of the table from before the redrive got its id:
    all its commits are later."""
    try:
        return _run(work, marks, redrive_id, rows, since)
    except Exception:
        with suppress(Exception):
            head = read_head(work.log)
            if head is not None and not _redrive_commits(work.log, head, redrive_id, since):
                marks.settle(redrive_id, marks.marked_rows(redrive_id), files=1 + rows // MOST_IN_FILE)
        raise


def _run(work: TableSession, marks: RedriveMarks, redrive_id: str, rows: int, since: int) -> RedriveResult:
    table, head = work.table, _ledger_head(work)
    runnable = _make_runnable(work, marks.marked_rows(redrive_id), head.entry)
    head = advance(head, work.log)  # the table may have got columns
    processor, rejected = runnable.processor, runnable.rejected
    commits = _redrive_commits(work.log, head, redrive_id, since)
    version_before = commits[0].version - 1 if commits else head.version
    landed_before = _landed_coordinates(rejected, table, version_before) if table.write.merge is None else None
    ambiguous = (
        _shared_coordinates(rejected)
        if landed_before is None
        else _shared_coordinates(rejected).union(landed_before).distinct()
    )
    batch = runnable.make_batch(rejected.join(ambiguous, SOURCE, "left_anti"))
    first_entry = commits[0].entry if commits else None
    pins = Pins(
        time.time_ns() // 1_000_000,
        table.definition,
        Lookups(table, work.store).newest(),
        set_aside=head.entry.pins.set_aside,  # of the last batch, which runs again if the checkpoint is rebuilt
        redrive_set_aside=first_entry.pins.redrive_set_aside if first_entry is not None else (),
    )
    entry = replace(head.carry_entry, kind="redrive", pins=pins, note=f"redrive {redrive_id}")
    try:
        if not commits:
            target = DeltaTableTarget(table.uri, work.idempotent)
            processor.write(batch, entry, target, files=1 + rows // MOST_IN_FILE)
            entry = target.entry or entry
            landed = _confirm_landed(work, head, entry)
            row_counts: RowCounts = processor.counted(batch, entry, landed)
        else:
            _refuse_changed_definition(work, commits[0], redrive_id)
            landed, row_counts = commits[0].rows, {}
            processor.inspect(batch, entry)
        landed_now = _landed_coordinates(rejected, table, None) if commits and landed_before is not None else None
        remaining = remaining_rows(rejected, processor.rejected(batch, entry), entry, ambiguous, landed_now)
        if runnable.untouched is not None:
            remaining = remaining.unionByName(_remaining_untouched(work, runnable.untouched, landed=bool(commits)))
        reasons = {str(row[0]): int(row[1]) for row in remaining.groupBy("error_reason").count().collect()}
        left = rows - sum(reasons.values())
        if len(commits) < 2:
            _count(work, entry, left, landed, row_counts)
        marks.settle(redrive_id, remaining, files=1 + (rows - left) // MOST_IN_FILE)
    finally:
        processor.release()
    return RedriveResult(redrive_id, rows, landed, left, reasons)


def _make_runnable(work: TableSession, rejected: DataFrame, last: Entry) -> Runnable:
    table = work.table
    if isinstance(work.source, FilesReader):
        return files_runnable(work, rejected)
    kind = resolve_table(work.spark, table, work.store, work.source)
    assert isinstance(kind, StagedTable)
    stages = kind.stages
    suppression, lookups = Suppression(table, work.store), Lookups(table, work.store)
    if adds_new_fields(table):
        growing = GrowingTableProcessor(work.spark, table, work.store, suppression)
        entry = replace(last, pins=replace(last.pins, lookups=lookups.newest()))
        stages = stages_for(table, growing.extend_by_rejected(as_batch(rejected, table), entry), "judge")
    processor = _processor(work, table, stages, lookups, suppression)
    return Runnable(processor, rejected, partial(as_batch, table=table))


def _remaining_untouched(work: TableSession, rows: DataFrame, *, landed: bool) -> DataFrame:
    """`landed`: some rows landed before the redrive was cut off, and their file may have been removed since."""
    if not landed or work.table.write.merge is not None:
        return rows
    return rows.join(_landed_coordinates(rows, work.table, None), SOURCE, "left_anti")


def _ledger_head(work: TableSession) -> LedgerHead:
    head = work.head()
    refuse_open_work(work.table.name, head.entry, Transient, "replay", "rewind")
    refuse_foreign_changes(head, work.log)
    if head.entry.kind == "batch" and not head.row_counts:  # its rejected rows may not be in quarantine yet
        raise Transient(
            f"batch {head.entry.generation}.{head.entry.batch} was cut off before all of it was written",
            where=work.table.name,
            hint=f"`penstock run --once {work.table.name}` completes it",
        )
    return head


def _redrive_commits(log: DeltaLog, head: LedgerHead, redrive_id: str, since: int) -> list[Commit]:
    """The commits of a redrive after version `since`, oldest first: the one with its rows, and the one that counts
    them. Of a new redrive there are none, unless another process took it for one that was cut off."""
    commits: list[Commit] = []
    for version in range(head.version, since, -1):
        commit = log.commit(version)
        if commit is None or (commit.entry is not None and commit.entry.kind in REPLACING_KINDS):
            break  # what the redrive did before all rows were replaced is no longer in the table
        if commit.entry is not None and (commit.entry.note or "").startswith(f"redrive {redrive_id}"):
            commits.append(commit)
        elif commits:
            break
    return commits[::-1]


def _refuse_changed_definition(work: TableSession, commit: Commit, redrive_id: str) -> None:
    """Terminal for a merged table whose definition has changed: only the old one tells which of the rows passed."""
    entry, table = commit.entry, work.table
    assert entry is not None
    if table.write.merge is not None and entry.pins.definition != table.definition:
        raise Terminal(
            f"the redrive {redrive_id[:8]} was cut off between the table and its quarantine, and the definition has "
            "changed since: which of its rows have landed can only be said by the old one",
            where=table.name,
            hint="put the definition back as it was, redrive once more, and change it then",
        )


def _landed_coordinates(rejected: DataFrame, table: TablePlan, version: int | None) -> DataFrame:
    """The coordinates of the rejected rows that are in the table as of a version; None: the newest."""
    reader = rejected.sparkSession.read.format("delta")
    rows = (reader.option("versionAsOf", version) if version is not None else reader).load(table.uri)
    return with_own_source(rows, table).select(SOURCE).join(rejected.select(SOURCE), SOURCE, "left_semi").distinct()


def _shared_coordinates(rejected: DataFrame) -> DataFrame:
    """Coordinates that two different records have: the topic was deleted and recreated."""
    contents = F.count_distinct(F.expr("xxhash64(key, key_binary, value, value_binary, kafka_timestamp)"))
    return rejected.groupBy(SOURCE).agg(contents.alias("contents")).where("contents > 1").select(SOURCE)


def _confirm_landed(work: TableSession, head: LedgerHead, entry: Entry) -> int:
    """How many rows of the redrive are in the table: settling the quarantine depends on it. So if its commit is not in
    the log, it is made without rows; Delta refuses that if another process came first."""
    if confirm(head, work.log, entry) is None:
        append_entry(work.spark, work.table.uri, entry)
        must_confirm(head, work.log, entry)
    return next(commit.rows for commit in work.log.since(head.version) if commit.entry and commit.entry.id == entry.id)


def _count(work: TableSession, entry: Entry, left: int, landed: int, row_counts: RowCounts) -> None:
    """Commits the new row counts: moves rows from rejected to what they are now."""
    head = read_head(work.log)
    assert head is not None
    not_written = {name: row_counts.get(name, 0) for name in NOT_WRITTEN if name != REJECTED}
    changes = {REJECTED: -left, **not_written}
    changes[RESHAPED] = -unexplained(changes, landed)
    base_counts = head.counts if head.entry.note == entry.note else entry.counts
    counts = Counts(base_counts.rows, base_counts.total, add_counts(base_counts.row_counts, changes))
    counted_entry = replace(
        head.carry_entry, kind="redrive", pins=head.entry.pins, counts=counts, note=f"{entry.note}{_COUNTED_SUFFIX}"
    )
    append_entry(work.spark, work.table.uri, counted_entry)
    must_confirm(head, work.log, counted_entry)


@dataclass(frozen=True)
class RedrivePlan:
    table: TablePlan
    condition: str | None
    """On rows of the quarantine; None: all."""
    rows: Mapping[str, int]
    """By reason."""
    cut_off: bool = False
    """An earlier redrive of the table was cut off, and is finished first."""

    @property
    def steps(self) -> tuple[FinishRedrive | RunAgain, ...]:
        """Empty if no row was chosen: then nothing is run."""
        first = (FinishRedrive(self.table),) if self.cut_off and self.rows else ()
        return *first, *(RunAgain(self.table, reason, rows) for reason, rows in sorted(self.rows.items()))


def redrivable_table(plan: Plan, store: Store, name: str) -> TablePlan:
    """The table of that name; UsageError if its rows cannot be redriven. Needs no Spark."""
    (table,) = tables_with_quarantine(plan, store, [name])
    refuse_kind(table)
    if not quarantine_exists(table, store):
        raise UsageError(f"{table.name} has no quarantine yet", hint="it is made with the table: `penstock run`")
    return table


def plan_redrive(spark: SparkSession, table: TablePlan, reason: str | None, where: str | None) -> RedrivePlan:
    """UsageError if `where` is not a condition on the rejected rows."""
    conditions = [f"error_reason = {literal(reason)}"] if reason is not None else []
    conditions += [f"({where})"] if where is not None else []
    condition = " AND ".join(conditions) or None
    rows = spark.read.format("delta").load(quarantine_of(table.name, table.uri).uri)
    try:
        counts = (rows.where(condition) if condition else rows).groupBy("error_reason").count().collect()
    except (AnalysisException, ParseException) as error:
        why = next((line.strip() for line in str(error).splitlines() if line.strip()), "it cannot be read")
        raise UsageError(
            f"--where is not a condition on these rows: {why}", hint=f"columns: {', '.join(rows.columns)}"
        ) from None
    cut_off = MARK in rows.columns and not rows.where(f"{MARK} IS NOT NULL").isEmpty()
    return RedrivePlan(table, condition, {str(row[0]): int(row[1]) for row in counts}, cut_off)


def run_redrive(spark: SparkSession, plan: Plan, redrive_plan: RedrivePlan) -> list[RedriveResult]:
    """A redrive that was cut off is finished first."""
    with open_table_session(spark, plan, redrive_plan.table) as work:
        return redrive(work, redrive_plan.condition)
