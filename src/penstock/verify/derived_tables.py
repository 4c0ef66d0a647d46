"""Checks a table with stages, or one that reads another: nothing it read may be missing without a reason.

Where rows have coordinates, what the source holds must be in the table, in its quarantine, or left out by a rule of the
project, and the ledger counted how many were left out. Other tables are checked by those counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from penstock.errors import PenstockError
from penstock.ledger import position
from penstock.ledger.checkpoint import checkpoint_folder
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.ledger.spans import Spans
from penstock.operations.staleness import stale_against
from penstock.plan.merge import CHANGE_FEED_DEFAULTS
from penstock.plan.quarantine import quarantine_of, tombstones_of
from penstock.plan.stages import KEY, SEQUENCE
from penstock.storage.delta_rows import count_at
from penstock.verify.context import adjust_expected_before_log, ask_about_gaps, report_position
from penstock.verify.coordinates import (
    IN_FILE,
    IN_SOURCE,
    Coordinates,
    CoordinateTable,
    compare,
    read_at,
    rows_at,
    summed,
)
from penstock.verify.counts import conserved, describe_imbalance, wrong_batches, wrong_rejects
from penstock.verify.ledger_walk import batches_up_to
from penstock.verify.report import Partition, Proof
from penstock.verify.upstream import (
    changed_upstream,
    columns_upstream,
    last_batch_coordinates,
    may_reshape,
    read_upstream,
    redacted,
    report_position_upstream,
)

if TYPE_CHECKING:
    from penstock.operations.broker import TopicOffsets
    from penstock.plan.model import TablePlan
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Columns, Expected
    from penstock.verify.ledger_walk import Chain

ALIVE = "NOT _deleted"
"""Condition for the visible rows of a merged table, for a reader without Spark."""


def verify_derived(context: VerifyContext, broker_offsets: TopicOffsets | None) -> None:
    """`broker_offsets` is what the broker has, if the table reads Kafka."""
    try:
        _verify(context, broker_offsets)
    except PenstockError as error:
        context.report.problems.append(error.message)
        context.report.hint = context.report.hint or error.hint
    context.report.problems = list(dict.fromkeys(context.report.problems))


def _verify(context: VerifyContext, broker_offsets: TopicOffsets | None) -> None:
    table, report = context.table, context.report
    columns = _coordinate_columns(table)
    rows = CoordinateTable(table.name, table.uri, columns) if columns else None
    chain = context.walk(rows_at(rows) if rows and broker_offsets else lambda _: Coordinates())
    if broker_offsets is not None:
        report_position(context, broker_offsets)
    else:
        report_position_upstream(context)
        _report_staleness(context)
    if (check := pending_check(table, context.head.version)) is not None:
        report.checks.append(check)
    if table.kind in _WITHOUT_COORDINATES:
        _WITHOUT_COORDINATES[table.kind](context)
    elif table.write.merge is not None:
        _verify_merged(context, chain)
    elif rows is None:
        _verify_counts(context, chain)
    else:
        _verify_coordinates(context, chain, broker_offsets, rows)


def _verify_stream(context: VerifyContext) -> None:
    context.report.rows = count_at(context.table.uri, context.head.version)
    context.report.notes.append(
        "its rows rest on Spark's state: that each batch follows the last is all that can be proved"
    )


def _verify_sink(context: VerifyContext) -> None:
    sink = context.table.sink
    assert sink is not None
    context.report.rows = context.head.counts.total
    unit = "changes" if sink.follows_changes else "rows"
    context.report.notes.append(f"{unit} sent to {sink.name}, as its ledger counts them; what is there is not read")


def _verify_aggregate(context: VerifyContext) -> None:
    context.report.rows = count_at(context.table.uri, context.head.version)


def _verify_windows(context: VerifyContext) -> None:
    _verify_aggregate(context)
    quarantined = context.report.quarantined = _read_quarantine(context, None).rows
    context.report.notes.append(f"{quarantined:,} rows came too late or without a time, and are in quarantine")


_WITHOUT_COORDINATES = {
    "stream": _verify_stream,
    "sink": _verify_sink,
    "aggregate": _verify_aggregate,
    "windows": _verify_windows,
}
"""Kinds of tables whose rows do not say which records they come from."""


def _verify_merged(context: VerifyContext, chain: Chain) -> None:
    table, report = context.table, context.report
    report.rows = count_at(table.uri, context.head.version, ALIVE)
    tombstones = tombstones_of(table.name, table.uri)
    if context.store.names(f"{tombstones.uri}/_delta_log"):
        report.problems += [f"tombstones: {problem}" for problem in context.damaged_files(tombstones.uri, None)]
    _check_balance(context, chain, _read_quarantine(context, None).rows)


def _verify_counts(context: VerifyContext, chain: Chain) -> None:
    """Verify a table without coordinates that identify its rows."""
    table, report = context.table, context.report
    report.rows = count_at(table.uri, context.head.version)
    follows_changes = table.source.follows_changes
    reads_files = table.input.origin == "file" and (table.stages is None or table.write.source) and not follows_changes
    origin = "tell changes of another table" if follows_changes else "do not say where they came from"
    origin = "came from files" if reads_files else origin
    report.notes.append(f"its rows {origin}: that none is missing rests on the counts of its batches")
    if reads_files and table.input.stable and not may_reshape(table):
        report.problems += _doubled_lines(context)
    _check_balance(context, chain, _read_quarantine(context, None).rows)


def _verify_coordinates(
    context: VerifyContext, chain: Chain, broker_offsets: TopicOffsets | None, rows: CoordinateTable
) -> None:
    report = context.report
    coordinates = read_at(rows, context.head.version, {}, context.step("reading the coordinates of every row"))
    quarantined = _read_quarantine(context, IN_SOURCE)
    report.rows, report.rows_without_coordinates = coordinates.rows, coordinates.without - chain.earlier_without
    if broker_offsets is not None:
        adjust_expected_before_log(context, chain, coordinates)
    _compare_coordinates(context, chain, broker_offsets, summed(coordinates, quarantined))
    _check_balance(context, chain, quarantined.rows)
    if not chain.foreign and not chain.moves:
        report.problems += wrong_batches(context, coordinates)


def _doubled_lines(context: VerifyContext) -> Iterator[str]:
    """Describe rows of files, by number, that occur more than once in the table and its quarantine together."""
    table = context.table
    coordinates = read_at(
        CoordinateTable(table.name, table.uri, IN_FILE),
        context.head.version,
        {},
        context.step("reading where rows are from"),
    )
    combined = summed(coordinates, _read_quarantine(context, IN_FILE))
    for (file, _), repeated in sorted(combined.repeated.items()):
        for stretch in repeated[:10]:
            if stretch.end == stretch.start + 1:
                yield f"row {stretch.start} of {file} is there {stretch.times} times"
            else:
                last = stretch.end - 1
                yield f"rows {stretch.start} to {last} of {file} are there {stretch.times} times"
        if len(repeated) > 10:
            yield f"{len(repeated) - 10:,} more ranges of rows of {file} are there more than once"


def _report_staleness(context: VerifyContext) -> None:
    staleness = stale_against(context.table, context.head, context.store)
    if staleness is not None:
        context.report.doubts.append(
            f"stale: {staleness.upstream} was rebuilt in its version {staleness.version}, and this table was not yet: "
            f"{staleness.hint}"
        )


def _coordinate_columns(table: TablePlan) -> Columns | None:
    if table.write.merge is not None or table.source.follows_changes or table.input.origin != "kafka":
        return None
    if table.stages is None:
        return columns_upstream(table)
    return IN_SOURCE if table.write.source else None


def _read_quarantine(context: VerifyContext, columns: Columns | None) -> Coordinates:
    """Read the quarantine of the batches that the table has."""
    table, entry = context.table, context.head.entry
    quarantine = quarantine_of(table.name, table.uri)
    if not table.may_reject or not DeltaLog(context.store, quarantine.uri, quarantine.table).versions():
        return Coordinates()
    context.report.problems += [f"quarantine: {problem}" for problem in context.damaged_files(quarantine.uri, None)]
    where = batches_up_to(entry)
    if columns is None:
        return Coordinates(rows=count_at(quarantine.uri, None, where))
    return read_at(CoordinateTable(quarantine.table, quarantine.uri, columns, where), None, {})


def _check_balance(context: VerifyContext, chain: Chain, quarantined: int) -> None:
    if not context.table.staged:
        return
    report = context.report
    report.conserved = conserved(context, chain)
    report.quarantined = quarantined
    if report.conserved.uncounted:
        report.notes.append(
            f"what became of the rows of {report.conserved.uncounted} batches is not counted: a crash took the "
            "numbers, or an earlier version of Penstock wrote them"
        )
    if not chain.foreign:
        report.unbalanced = list(
            describe_imbalance(context, report.conserved, report.rows, quarantined, chain.earlier_rows)
        )
        report.problems += report.unbalanced
        if not report.conserved.uncounted and context.table.may_reject:
            report.problems += wrong_rejects(context)


def _compare_coordinates(
    context: VerifyContext, chain: Chain, broker_offsets: TopicOffsets | None, coordinates: Coordinates
) -> None:
    table, report = context.table, context.report
    if broker_offsets is not None:
        at_least = at_most = chain.expected
    else:
        columns = columns_upstream(table)
        assert columns is not None
        upstream = read_upstream(context, chain, columns)
        at_least, at_most = upstream.at_least, upstream.at_most
    report.partitions = [
        Partition(*key, at_most.once(key), difference) for key, difference in compare(at_most, coordinates).items()
    ]
    for partition in report.partitions:
        partition.difference.gaps = at_least.once(partition.key) - coordinates.present.get(partition.key, Spans())
        if table.stages is not None and table.stages.transform is not None:  # it may make many rows from one record
            partition.difference.doubled, partition.difference.short = [], []
    if any(partition.difference.gaps for partition in report.partitions) and _was_cut_off(context):
        _excuse_last_batch(context, broker_offsets)
    if (
        broker_offsets is None
        and any(partition.unexpected for partition in report.partitions)
        and changed_upstream(context)
    ):
        removed_rows = sum(partition.unexpected.size for partition in report.partitions)
        report.notes.append(f"{removed_rows:,} rows are of records that the table upstream no longer holds")
        for partition in report.partitions:
            partition.difference.unexpected = Spans()
    _resolve_gaps(context, chain, broker_offsets, at_least)


def _was_cut_off(context: VerifyContext) -> bool:
    """Whether nothing shows that the rejected rows of the last batch were written: a crash came before them, and the
    next run writes them."""
    table, entry = context.table, context.head.entry
    if not table.may_reject or entry.kind not in ("batch", "carry") or entry.batch == 0:
        return False
    folder = checkpoint_folder(table.checkpoints, entry)
    if (
        read_row_counts(context.store, folder, entry.batch)
        or context.store.read(f"{folder}/commits/{entry.batch}") is not None
    ):
        return False
    quarantine = quarantine_of(table.name, table.uri)
    log = DeltaLog(context.store, quarantine.uri, quarantine.table)
    entries = (commit.entry for version in reversed(log.versions()) if (commit := log.commit(version)) is not None)
    last_quarantined = next((candidate for candidate in entries if candidate is not None), None)
    return last_quarantined is None or last_quarantined.key < entry.key


def _excuse_last_batch(context: VerifyContext, broker_offsets: TopicOffsets | None) -> None:
    """Remove what the last batch read from what is missing."""
    entry, excused = context.head.entry, 0
    if broker_offsets is None:
        columns = columns_upstream(context.table)
        assert columns is not None
        read_spans = last_batch_coordinates(context, columns)
    else:
        read_spans = {}
        for before, after in zip(entry.before, entry.after, strict=True):
            for span in position.ranges(before, after):
                read_spans.setdefault((span.topic, span.partition), Spans()).add(span.start, span.end)
    for partition in context.report.partitions:
        batch_gaps = partition.difference.gaps & read_spans.get(partition.key, Spans())
        partition.difference.gaps = partition.difference.gaps - batch_gaps
        excused += batch_gaps.size
    if excused:
        context.report.doubts.append(
            f"batch {entry.generation}.{entry.batch} was cut off before its rejected rows were written: {excused:,} of "
            "its records are not in the table, and `penstock run` writes those that it rejects"
        )


def _resolve_gaps(
    context: VerifyContext, chain: Chain, broker_offsets: TopicOffsets | None, at_least: Expected
) -> None:
    """Mark what is in neither the table nor its quarantine as lost, unless it was left out rightly."""
    report, partitions = context.report, context.report.partitions
    allowed = _allowed_missing(context, chain)
    # An offset that was read twice and left out once: by decision, or because its topic was recreated.
    short = sum(stretch.end - stretch.start for partition in partitions for stretch in partition.difference.short)
    if allowed is None or sum(partition.difference.gaps.size for partition in partitions) + short <= allowed:
        _clear_short(partitions)
        return
    if broker_offsets is not None:
        ask_about_gaps(context, chain, broker_offsets)
    else:
        for partition in partitions:
            partition.lost = partition.difference.gaps
    missing = sum(partition.lost.size for partition in partitions) + short
    if allowed and missing:
        _clear_short(partitions)
        for partition in partitions:
            partition.lost = Spans()
        if missing > allowed:
            report.problems.append(
                f"{missing:,} records are in neither the table nor its quarantine, and only {allowed:,} were dropped, "
                "duplicates or forgotten"
            )


def _clear_short(partitions: Sequence[Partition]) -> None:
    for partition in partitions:
        partition.difference.short = []


def _allowed_missing(context: VerifyContext, chain: Chain) -> int | None:
    """How many records may be in neither; None if a filter decides, whose effect is not counted by record."""
    stages, source = context.table.stages, context.table.source
    if source.condition is not None or (stages is not None and stages.transform is not None):
        return None
    if stages is None:
        return 0
    counts = conserved(context, chain)
    drops = stages.dedupe is not None or any(expectation.action_rules.drops for expectation in stages.expect)
    if drops and counts.uncounted:
        return None
    if not counts.forgotten:
        return counts.left_out
    versions, entry = context.table.versions, context.head.entry
    # Records that are redacted upstream are not expected in the first place.
    unexpected = redacted(versions, parse_version(entry.after[0]).read_up_to) if versions is not None else 0
    return counts.left_out + max(0, counts.forgotten - unexpected)


# What of a table can be compared with its source by Spark, and what cannot; decided without Spark.


CheckName = Literal["numbers", "copy", "changes", "merge"]
"""numbers: of an aggregate, computed again. copy: of a table that follows the changes of another. changes: of an audit
table, counted. merge: of a merged table, its changes folded again."""


def applicable_check(table: TablePlan) -> CheckName | None:
    if table.aggregate is not None:
        return "numbers"
    if not _follows_changes(table) or why_not(table) is not None:
        return "merge" if table.write.merge is not None else None
    return "copy" if table.write.merge is not None else "changes"


def why_not(table: TablePlan) -> str | None:
    """Why the rows of a table or sink that follows changes are not those of the table that it follows; None if they
    are."""
    if table.sink is not None:
        return f"what is in {table.sink.name} is not read"
    stages, merge = table.stages, table.write.merge
    if stages is None or (merge is None and stages.audit is None):
        return "its rows tell changes, as its own sql or transform makes them"
    if stages.transform is not None or stages.lookups:
        return "its own sql or transform decides its rows"
    if stages.dedupe is not None or any(expectation.name not in (KEY, SEQUENCE) for expectation in stages.expect):
        return "its own rules decide which changes it takes"
    if merge is not None and merge.ignore_nulls:
        return "NULL keeps the value that was there"
    if merge is not None and (merge.sequence, merge.deleted) != (
        CHANGE_FEED_DEFAULTS.sequence,
        CHANGE_FEED_DEFAULTS.deleted,
    ):
        return "it decides by itself which change is the newest, and which one deletes"
    return None


def pending_check(table: TablePlan, version: int) -> Proof | None:
    """The entry in the report until the check is made; None if there is no such check for the table."""
    source, check_name = table.versions, applicable_check(table)
    subject = f"{table.name} version {version}"
    if check_name == "merge":
        return Proof(check_name, subject, "its changes", "not made", "its changes are not folded again", unit="rows")
    if source is None or (check_name is None and not _follows_changes(table)):
        return None
    upstream = source.label
    if check_name == "numbers":
        return Proof("numbers", subject, upstream, "not made", "the numbers are not computed again", unit="groups")
    reason = why_not(table)
    result = f"not compared with {upstream}" + (f": {reason}" if reason else "")
    return Proof(check_name or "copy", subject, upstream, "not made", result, unit="rows")


def _follows_changes(table: TablePlan) -> bool:
    return table.source.follows_changes and table.aggregate is None
