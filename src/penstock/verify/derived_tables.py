"""A table with stages, or one that reads another: nothing of what it read may be missing without a reason.

By coordinates where rows have them: what the source holds is in the table, in its quarantine, or was left out by a rule
that the project names, and the ledger counted how many that were. Else by those counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger import position
from penstock.ledger.checkpoint import folder_of
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.position import parse_version
from penstock.ledger.row_counts import read_row_counts
from penstock.operations.staleness import stale_against
from penstock.plan.quarantine import quarantine_of, tombstones_of
from penstock.storage.delta_rows import count_at
from penstock.verify.bronze import ask_about_gaps, before_the_log, stand
from penstock.verify.coordinates import IN_FILE, IN_SOURCE, Coordinates, Spans, compare, summed
from penstock.verify.counts import conserved, unbalanced, wrong_batches, wrong_rejects
from penstock.verify.recompute.applicability import ALIVE, not_made
from penstock.verify.report import Partition
from penstock.verify.rows import Rows, read_at, rows_at
from penstock.verify.upstream import (
    changed_upstream,
    columns_upstream,
    of_last_batch,
    read_upstream,
    redacted,
    reshapes,
    stand_upstream,
)

if TYPE_CHECKING:
    from penstock.operations.broker import TopicOffsets
    from penstock.plan.model import TablePlan
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Columns, Expected
    from penstock.verify.ledger_walk import Chain


def verify_derived(look: VerifyContext, held: TopicOffsets | None) -> None:
    """`held`: what the broker has, if the table reads Kafka."""
    try:
        _verify(look, held)
    except PenstockError as error:
        look.report.problems.append(error.message)
        look.report.hint = look.report.hint or error.hint
    look.report.problems = list(dict.fromkeys(look.report.problems))


def _verify(look: VerifyContext, held: TopicOffsets | None) -> None:
    table, report = look.table, look.report
    columns = _columns(table)
    rows = Rows(table.name, table.uri, columns) if columns else None
    chain = look.walk(rows_at(rows) if rows and held else lambda _: Coordinates())
    if held is not None:
        stand(look, held)
    else:
        stand_upstream(look)
        _say_stale(look)
    if (check := not_made(table, look.tail.version)) is not None:
        report.checks.append(check)
    if table.kind in _WITHOUT_COORDINATES:
        _WITHOUT_COORDINATES[table.kind](look)
    elif table.write.merge is not None:
        _merged(look, chain)
    elif rows is None:
        _counted(look, chain)
    else:
        _by_coordinates(look, chain, held, rows)


def _stream(look: VerifyContext) -> None:
    look.report.rows = count_at(look.table.uri, look.tail.version)
    look.report.notes.append(
        "its rows rest on Spark's state: that each batch follows the last is all that can be proved"
    )


def _sink(look: VerifyContext) -> None:
    sink = look.table.sink
    assert sink is not None
    look.report.rows = look.tail.counts.total
    sent = "changes" if sink.follows_changes else "rows"
    look.report.notes.append(f"{sent} sent to {sink.name}, as its ledger counts them; what is there is not read")


def _aggregate(look: VerifyContext) -> None:
    look.report.rows = count_at(look.table.uri, look.tail.version)


def _windows(look: VerifyContext) -> None:
    _aggregate(look)
    quarantined = look.report.quarantined = _quarantined(look, None).rows
    look.report.notes.append(f"{quarantined:,} rows came too late or without a time, and are in quarantine")


_WITHOUT_COORDINATES = {"stream": _stream, "sink": _sink, "aggregate": _aggregate, "windows": _windows}
"""Kinds of tables whose rows do not say which records they were made of."""


def _merged(look: VerifyContext, chain: Chain) -> None:
    table, report = look.table, look.report
    report.rows = count_at(table.uri, look.tail.version, ALIVE)
    beside = tombstones_of(table.name, table.uri)
    if look.store.names(f"{beside.uri}/_delta_log"):
        report.problems += [f"tombstones: {one}" for one in look.damaged_files(beside.uri, None)]
    _balance(look, chain, _quarantined(look, None).rows)


def _counted(look: VerifyContext, chain: Chain) -> None:
    """Its rows have no coordinates that tell them apart."""
    table, report = look.table, look.report
    report.rows = count_at(table.uri, look.tail.version)
    of_changes = table.source.follows_changes
    of_files = table.input.origin == "file" and (table.stages is None or table.write.source) and not of_changes
    origin = "tell changes of another table" if of_changes else "do not say where they came from"
    origin = "came from files" if of_files else origin
    report.notes.append(f"its rows {origin}: that none is missing rests on the counts of its batches")
    if of_files and table.input.stable and not reshapes(table):
        report.problems += _doubled_lines(look)
    _balance(look, chain, _quarantined(look, None).rows)


def _by_coordinates(look: VerifyContext, chain: Chain, held: TopicOffsets | None, rows: Rows) -> None:
    report = look.report
    found = read_at(rows, look.tail.version, {}, look.step("reading the coordinates of every row"))
    quarantined = _quarantined(look, IN_SOURCE)
    report.rows, report.without = found.rows, found.without - chain.earlier_without
    if held is not None:
        before_the_log(look, chain, found)
    _compare(look, chain, held, summed(found, quarantined))
    _balance(look, chain, quarantined.rows)
    if not chain.foreign and not any(one.skipped or one.again for one in chain.accepted):
        report.problems += wrong_batches(look, found)


def _doubled_lines(look: VerifyContext) -> Iterator[str]:
    """A row of a file, by its number, that is in the table, or in it and its quarantine, more than once."""
    table = look.table
    found = read_at(
        Rows(table.name, table.uri, IN_FILE), look.tail.version, {}, look.step("reading where rows are from")
    )
    both = summed(found, _quarantined(look, IN_FILE))
    for (file, _), repeated in sorted(both.repeated.items()):
        for one in repeated[:10]:
            which = f"row {one.start}" if one.end == one.start + 1 else f"rows {one.start} to {one.end - 1}"
            yield (
                f"{which} of {file} are there {one.times} times"
                if "rows" in which
                else (f"{which} of {file} is there {one.times} times")
            )


def _say_stale(look: VerifyContext) -> None:
    found = stale_against(look.table, look.tail, look.store)
    if found is not None:
        look.report.doubts.append(
            f"stale: {found.upstream} was rebuilt in its version {found.version}, and this table was not yet: "
            f"{found.hint}"
        )


def _columns(table: TablePlan) -> Columns | None:
    if table.write.merge is not None or table.source.follows_changes:
        return None
    if table.input.origin != "kafka" or (table.stages is not None and not table.write.source):
        return None
    if table.stages is not None:
        return IN_SOURCE
    return columns_upstream(table)


def _quarantined(look: VerifyContext, columns: Columns | None) -> Coordinates:
    """Of the batches that the table has: a running one may be further by now."""
    table, entry = look.table, look.tail.entry
    place = quarantine_of(table.name, table.uri)
    if not table.may_reject or not DeltaLog(look.store, place.uri, place.table).versions():
        return Coordinates()
    look.report.problems += [f"quarantine: {one}" for one in look.damaged_files(place.uri, None)]
    where = f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"
    if columns is None:
        return Coordinates(rows=count_at(place.uri, None, where))
    return read_at(Rows(place.table, place.uri, columns, where), None, {})


def _balance(look: VerifyContext, chain: Chain, quarantined: int) -> None:
    if not look.table.staged:
        return
    report = look.report
    report.conserved = conserved(look, chain)
    report.quarantined = quarantined
    if report.conserved.uncounted:
        report.notes.append(
            f"what became of the rows of {report.conserved.uncounted} batches is not counted: a crash took the "
            "numbers, or an earlier version of Penstock wrote them"
        )
    if not chain.foreign:
        report.unbalanced = list(unbalanced(look, report.conserved, report.rows, quarantined, chain.earlier_rows))
        report.problems += report.unbalanced
        if not report.conserved.uncounted and look.table.may_reject:
            report.problems += wrong_rejects(look)


def _compare(look: VerifyContext, chain: Chain, held: TopicOffsets | None, found: Coordinates) -> None:
    table, report = look.table, look.report
    if held is not None:
        at_least = at_most = chain.expected
    else:
        columns = columns_upstream(table)
        assert columns is not None
        upstream = read_upstream(look, chain, columns)
        at_least, at_most = upstream.at_least, upstream.at_most
    report.partitions = [Partition(*key, at_most.once(key), one) for key, one in compare(at_most, found).items()]
    for one in report.partitions:
        one.difference.gaps = at_least.once(one.key) - found.present.get(one.key, Spans())
        if table.stages is not None and table.stages.transform is not None:  # it may make many rows of one
            one.difference.doubled, one.difference.short = [], []
    if any(one.difference.gaps for one in report.partitions) and _was_cut_off(look):
        _without_last_batch(look, held)
    if held is None and any(one.unexpected for one in report.partitions) and changed_upstream(look):
        gone = sum(one.unexpected.size for one in report.partitions)
        report.notes.append(f"{gone:,} rows are of records that the table upstream no longer holds")
        for one in report.partitions:
            one.difference.unexpected = Spans()
    _gaps(look, chain, held, at_least)


def _was_cut_off(look: VerifyContext) -> bool:
    """Nothing says that the rejected rows of the last batch were written: a crash came before them, and the next run
    writes them."""
    table, entry = look.table, look.tail.entry
    if not table.may_reject or entry.kind not in ("batch", "carry") or entry.batch == 0:
        return False
    folder = folder_of(table.checkpoints, entry)
    if (
        read_row_counts(look.store, folder, entry.batch)
        or look.store.read(f"{folder}/commits/{entry.batch}") is not None
    ):
        return False
    place = quarantine_of(table.name, table.uri)
    log = DeltaLog(look.store, place.uri, place.table)
    entries = (commit.entry for version in reversed(log.versions()) if (commit := log.commit(version)) is not None)
    last = next((one for one in entries if one is not None), None)
    return last is None or last.key < entry.key


def _without_last_batch(look: VerifyContext, held: TopicOffsets | None) -> None:
    """What its last batch has read is left out of what is missing."""
    entry, left = look.tail.entry, 0
    if held is None:
        columns = columns_upstream(look.table)
        assert columns is not None
        read = of_last_batch(look, columns)
    else:
        read = {}
        for before, after in zip(entry.before, entry.after, strict=True):
            for span in position.ranges(before, after):
                read.setdefault((span.topic, span.partition), Spans()).add(span.start, span.end)
    for one in look.report.partitions:
        of_it = one.difference.gaps & read.get(one.key, Spans())
        one.difference.gaps = one.difference.gaps - of_it
        left += of_it.size
    if left:
        look.report.doubts.append(
            f"batch {entry.generation}.{entry.batch} was cut off before its rejected rows were written: {left:,} of "
            "its records are not in the table, and `penstock run` writes those that it rejects"
        )


def _gaps(look: VerifyContext, chain: Chain, held: TopicOffsets | None, at_least: Expected) -> None:
    """What is in neither the table nor its quarantine."""
    report, parts = look.report, look.report.partitions
    allowed = _left_out(look, chain)
    # An offset that was read twice, and left out once: by decision, or because its topic was made again.
    short = sum(twice.end - twice.start for one in parts for twice in one.difference.short)
    if allowed is None or sum(one.difference.gaps.size for one in parts) + short <= allowed:
        _without_short(parts)
        return
    if held is not None:
        ask_about_gaps(look, chain, held)
    else:
        for one in parts:
            one.lost = one.difference.gaps
    missing = sum(one.lost.size for one in parts) + short
    if allowed and missing:
        _without_short(parts)
        for one in parts:
            one.lost = Spans()
        if missing > allowed:
            report.problems.append(
                f"{missing:,} records are in neither the table nor its quarantine, and only {allowed:,} were dropped, "
                "duplicates or forgotten"
            )


def _without_short(parts: Sequence[Partition]) -> None:
    for one in parts:
        one.difference.short = []


def _left_out(look: VerifyContext, chain: Chain) -> int | None:
    """How many records may be in neither; None if a filter decides, which nobody counts by record."""
    stages, source = look.table.stages, look.table.source
    if source.condition is not None or (stages is not None and stages.transform is not None):
        return None
    if stages is None:
        return 0
    counted = conserved(look, chain)
    drops = stages.dedupe is not None or any(one.does.drops for one in stages.expect)
    if drops and counted.uncounted:
        return None
    return counted.left_out + max(0, counted.forgotten - _redacted(look)) if counted.forgotten else counted.left_out


def _redacted(look: VerifyContext) -> int:
    """Forgotten records that are not expected in the first place."""
    source, entry = look.table.versions, look.tail.entry
    return redacted(source, parse_version(entry.after[0]).read_up_to) if source is not None else 0
