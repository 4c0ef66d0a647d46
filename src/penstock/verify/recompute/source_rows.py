"""The rows that a table's stages make of its source, all at once, with its current definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.pending import began_of
from penstock.ledger.position import Version, parse_version
from penstock.ledger.source import ReplayInput, ReplayRequest
from penstock.plan.quarantine import quarantine_of
from penstock.plan.sources import FilesSource
from penstock.sources.columns import SOURCE
from penstock.sources.files.format import FormatChoice, Survey
from penstock.sources.files.listing import list_files
from penstock.sources.files.source import FilesReader
from penstock.tables import landing
from penstock.tables.failing_rows import Places
from penstock.tables.files import staged_table
from penstock.tables.new_fields import GrownSchema, grows, stages_for
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.suppression import Suppression
from penstock.tables.transform import Lookups, with_batch_time
from penstock.verify.upstream import arrivals, reshapes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.report import Proof
    from penstock.verify.upstream import Arrival

# Tables that rightly lack some of what their source has: they began later than it, or are still within the table that
# they found when they began.


def is_partial(around: RecomputeContext, entry: Entry) -> bool:
    began = _began(around, entry)
    return began is None or (not began.snapshot and began.version > 0) or parse_version(entry.after[0]).snapshot


def rows_read(around: RecomputeContext, entry: Entry, check: Proof) -> DataFrame | None:
    """As batches brought them. None, and a remark, if that cannot be told."""
    began = _began(around, entry)
    why = f"which rows of {around.upstream} it has read cannot be told"
    if began is not None and not (around.source.changes and parse_version(entry.after[0]).snapshot):
        try:
            asked = ReplayRequest(entry.after, (str(began),), entry.topics)
            rows = around.reader().covered(around.spark, asked).rows
            began_at = (
                "its first snapshot is not read to its end" if began.snapshot else f"it began at v{began.version}"
            )
            check.remarks.append(f"{began_at}: {check.unit} without a row since then may be missing")
            return rows
        except PenstockError as error:
            why = error.message
    check.remarks.append(f"{check.unit} that it lacks are not looked for: {why}")
    return None


def _began(around: RecomputeContext, entry: Entry) -> Version | None:
    try:
        return parse_version(began_of(DeltaLog(around.store, around.table.uri, around.table.name), entry)[0])
    except PenstockError:
        return None


# Rows with the batch in which their record came.


NUMBER = "__arrived"


def numbered_arrivals(around: RecomputeContext) -> Callable[[DataFrame], DataFrame]:
    """Adds NUMBER to rows with `_source`. Terminal where the ledgers do not tell it."""
    found = arrivals(around.table, around.tables, around.store)
    return lambda rows: _with_number(around.spark, rows, found)


def _with_number(spark: SparkSession, rows: DataFrame, found: list[Arrival]) -> DataFrame:
    made = [(one.topic, one.partition, one.start, one.end, one.number) for one in found]
    known = spark.createDataFrame(made, "__t STRING, __p INT, __s BIGINT, __e BIGINT, " + f"{NUMBER} BIGINT")
    place = f"{SOURCE}.topic = __t AND {SOURCE}.partition = __p AND {SOURCE}.offset >= __s AND {SOURCE}.offset < __e"
    return rows.join(F.broadcast(known), F.expr(place), "left").drop("__t", "__p", "__s", "__e")


# The rows that a table's stages make of its source, all at once, as of its definition now: what a comparison of its
# rows begins with. Neither its merge nor its dedupe has a part in it.


GREW = "empty fields of its records may have become columns since they were read, and its transform depends on them"
FAILED = "transform_failed"
"""Records that no stage can be given: they raise."""


@dataclass(frozen=True)
class SourceRows:
    rows: DataFrame
    """With `_source` where they have coordinates."""
    covered: ReplayInput
    excuses: list[str] = field(default_factory=list)
    """Why rows may rightly be others than these."""
    reshaped: DataFrame | None = None
    """The coordinates of records whose rows alone may rightly be others: they hold an empty field that was no column
    when they were read, and the transform is given the current columns."""


def source_rows(around: RecomputeContext, content: Content) -> SourceRows:
    """Terminal where the source can no longer be read as it was."""
    table, entry = around.table, content.entry
    assert entry is not None
    suppression = Suppression(table, around.store)
    if table.files is not None:
        return _of_files(around, content, table.files, suppression)
    covered = covered_rows(around, entry, filled_at(content))
    rows = suppression.source(covered.rows)
    if not table.staged:
        landed = landing.landed_rows(rows, table, entry.pins) if table.columns else rows
        return SourceRows(suppression.own(landed), covered, changed_upstream(around))
    grown = grows(table)
    stages = stages_for(table, GrownSchema(table, around.store).require(), "look") if grown else StagedPipeline(table)
    lookups = Lookups(table, around.store).read(around.spark, entry.pins)
    made = stages.make(_without_failed(around, rows), entry.pins, lookups)
    excuses, reshaped = list(_excuses(around, content, stages)), None
    if grown and reshapes(table) and _adds(table):
        if table.write.source and table.input.stable:
            declared = stages_for(table, FormatChoice(GrownSchema(table, around.store).declared), "look")
            reshaped = declared.with_empty_unknown(rows, entry.pins)
        else:
            excuses.append(GREW)
    return SourceRows(suppression.own(made.rows), covered, excuses, reshaped)


def _adds(table: TablePlan) -> bool:
    decode = table.stages.decode if table.stages is not None else None
    return decode is not None and decode.new_fields == "add"


@dataclass(frozen=True)
class FilesRead:
    """Files that are gone or have another size than when they were read are left out, and so are those that could not
    be read then: they are in quarantine as a whole."""

    rows: DataFrame
    stages: StagedPipeline
    covered: ReplayInput
    names: list[str]


def read_files(around: RecomputeContext, entry: Entry, source: FilesSource) -> FilesRead:
    table = around.table
    reader = FilesReader(around.spark, source, around.store, table.name)
    began = began_of(DeltaLog(around.store, table.uri, table.name), entry)
    covered = reader.covered(around.spark, ReplayRequest(entry.after, began, entry.topics))
    now = {one.name: one.size for one in list_files(around.spark, source, table.name).files}
    listed = {row.path: row.size for row in covered.rows.select("path", "size").collect()}
    changed = tuple(name for name, size in listed.items() if now.get(name) != size)
    unreadable = _whole_files(around)
    names = sorted(set(listed) - set(changed) - unreadable)
    look = replace(reader.schema.require(), watchful=False)
    survey = reader.schema.format.survey(names, look.schema) if names else Survey()
    stages = staged_table(table, reader, look, survey)
    frame = reader.schema.format.rows(names, look, survey, max(1, len(names) // 100))
    left = ReplayInput(covered.rows, gone=tuple(sorted({*covered.gone, *changed})))
    return FilesRead(Suppression(table, around.store).source(frame), stages, left, names)


def _of_files(around: RecomputeContext, content: Content, source: FilesSource, suppression: Suppression) -> SourceRows:
    table, entry = around.table, content.entry
    assert entry is not None
    read = read_files(around, entry, source)
    lookups = Lookups(table, around.store).read(around.spark, entry.pins)
    made = read.stages.make(read.rows, entry.pins, lookups)
    excuses, reshaped = list(_excuses(around, content, read.stages)), None
    if source.new_fields == "add" and source.format == "json" and reshapes(table):
        if table.write.source:
            reshaped = read.stages.with_empty_field(read.rows, entry.pins)
        else:
            excuses.append(GREW)
    return SourceRows(suppression.own(made.rows), read.covered, excuses, reshaped)


def _whole_files(around: RecomputeContext) -> set[str]:
    place = quarantine_of(around.table.name, around.table.uri)
    if not around.store.names(f"{place.uri}/_delta_log"):
        return set()
    rejected = around.spark.read.format("delta").load(place.uri).where(f"{SOURCE}.row IS NULL")
    return {row.file for row in rejected.selectExpr(f"{SOURCE}.file AS file").distinct().collect()}


def filled_at(content: Content) -> Entry | None:
    """The replay that made what the table held before its batches, if one did."""
    return next((one for one in content.made if one.kind != "batch" and one.batch == 0), None)


def covered_rows(around: RecomputeContext, entry: Entry, filled: Entry | None = None) -> ReplayInput:
    """`filled`: a replay of a table that follows changes takes the table upstream as it was then, and no changes."""
    table = around.table
    began = began_of(DeltaLog(around.store, table.uri, table.name), entry)
    if filled is not None and table.source.follows_changes:
        was = parse_version(filled.after[0])
        began = (str(Version(was.table_id, was.read_up_to, snapshot=True)),)
    asked = ReplayRequest(entry.after, began, entry.topics)
    return around.reader().covered(around.spark, asked)


def _without_failed(around: RecomputeContext, rows: DataFrame) -> DataFrame:
    """Less the records that a transform raised on: they are in quarantine, and would stop the comparison."""
    table, raw = around.table, around.table.input.raw
    place = quarantine_of(table.name, table.uri)
    if not table.may_reject or not around.store.names(f"{place.uri}/_delta_log"):
        return rows
    failed = around.spark.read.format("delta").load(place.uri).where(f"error_reason = '{FAILED}'")
    if failed.isEmpty():
        return rows
    if table.topics is not None:
        names = {"topic": "topic", "partition": "partition", "offset": "offset"}
    elif table.input.coordinates == "kafka":
        names = {name: raw[name] for name in ("topic", "partition", "offset")}
    elif table.input.coordinates == "carried" and SOURCE in rows.columns:
        return rows.join(failed.select(SOURCE), SOURCE, "left_anti")
    else:
        return _without_contents(around, rows, failed.count())
    gone = failed.selectExpr(*(f"{SOURCE}.{name} AS __{name}" for name in names))
    same = [rows[column] == gone[f"__{name}"] for name, column in names.items()]
    return rows.join(gone, same, "left_anti")


def _without_contents(around: RecomputeContext, rows: DataFrame, failed: int) -> DataFrame:
    """Rows without coordinates are known by their content, which the entries of their batches have. Some of them may
    have been redriven since: then those that are left cannot be told, and the comparison says what it stopped at."""
    log = DeltaLog(around.store, around.table.uri, around.table.name)
    aside = {place for commit in log.backwards() if commit.entry is not None for place in commit.entry.pins.aside}
    return Places(around.table).without(rows, sorted(aside)) if len(aside) == failed else rows


def changed_upstream(around: RecomputeContext) -> list[str]:
    """Rows that were read may be gone there since, and rows of files that were rewritten may have come again."""
    source = around.table.delta
    if source is None or source.changes:
        return []
    log = around.upstream_log
    changed = [version for version in log.versions() if (commit := log.commit(version)) is not None and commit.changes]
    return [f"version {changed[-1]} of {around.upstream} changed rows there"] if changed else []


def _excuses(around: RecomputeContext, content: Content, stages: StagedPipeline) -> list[str]:
    plan, merge = around.table.stages, around.table.write.merge
    found = changed_upstream(around)
    if plan is None:
        return found
    if stages.depends_on_the_moment:
        found.append("its Python function may give other rows each time")
    texts = [one.check for one in plan.expect] + ([plan.transform.sql or ""] if plan.transform is not None else [])
    texts += [merge.sequence, merge.deleted, merge.time or ""] if merge is not None else []
    if any(with_batch_time(text, 0) != text for text in texts):
        found.append("its SQL asks for the time of the batch")
    if len({tuple(sorted(one.pins.lookups.items())) for one in content.made}) > 1:
        found.append("its lookups have changed between its batches")
    if not content.from_start and plan.lookups:
        found.append("which versions of its lookups the older batches used is no longer in the log")
    return found
