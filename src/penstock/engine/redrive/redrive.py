"""Rejected rows run once more, by the table's definition of now: those that pass land, once, and leave the quarantine;
the others stay, with their new reason.

Four commits: the rows are marked in the quarantine; what passes is appended to the table; an entry says what became of
them; the marked rows are settled. Killed in between, the next redrive finds the mark and finishes that one first. All
under the table's commit lock.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.files.reader import FilesReader
from penstock.engine.forget.function import Forgetting
from penstock.engine.forget.suppression import Suppression
from penstock.engine.grow import Growing, grows, stages_for
from penstock.engine.isolation.function import Isolating
from penstock.engine.lookups import Lookups
from penstock.engine.merge.tombstone_table import tombstone_table
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.commit import append_nothing, confirm, must_confirm
from penstock.engine.protocol.entry import WHOLE, Counts, Entry, Pins, Place
from penstock.engine.protocol.fates import (
    DROPPED,
    DUPLICATES,
    FORGOTTEN,
    REJECTED,
    RESHAPED,
    SUPERSEDED,
    Fates,
    added,
    read_fates,
)
from penstock.engine.protocol.into import Table
from penstock.engine.protocol.ledger import Tail, advance, read_tail, refuse_foreign_changes
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.log import Commit
from penstock.engine.redrive.marked import Marked
from penstock.engine.redrive.of_files import of_files
from penstock.engine.redrive.records import as_batch, refuse_kind
from penstock.engine.redrive.runnable import Runnable
from penstock.engine.redrive.staying import staying
from penstock.engine.replay.fill import Work
from penstock.engine.replay.pending import pending_replay
from penstock.engine.rewind.pending import pending_rewind
from penstock.engine.staged import MOST_IN_FILE, Staged
from penstock.engine.stages.coordinates import SOURCE, with_own_source
from penstock.engine.table_function import table_function
from penstock.errors import Terminal, Transient
from penstock.plan.model import TablePlan

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


def redrive(work: Work, condition: str | None) -> list[Redriven]:
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


def _run_or_leave(work: Work, marked: Marked, name: str, rows: int) -> Redriven:
    """What cannot be run stays as it was: left marked, it would come before every later redrive. If even that fails,
    the next redrive does it."""
    try:
        return _run(work, marked, name, rows)
    except Exception:
        with suppress(Exception):
            tail = read_tail(work.log)
            if tail is not None and not _appended(work, tail, name):
                marked.settle(name, marked.of(name), files=1 + rows // MOST_IN_FILE)
        raise


def _run(work: Work, marked: Marked, name: str, rows: int) -> Redriven:
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
            into = Table(table.uri, work.idempotent)
            function.write(batch, entry, into, files=1 + rows // MOST_IN_FILE)
            entry = into.entry or entry
            landed = _landed(work, tail, entry)
            fates: Fates = function.counted(batch, entry, landed)
        else:
            _refuse_unknown(work, appended[0], name)
            landed, fates = appended[0].rows, {}
            function.look(batch, entry)
        unclear = _landed_by(rejected, table, None) if appended and known is not None else None
        stay = staying(rejected, function.rejected(batch, entry), entry, unsure, unclear)
        if runnable.untouched is not None:
            stay = stay.unionByName(_untouched(work, runnable.untouched, landed=bool(appended)))
        reasons = {str(row[0]): int(row[1]) for row in stay.groupBy("error_reason").count().collect()}
        left = rows - sum(reasons.values())
        if len(appended) < 2:
            _count(work, entry, left, landed, fates)
        marked.settle(name, stay, files=1 + (rows - left) // MOST_IN_FILE)
    finally:
        function.done()
    return Redriven(name, rows, landed, left, reasons)


def _runnable(work: Work, rejected: DataFrame, last: Entry) -> Runnable:
    table = work.table
    if isinstance(work.source, FilesReader):
        return of_files(work, rejected)
    made = table_function(work.spark, table, work.store, work.source)
    stages = made.stages
    assert stages is not None
    suppression, lookups = Suppression(table, work.store), Lookups(table, work.store)
    if grows(table):
        growing = Growing(work.spark, table, work.store, suppression)
        entry = replace(last, pins=replace(last.pins, lookups=lookups.newest()))
        stages = stages_for(table, growing.redriven(as_batch(rejected, table), entry), "judge")
    tombstones = tombstone_table(work.spark, work.store, table, idempotent=work.idempotent)
    staged = Staged(table, stages, lookups, None, suppression, tombstones)
    function = Isolating(Forgetting(staged, suppression), staged, table, work.log, redriving=True)
    return Runnable(function, rejected, partial(as_batch, table=table))


def _untouched(work: Work, rows: DataFrame, *, landed: bool) -> DataFrame:
    """`landed`: rows have, before the redrive was cut off; their file may have gone since."""
    if not landed or work.table.write.merge is not None:
        return rows
    return rows.join(_landed_by(rows, work.table, None), SOURCE, "left_anti")


def _tail(work: Work) -> Tail:
    tail = read_tail(work.log)
    if tail is None:
        raise Terminal("it was never made", where=work.table.name, hint="`penstock run` makes it")
    if pending_replay(tail.entry) is not None:
        raise Transient("a replay of it is not done yet", where=work.table.name, hint="`penstock run` finishes it")
    if pending_rewind(tail.entry) is not None:
        raise Transient("a rewind of it is not done yet", where=work.table.name, hint="`penstock run` finishes it")
    refuse_foreign_changes(tail, work.log)
    folder = folder_of(work.table.checkpoints, tail.entry)
    fates = read_fates(work.store, folder, tail.entry.batch)
    if tail.entry.kind == "batch" and not fates:  # its rejected rows may not be in quarantine yet
        raise Transient(
            f"batch {tail.entry.generation}.{tail.entry.batch} was cut off before all of it was written",
            where=work.table.name,
            hint=f"`penstock run --once {work.table.name}` completes it",
        )
    return replace(tail, fates=fates)


def _appended(work: Work, tail: Tail, name: str) -> list[Commit]:
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


def _refuse_unknown(work: Work, appended: Commit, name: str) -> None:
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


def _landed(work: Work, tail: Tail, entry: Entry) -> int:
    """How many rows of it are in the table: what is settled in the quarantine afterwards rests upon that. So where its
    commit is not in the log, it is made without rows; Delta refuses that if another process came first."""
    if confirm(tail, work.log, entry) is None:
        append_nothing(work.spark, work.table.uri, entry)
        must_confirm(tail, work.log, entry)
    return next(commit.rows for commit in work.log.since(tail.version) if commit.entry and commit.entry.id == entry.id)


def _count(work: Work, entry: Entry, left: int, landed: int, fates: Fates) -> None:
    """What became of the rows: from rejected to whatever they are now."""
    spark: SparkSession = work.spark
    tail = read_tail(work.log)
    assert tail is not None
    others = {name: fates.get(name, 0) for name in (DROPPED, DUPLICATES, SUPERSEDED, FORGOTTEN)}
    moved = {REJECTED: -left, **others, RESHAPED: landed + sum(others.values()) - left}
    base = tail.counts if tail.entry.note == entry.note else entry.counts
    counts = Counts(base.rows, base.total, added(base.fates, moved))
    counted = replace(tail.carried, kind="redrive", pins=tail.entry.pins, counts=counts, note=f"{entry.note}{_COUNTED}")
    append_nothing(spark, work.table.uri, counted)
    must_confirm(tail, work.log, counted)
