"""The rows that a table's stages make of its source, all at once, with its current definition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import PenstockError
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
from penstock.tables.new_fields import GrownSchema, adds_new_fields, stages_for
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.suppression import Suppression
from penstock.tables.transform import Lookups, with_batch_time
from penstock.verify.upstream import arrivals, last_changed_version, may_reshape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.report import Proof

# Tables that rightly lack some of what their source has: they began later than it, or are still reading the snapshot
# that they found when they began.


def is_partial(context: RecomputeContext, entry: Entry) -> bool:
    start = _start_position(context, entry)
    return start is None or (not start.snapshot and start.version > 0) or parse_version(entry.after[0]).snapshot


def rows_read(context: RecomputeContext, entry: Entry, check: Proof) -> DataFrame | None:
    """The rows that were read, as batches brought them. None, and a remark, if that cannot be determined."""
    start = _start_position(context, entry)
    reason = f"which rows of {context.upstream} it has read is unknown"
    if start is not None and not (context.source.changes and parse_version(entry.after[0]).snapshot):
        try:
            request = ReplayRequest(entry.after, (str(start),), entry.topics)
            rows = context.reader().replay_input(context.spark, request).rows
            start_text = (
                "its first snapshot is not read to its end" if start.snapshot else f"it began at v{start.version}"
            )
            check.remarks.append(f"{start_text}: {check.unit} without a row since then may be missing")
            return rows
        except PenstockError as error:
            reason = error.message
    check.remarks.append(f"{check.unit} that it lacks are not looked for: {reason}")
    return None


def _start_position(context: RecomputeContext, entry: Entry) -> Version | None:
    try:
        return parse_version(context.start_position(entry)[0])
    except PenstockError:
        return None


# Rows with the batch in which their record arrived.


NUMBER = "__arrived"


def numbered_arrivals(context: RecomputeContext) -> Callable[[DataFrame], DataFrame]:
    """A function that adds NUMBER to rows with `_source`. Terminal where the ledgers do not tell it."""
    ranges = [
        (arrival.topic, arrival.partition, arrival.start, arrival.end, arrival.number)
        for arrival in arrivals(context.table, context.tables, context.store)
    ]
    columns = f"__t STRING, __p INT, __s BIGINT, __e BIGINT, {NUMBER} BIGINT"
    condition = (
        f"{SOURCE}.topic = __t AND {SOURCE}.partition = __p AND {SOURCE}.offset >= __s AND {SOURCE}.offset < __e"
    )

    def add_number(rows: DataFrame) -> DataFrame:
        numbered = context.spark.createDataFrame(ranges, columns)
        return rows.join(F.broadcast(numbered), F.expr(condition), "left").drop("__t", "__p", "__s", "__e")

    return add_number


# What a comparison of the table's rows begins with. Its merge and its dedupe are not applied.


GREW = "empty fields of its records may have become columns since they were read, and its transform depends on them"
FAILED = "transform_failed"
"""Records that cannot be given to a stage: they raise."""


@dataclass(frozen=True)
class SourceRows:
    rows: DataFrame
    """With `_source` where they have coordinates."""
    replay_input: ReplayInput
    excuses: list[str] = field(default_factory=list)
    """Why the rows of the table may rightly differ from these."""
    reshaped: DataFrame | None = None
    """The coordinates of the only records whose rows may rightly differ: they hold an empty field that was no column
    when they were read, and the transform is given the current columns."""


def source_rows(context: RecomputeContext, content: Content) -> SourceRows:
    """The rows that the table should hold; Terminal where the source can no longer be read as it was."""
    table, entry = context.table, content.entry
    assert entry is not None
    suppression = Suppression(table, context.store)
    if table.files is not None:
        return _file_rows(context, content, table.files, suppression)
    covered = covered_rows(context, entry, filling_entry(content))
    rows = suppression.drop_suppressed_input(covered.rows)
    if not table.staged:
        landed = landing.landed_rows(rows, table, entry.pins) if table.columns else rows
        return SourceRows(suppression.drop_suppressed(landed), covered, changed_upstream(context))
    grown = adds_new_fields(table)
    stages = stages_for(table, GrownSchema(table, context.store).require(), "look") if grown else StagedPipeline(table)
    lookups = Lookups(table, context.store).read(context.spark, entry.pins)
    output = stages.run(_without_failed(context, rows), entry.pins, lookups)
    excuses, reshaped = list(_excuses(context, content, stages)), None
    if grown and may_reshape(table) and _adds_columns(table):
        if table.write.source and table.input.stable:
            declared = stages_for(table, FormatChoice(GrownSchema(table, context.store).declared), "look")
            reshaped = declared.with_empty_unknown(rows, entry.pins)
        else:
            excuses.append(GREW)
    return SourceRows(suppression.drop_suppressed(output.rows), covered, excuses, reshaped)


def _adds_columns(table: TablePlan) -> bool:
    decode = table.stages.decode if table.stages is not None else None
    return decode is not None and decode.new_fields == "add"


@dataclass(frozen=True)
class FilesRead:
    """The files that were read. Those that are gone or have another size since are left out, and so are those that
    could not be read then: they are in quarantine as a whole."""

    rows: DataFrame
    stages: StagedPipeline
    replay_input: ReplayInput
    names: list[str]


def read_files(context: RecomputeContext, entry: Entry, source: FilesSource) -> FilesRead:
    table = context.table
    reader = FilesReader(context.spark, source, context.store, table.name)
    request = ReplayRequest(entry.after, context.start_position(entry), entry.topics)
    covered = reader.replay_input(context.spark, request)
    current_sizes = {file.name: file.size for file in list_files(context.spark, source, table.name).files}
    listed_sizes = {row.path: row.size for row in covered.rows.select("path", "size").collect()}
    changed = tuple(name for name, size in listed_sizes.items() if current_sizes.get(name) != size)
    unreadable = _unreadable_files(context)
    names = sorted(set(listed_sizes) - set(changed) - unreadable)
    choice = replace(reader.schema.require(), stops_at_new_fields=False)
    survey = reader.schema.format.survey(names, choice.schema) if names else Survey()
    stages = staged_table(table, reader, choice, survey)
    frame = reader.schema.format.rows(names, choice, survey, max(1, len(names) // 100))
    adjusted = ReplayInput(covered.rows, missing_files=tuple(sorted({*covered.missing_files, *changed})))
    return FilesRead(Suppression(table, context.store).drop_suppressed_input(frame), stages, adjusted, names)


def _file_rows(
    context: RecomputeContext, content: Content, source: FilesSource, suppression: Suppression
) -> SourceRows:
    table, entry = context.table, content.entry
    assert entry is not None
    files = read_files(context, entry, source)
    lookups = Lookups(table, context.store).read(context.spark, entry.pins)
    output = files.stages.run(files.rows, entry.pins, lookups)
    excuses, reshaped = list(_excuses(context, content, files.stages)), None
    if source.new_fields == "add" and source.format == "json" and may_reshape(table):
        if table.write.source:
            reshaped = files.stages.with_empty_field(files.rows, entry.pins)
        else:
            excuses.append(GREW)
    return SourceRows(suppression.drop_suppressed(output.rows), files.replay_input, excuses, reshaped)


def _unreadable_files(context: RecomputeContext) -> set[str]:
    quarantine = context.companion_rows(quarantine_of(context.table.name, context.table.uri).uri)
    if quarantine is None:
        return set()
    rejected = quarantine.where(f"{SOURCE}.row IS NULL")
    return {row.file for row in rejected.selectExpr(f"{SOURCE}.file AS file").distinct().collect()}


def filling_entry(content: Content) -> Entry | None:
    """The replay that made what the table held before its batches, if there was one."""
    return next((entry for entry in content.entries if entry.kind != "batch" and entry.batch == 0), None)


def covered_rows(context: RecomputeContext, entry: Entry, filled: Entry | None = None) -> ReplayInput:
    """What the source still has of what the table read. If `filled`, a replay of a table that follows changes, it
    starts with the table upstream as it was then, and no changes."""
    start_positions = context.start_position(entry)
    if filled is not None and context.table.source.follows_changes:
        filled_position = parse_version(filled.after[0])
        start_positions = (str(Version(filled_position.table_id, filled_position.read_up_to, snapshot=True)),)
    request = ReplayRequest(entry.after, start_positions, entry.topics)
    return context.reader().replay_input(context.spark, request)


def _without_failed(context: RecomputeContext, rows: DataFrame) -> DataFrame:
    """The rows without the records on which a transform raised: they are in quarantine, and would stop the
    comparison."""
    table, raw = context.table, context.table.input.raw
    quarantine = context.companion_rows(quarantine_of(table.name, table.uri).uri) if table.may_reject else None
    if quarantine is None:
        return rows
    failed = quarantine.where(f"error_reason = '{FAILED}'")
    if failed.isEmpty():
        return rows
    if table.topics is not None:
        names = {"topic": "topic", "partition": "partition", "offset": "offset"}
    elif table.input.coordinates == "kafka":
        names = {name: raw[name] for name in ("topic", "partition", "offset")}
    elif table.input.coordinates == "carried" and SOURCE in rows.columns:
        return rows.join(failed.select(SOURCE), SOURCE, "left_anti")
    else:
        return _without_contents(context, rows, failed.count())
    failed_places = failed.selectExpr(*(f"{SOURCE}.{name} AS __{name}" for name in names))
    conditions = [rows[column] == failed_places[f"__{name}"] for name, column in names.items()]
    return rows.join(failed_places, conditions, "left_anti")


def _without_contents(context: RecomputeContext, rows: DataFrame, failed: int) -> DataFrame:
    """Rows without coordinates are recognised by their content, which the entries of their batches have. Some may have
    been redriven since: then those that are left cannot be told apart, and the comparison says what it stopped at."""
    commits = context.log.backwards()
    places = {place for commit in commits if commit.entry is not None for place in commit.entry.pins.set_aside}
    return Places(context.table).without(rows, sorted(places)) if len(places) == failed else rows


def changed_upstream(context: RecomputeContext) -> list[str]:
    """Excuses if the table upstream changed: rows that were read may be gone there since, and rows of files that were
    rewritten may have come again."""
    source = context.table.delta
    if source is None or source.changes:
        return []
    version = last_changed_version(context.upstream_log)
    return [f"version {version} of {context.upstream} changed rows there"] if version is not None else []


def _excuses(context: RecomputeContext, content: Content, stages: StagedPipeline) -> list[str]:
    plan, merge = context.table.stages, context.table.write.merge
    excuses = changed_upstream(context)
    if plan is None:
        return excuses
    if stages.is_nondeterministic:
        excuses.append("its Python function may give other rows each time")
    texts = [expectation.check for expectation in plan.expect] + (
        [plan.transform.sql or ""] if plan.transform is not None else []
    )
    texts += [merge.sequence, merge.deleted, merge.time or ""] if merge is not None else []
    if any(with_batch_time(text, 0) != text for text in texts):
        excuses.append("its SQL asks for the time of the batch")
    if len({tuple(sorted(entry.pins.lookups.items())) for entry in content.entries}) > 1:
        excuses.append("its lookups have changed between its batches")
    if not content.from_start and plan.lookups:
        excuses.append("which versions of its lookups the older batches used is no longer in the log")
    return excuses
