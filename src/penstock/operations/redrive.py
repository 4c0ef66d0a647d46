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
from penstock.ledger.checkpoint import folder_of
from penstock.ledger.commit import append_nothing, carrying, confirm, must_confirm
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import WHOLE, Counts, Pins
from penstock.ledger.head import advance, read_head, refuse_foreign_changes
from penstock.ledger.pending import pending_replay, pending_rewind
from penstock.ledger.row_counts import (
    NOT_WRITTEN,
    REJECTED,
    RESHAPED,
    add_counts,
    read_row_counts,
    unexplained,
)
from penstock.ledger.write_target import DeltaTableTarget
from penstock.operations.quarantine_rows import tables_with_one
from penstock.operations.replay_plan import working_on
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
from penstock.tables.files import redriven, staged_table, with_schema
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.kinds import StagedTable, look_at_table
from penstock.tables.merge.merge import table_schema
from penstock.tables.merge.tombstones import tombstone_table
from penstock.tables.new_fields import Growing, grows, stages_for
from penstock.tables.staged import MOST_IN_FILE, StagedProcessor
from penstock.tables.suppression import SuppressingRows, Suppression
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry, Place, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# Rejected rows, and how they become a batch of their table again.


@dataclass(frozen=True)
class Runnable:
    function: IsolatingProcessor
    rejected: DataFrame
    """Rows of the quarantine."""
    batch: Callable[[DataFrame], DataFrame]
    """Of rows of the quarantine: what their table's function is given."""
    untouched: DataFrame | None = None
    """Those that were asked for and cannot be run again: they stay as they are."""


# Rejected rows as the batch that they once were part of.


_PLACE = ("topic", "partition", "offset")
_OF_KAFKA = {
    "key": "coalesce(key_binary, CAST(key AS BINARY))",
    "value": "coalesce(value_binary, CAST(value AS BINARY))",
    **{name: f"{SOURCE}.{name}" for name in _PLACE},
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
    """`rejected` are rows of the quarantine, each record once."""
    once = rejected.dropDuplicates([SOURCE])
    if table.topics is not None:
        return once.selectExpr(*(f"{value} AS `{name}`" for name, value in _OF_KAFKA.items()))
    if table.input.raw:
        raw = once.selectExpr(*(f"{_raw(name, table)} AS {quote(own)}" for name, own in table.input.raw.items()))
        return _chosen(raw, table)
    assert table.delta is not None
    # Their text is not exact, so they are looked up where they came from.
    upstream = rejected.sparkSession.read.format("delta").load(table.delta.uri)
    return _chosen(upstream.join(once.select(SOURCE), SOURCE, "left_semi"), table)


def _chosen(rows: DataFrame, table: TablePlan) -> DataFrame:
    """Those that the table reads: `where` may have raised on a row, and say by now that it is none of its rows."""
    where = table.source.condition
    return rows if where is None else selected(rows, where)


def _raw(name: str, table: TablePlan) -> str:
    if name in _PLACE:
        return f"{SOURCE}.{name}"
    if table.payload == "binary" or "value_binary" not in table.input.raw:
        return {"key": "key_binary", "value": "value_binary"}.get(name, name)
    return name


# Rejected lines of files, read again from the files that they stand in.
#
# A file that is no longer there, or no longer the one that was listed, cannot say what the line was: its lines stay
# in quarantine as they are. So do files that could not be read at all: put right, such a file is landed under a new
# name.


_FILES_A_TASK = 100


def of_files(work: TableSession, rejected: DataFrame) -> Runnable:
    reader = work.source
    assert isinstance(reader, FilesReader)
    names = _as_they_were(work, reader, rejected)
    again = F.coalesce(F.col(f"{SOURCE}.row").isNotNull() & F.col(f"{SOURCE}.file").isin(names), F.lit(False))
    look = redriven(reader, names, reader.schema.require(), partial(_lines, wanted=rejected.where(again)))
    look = replace(look, watchful=False)
    survey = reader.schema.format.survey(names, StructType()) if names else Survey()
    stages = staged_table(work.table, reader, look, survey)
    rows = reader.schema.format.rows(names, look, survey, max(1, len(names) // _FILES_A_TASK))
    suppression = Suppression(work.table, work.store)
    tombstones = tombstone_table(work.spark, work.store, work.table, idempotent=work.idempotent)
    lookups = Lookups(work.table, work.store)
    if reader.files.new_fields == "add":
        pins = Pins(0, "", lookups.newest())
        made = stages.make(rows, pins, lookups.read(work.spark, pins))
        settle_columns(work.spark, work.table, table_schema(work.table, made.rows))
    staged = StagedProcessor(with_schema(work.table, look), stages, lookups, None, suppression, tombstones)
    return Runnable(
        IsolatingProcessor(SuppressingRows(staged, suppression), staged, work.table, work.log, redriving=True),
        rejected.where(again),
        partial(_lines, rows),
        rejected.where(~again),
    )


def _lines(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Those with the coordinates of rejected rows."""
    places = wanted.selectExpr(f"{SOURCE}.file AS __at", f"{SOURCE}.row AS __number").distinct()
    same = (F.col(FILE) == F.col("__at")) & (F.col(ROW) == F.col("__number"))
    return rows.join(places, same, "left_semi")


def _as_they_were(work: TableSession, reader: FilesReader, rejected: DataFrame) -> Sequence[str]:
    named = rejected.where(f"{SOURCE}.row IS NOT NULL").select(f"{SOURCE}.file").distinct().collect()
    names = [str(row[0]) for row in named if row[0] is not None]
    if not names:
        return []
    manifest = Manifest(work.spark, work.store, reader.files.uri, work.table.name)
    listed = manifest.known(names, manifest.newest())
    now = {file.name: file for file in list_files(work.spark, reader.files, work.table.name).files}
    return sorted(name for name in names if name in now and now[name] == listed.get(name))


# The rows of a quarantine that are being redriven: marked by an id, from one commit to another.


MARK = "redrive"


class Marked:
    def __init__(self, spark: SparkSession, store: Store, table: TablePlan) -> None:
        """UsageError if the table has no quarantine."""
        place = quarantine_of(table.name, table.uri)
        self._session, self.uri = spark.newSession(), place.uri
        self._log = DeltaLog(store, place.uri, place.table)
        if not self._log.versions():
            raise UsageError(f"{table.name} has no quarantine", hint="nothing of it was ever rejected")
        if MARK not in self.rows().columns:
            self._session.sql(f"ALTER TABLE delta.{quote(place.uri)} ADD COLUMNS ({MARK} STRING)")

    def rows(self) -> DataFrame:
        return self._session.read.format("delta").load(self.uri)

    def open(self) -> str | None:
        """The id of a redrive that was cut off."""
        found = self.rows().where(f"{MARK} IS NOT NULL").agg(F.max(MARK)).first()
        return None if found is None or found[0] is None else str(found[0])

    def of(self, name: str) -> DataFrame:
        return self.rows().where(f"{MARK} = {literal(name)}")

    def mark(self, name: str, condition: str | None) -> int:
        """How many rows were. Those that another process has marked meanwhile, on a store without locks, are not."""
        chosen = f"{MARK} IS NULL AND ({condition or 'true'})"
        with self._carrying():
            DeltaTable.forPath(self._session, self.uri).update(chosen, {MARK: F.lit(name)})
        return self.of(name).count()

    def settle(self, name: str, stay: DataFrame, *, files: int = 1) -> None:
        """Those that were marked go, but for `stay`, which has the columns of the quarantine: in one commit."""
        unmarked = stay.withColumn(MARK, F.lit(None).cast("string")).select(*map(quote, self.rows().columns))
        rows = unmarked.coalesce(1) if files == 1 else unmarked.repartition(files)
        writer = rows.write.format("delta").mode("overwrite")
        check = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
        self._session.conf.set(check, "false")  # what stays is marked no longer
        try:
            with self._carrying() as (tail, entry):
                writer.option("replaceWhere", f"{MARK} = {literal(name)}").save(self.uri)
            must_confirm(tail, self._log, entry)
        finally:
            self._session.conf.unset(check)

    @contextmanager
    def _carrying(self) -> Iterator[tuple[LedgerHead, Entry]]:
        """Its own last entry, once more: a batch that it lacks must not seem to be there."""
        tail = read_head(self._log)
        assert tail is not None
        entry = tail.entry.stamped(kind="redrive", counts=tail.counts, seen=tail.version, pending={})
        with carrying(self._session, entry, idempotent=False):
            yield tail, entry


# The rows of a quarantine that stay there after a redrive.


PARTLY = "partly_landed"
_PARTLY = (
    "rows of this record are in the table already, or of another with its place, if the topic was made again; so it "
    "cannot be run again alone: replay the table"
)
_WHY = "__why"


def staying(
    rejected: DataFrame,
    again: DataFrame,
    entry: Entry,
    unsure: DataFrame,
    landed: DataFrame | None,
) -> DataFrame:
    """`again` has the records that were rejected once more, with `why`. `unsure` are coordinates that the table had
    before: of another row of the record, or of another record, of a topic that was made again since. They were not run,
    and what is not known to have landed does not go. `landed`, of a redrive that was cut off: the coordinates that the
    table has now; what is in none of these stays as it was."""
    why = again.groupBy(SOURCE).agg(F.first("why").alias(_WHY))
    told = rejected.join(why, SOURCE)
    stay = _with_reason(told, F.col(f"{_WHY}.reason"), F.col(f"{_WHY}.detail"), entry).drop(_WHY)
    partly = rejected.join(unsure, SOURCE)
    stay = stay.unionByName(_with_reason(partly, F.lit(PARTLY), F.lit(_PARTLY), entry))
    if landed is not None:
        settled = landed.union(unsure).distinct()
        rest = rejected.join(settled, SOURCE, "left_anti").join(why, SOURCE, "left_anti")
        stay = stay.unionByName(rest)
    return stay


def _with_reason(rows: DataFrame, reason: object, detail: object, entry: Entry) -> DataFrame:
    return rows.withColumns(
        {
            "error_reason": reason,  # type: ignore[dict-item]
            "error_detail": detail,  # type: ignore[dict-item]
            "error_timestamp": F.expr(f"timestamp_millis({entry.pins.time_ms}L)"),
            "definition": F.lit(entry.pins.definition),
        }
    )


# Rejected rows run once more, by the table's definition of now: those that pass land, once, and leave the quarantine;
# the others stay, with their new reason.
#
# Four commits: the rows are marked in the quarantine; what passes is appended to the table; an entry says what became
# of them; the marked rows are settled. Killed in between, the next redrive finds the mark and finishes that one
# first. All under the table's commit lock.


_COUNTED = ", counted"


@dataclass(frozen=True)
class Redriven:
    id: str
    rows: int
    """Of the quarantine, that were asked for."""
    landed: int
    left: int
    """That left the quarantine: landed, dropped, or found to be there already."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """Of those that stay."""


def redrive(work: TableSession, condition: str | None) -> list[Redriven]:
    """Of the rows that meet a condition, all without one; after one that was cut off, if there is such."""
    refuse_kind(work.table)
    acquire_commit(work.lock, work.table.name)
    try:
        marked = Marked(work.spark, work.store, work.table)
        done: list[Redriven] = []
        failed: Exception | None = None
        if (cut_off := marked.open()) is not None:
            try:
                done.append(_run_or_leave(work, marked, cut_off, marked.of(cut_off).count()))
            except Exception as error:  # raised when the rows that were asked for have been run
                failed = error
        name = uuid.uuid4().hex
        if rows := marked.mark(name, condition):
            done.append(_run_or_leave(work, marked, name, rows))
        if failed is not None:
            raise failed
        return done
    finally:
        work.lock.release()


def _run_or_leave(work: TableSession, marked: Marked, name: str, rows: int) -> Redriven:
    """What cannot be run stays as it was: left marked, it would come before every later redrive. If even that fails,
    the next redrive does it."""
    try:
        return _run(work, marked, name, rows)
    except Exception:
        with suppress(Exception):
            tail = read_head(work.log)
            if tail is not None and not _appended(work, tail, name):
                marked.settle(name, marked.of(name), files=1 + rows // MOST_IN_FILE)
        raise


def _run(work: TableSession, marked: Marked, name: str, rows: int) -> Redriven:
    table, tail = work.table, _tail(work)
    runnable = _runnable(work, marked.of(name), tail.entry)
    tail = advance(tail, work.log)  # it may have got columns
    function, rejected = runnable.function, runnable.rejected
    appended = _appended(work, tail, name)
    before = appended[0].version - 1 if appended else tail.version
    known = _landed_by(rejected, table, before) if table.write.merge is None else None
    unsure = _of_two_records(rejected) if known is None else _of_two_records(rejected).union(known).distinct()
    batch = runnable.batch(rejected.join(unsure, SOURCE, "left_anti"))
    pins = Pins(
        time.time_ns() // 1_000_000,
        table.definition,
        Lookups(table, work.store).newest(),
        aside=tail.entry.pins.aside,  # of the last batch, which runs again if the checkpoint is rebuilt
        kept=_set_aside(appended),
    )
    entry = replace(tail.carried, kind="redrive", pins=pins, note=f"redrive {name}")
    try:
        if not appended:
            into = DeltaTableTarget(table.uri, work.idempotent)
            function.write(batch, entry, into, files=1 + rows // MOST_IN_FILE)
            entry = into.entry or entry
            landed = _landed(work, tail, entry)
            row_counts: RowCounts = function.counted(batch, entry, landed)
        else:
            _refuse_unknown(work, appended[0], name)
            landed, row_counts = appended[0].rows, {}
            function.look(batch, entry)
        unclear = _landed_by(rejected, table, None) if appended and known is not None else None
        stay = staying(rejected, function.rejected(batch, entry), entry, unsure, unclear)
        if runnable.untouched is not None:
            stay = stay.unionByName(_untouched(work, runnable.untouched, landed=bool(appended)))
        reasons = {str(row[0]): int(row[1]) for row in stay.groupBy("error_reason").count().collect()}
        left = rows - sum(reasons.values())
        if len(appended) < 2:
            _count(work, entry, left, landed, row_counts)
        marked.settle(name, stay, files=1 + (rows - left) // MOST_IN_FILE)
    finally:
        function.done()
    return Redriven(name, rows, landed, left, reasons)


def _runnable(work: TableSession, rejected: DataFrame, last: Entry) -> Runnable:
    table = work.table
    if isinstance(work.source, FilesReader):
        return of_files(work, rejected)
    kind = look_at_table(work.spark, table, work.store, work.source)
    assert isinstance(kind, StagedTable)
    stages = kind.stages
    suppression, lookups = Suppression(table, work.store), Lookups(table, work.store)
    if grows(table):
        growing = Growing(work.spark, table, work.store, suppression)
        entry = replace(last, pins=replace(last.pins, lookups=lookups.newest()))
        stages = stages_for(table, growing.redriven(as_batch(rejected, table), entry), "judge")
    tombstones = tombstone_table(work.spark, work.store, table, idempotent=work.idempotent)
    staged = StagedProcessor(table, stages, lookups, None, suppression, tombstones)
    function = IsolatingProcessor(SuppressingRows(staged, suppression), staged, table, work.log, redriving=True)
    return Runnable(function, rejected, partial(as_batch, table=table))


def _untouched(work: TableSession, rows: DataFrame, *, landed: bool) -> DataFrame:
    """`landed`: rows have, before the redrive was cut off; their file may have gone since."""
    if not landed or work.table.write.merge is not None:
        return rows
    return rows.join(_landed_by(rows, work.table, None), SOURCE, "left_anti")


def _tail(work: TableSession) -> LedgerHead:
    tail = read_head(work.log)
    if tail is None:
        raise Terminal("it was never made", where=work.table.name, hint="`penstock run` makes it")
    if pending_replay(tail.entry) is not None:
        raise Transient("a replay of it is not done yet", where=work.table.name, hint="`penstock run` finishes it")
    if pending_rewind(tail.entry) is not None:
        raise Transient("a rewind of it is not done yet", where=work.table.name, hint="`penstock run` finishes it")
    refuse_foreign_changes(tail, work.log)
    folder = folder_of(work.table.checkpoints, tail.entry)
    row_counts = read_row_counts(work.store, folder, tail.entry.batch)
    if tail.entry.kind == "batch" and not row_counts:  # its rejected rows may not be in quarantine yet
        raise Transient(
            f"batch {tail.entry.generation}.{tail.entry.batch} was cut off before all of it was written",
            where=work.table.name,
            hint=f"`penstock run --once {work.table.name}` completes it",
        )
    return replace(tail, row_counts=row_counts)


def _appended(work: TableSession, tail: LedgerHead, name: str) -> list[Commit]:
    """The commits of a redrive that was cut off, oldest first: the one with its rows, and the one that counts them."""
    found: list[Commit] = []
    for version in range(tail.version, -1, -1):
        commit = work.log.commit(version)
        if commit is None or (commit.entry is not None and commit.entry.kind in WHOLE):
            break  # what it did before all rows were exchanged is not there any more
        if commit.entry is not None and (commit.entry.note or "").startswith(f"redrive {name}"):
            found.append(commit)
        elif found:
            break
    return found[::-1]


def _set_aside(appended: Sequence[Commit]) -> tuple[Place, ...]:
    """Records on which an expression raised when the rows were appended."""
    entry = appended[0].entry if appended else None
    return entry.pins.kept if entry is not None else ()


def _refuse_unknown(work: TableSession, appended: Commit, name: str) -> None:
    """Which rows of a merge have passed can only be said by the definition by which they did."""
    entry, table = appended.entry, work.table
    assert entry is not None
    if table.write.merge is not None and entry.pins.definition != table.definition:
        raise Terminal(
            f"the redrive {name[:8]} was cut off between the table and its quarantine, and the definition has changed "
            "since: which of its rows have landed can only be said by the old one",
            where=table.name,
            hint="put the definition back as it was, redrive once more, and change it then",
        )


def _landed_by(rejected: DataFrame, table: TablePlan, version: int | None) -> DataFrame:
    """The coordinates of the rejected rows that are in the table as of a version, now without one."""
    reader = rejected.sparkSession.read.format("delta")
    rows = (reader.option("versionAsOf", version) if version is not None else reader).load(table.uri)
    return with_own_source(rows, table).select(SOURCE).join(rejected.select(SOURCE), SOURCE, "left_semi").distinct()


def _of_two_records(rejected: DataFrame) -> DataFrame:
    """Places that two different records have: the topic was deleted and made again."""
    contents = F.count_distinct(F.expr("xxhash64(key, key_binary, value, value_binary, kafka_timestamp)"))
    return rejected.groupBy(SOURCE).agg(contents.alias("contents")).where("contents > 1").select(SOURCE)


def _landed(work: TableSession, tail: LedgerHead, entry: Entry) -> int:
    """How many rows of it are in the table: what is settled in the quarantine afterwards rests upon that. So where its
    commit is not in the log, it is made without rows; Delta refuses that if another process came first."""
    if confirm(tail, work.log, entry) is None:
        append_nothing(work.spark, work.table.uri, entry)
        must_confirm(tail, work.log, entry)
    return next(commit.rows for commit in work.log.since(tail.version) if commit.entry and commit.entry.id == entry.id)


def _count(work: TableSession, entry: Entry, left: int, landed: int, row_counts: RowCounts) -> None:
    """What became of the rows: from rejected to whatever they are now."""
    spark: SparkSession = work.spark
    tail = read_head(work.log)
    assert tail is not None
    others = {name: row_counts.get(name, 0) for name in NOT_WRITTEN if name != REJECTED}
    moved = {REJECTED: -left, **others}
    moved[RESHAPED] = -unexplained(moved, landed)
    base = tail.counts if tail.entry.note == entry.note else entry.counts
    counts = Counts(base.rows, base.total, add_counts(base.row_counts, moved))
    counted = replace(tail.carried, kind="redrive", pins=tail.entry.pins, counts=counts, note=f"{entry.note}{_COUNTED}")
    append_nothing(spark, work.table.uri, counted)
    must_confirm(tail, work.log, counted)


# `dlq redrive`: which rows are run again, and running them.


@dataclass(frozen=True)
class RedrivePlan:
    table: TablePlan
    condition: str | None
    """Upon rows of the quarantine; None: all."""
    rows: Mapping[str, int]
    """By reason."""
    cut_off: bool = False
    """A redrive of the table was, and is finished first."""

    @property
    def steps(self) -> tuple[FinishRedrive | RunAgain, ...]:
        """None if no row was chosen: then nothing is run."""
        first = (FinishRedrive(self.table),) if self.cut_off and self.rows else ()
        return *first, *(RunAgain(self.table, reason, rows) for reason, rows in sorted(self.rows.items()))


def redrivable(plan: Plan, store: Store, name: str) -> TablePlan:
    """The table of that name; UsageError where nothing of it can be redriven. Needs no Spark."""
    (table,) = tables_with_one(plan, store, [name])
    refuse_kind(table)
    place = quarantine_of(table.name, table.uri)
    if not DeltaLog(store, place.uri, place.table).versions():
        raise UsageError(f"{table.name} has no quarantine yet", hint="it is made with the table: `penstock run`")
    return table


def plan_redrive(spark: SparkSession, table: TablePlan, reason: str | None, where: str | None) -> RedrivePlan:
    """UsageError if `where` cannot be asked of the rows."""
    parts = [f"error_reason = {literal(reason)}"] if reason is not None else []
    parts += [f"({where})"] if where is not None else []
    condition = " AND ".join(parts) or None
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


def run_redrive(spark: SparkSession, plan: Plan, planned: RedrivePlan) -> list[Redriven]:
    """One that was cut off is finished first."""
    with working_on(spark, plan, planned.table) as work:
        return redrive(work, planned.condition)
