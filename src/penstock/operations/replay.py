"""Rebuilding a table from what it has read: open a generation, fill it, settle its quarantine, in one visible
commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import Conflict, Terminal
from penstock.ledger.checkpoint import folder_of, heal
from penstock.ledger.commit import must_confirm
from penstock.ledger.entry import Counts, Pins, Watermark
from penstock.ledger.generations import open_generation
from penstock.ledger.head import advance, read_head, refuse_foreign_changes
from penstock.ledger.pending import (
    Replay,
    began_of,
    document,
    kept_of,
    owes_jump,
    owes_settling,
    pending_replay,
    pending_rewind,
    settling,
)
from penstock.ledger.position import Version, parse_version
from penstock.ledger.row_counts import BATCHES, READ, store_row_counts
from penstock.ledger.source import ReplayRequest
from penstock.ledger.write_target import StagedOverwrite
from penstock.ledger.writer import PinnedInputs
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.storage.locks import acquire_commit
from penstock.tables.columns import differences
from penstock.tables.kinds import look_at_table, open_table
from penstock.tables.merge.tombstones import next_generation, settle_tombstones, tombstone_table
from penstock.tables.quarantine import Quarantine
from penstock.tables.session import completed_if_it_can_be
from penstock.tables.suppression import Suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets
    from penstock.ledger.source import ReplayInput
    from penstock.ledger.writer import BatchProcessor
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# Rows of a table that a replay leaves as they are: what they were made of is no longer to be had.


_IN_SOURCE = {name: f"{SOURCE}.{name}" for name in ("topic", "partition", "offset")}


def kept_rows(table: TablePlan, covered: ReplayInput) -> str | None:
    """A condition upon its rows; None: all of them are made anew. Raises where they cannot be told apart."""
    if covered.whole:
        return None
    if table.write.merge is not None or (table.stages is not None and not table.write.source):
        raise Terminal(
            "its source no longer has everything that the table was made of, and rows of "
            + ("a merged table are made of many records" if table.write.merge else "this table do not say of which")
            + ": a replay would lose some",
            where=table.name,
            hint="land the topic in a bronze table and replay from there; or begin anew with what there is: "
            f"`penstock checkpoints reset {table.name} --to earliest`",
        )
    if covered.gone:
        return _of_files(covered.gone)
    assert covered.held is not None
    landed = {name: quote(table.columns[name]) for name in _IN_SOURCE} if table.stages is None else _IN_SOURCE
    return _before(covered.held, landed)


def kept_rejects(covered: ReplayInput) -> str | None:
    """The same upon the rows of its quarantine."""
    if covered.whole:
        return None
    return _of_files(covered.gone) if covered.gone else _before(covered.held or {}, _IN_SOURCE)


def _of_files(names: tuple[str, ...]) -> str:
    return f"{SOURCE}.file IN ({', '.join(map(literal, names))})"


def _before(held: Offsets, columns: Mapping[str, str]) -> str:
    topic, partition, offset = (columns[name] for name in ("topic", "partition", "offset"))
    topics = ", ".join(literal(name) for name in sorted(held))
    parts = [f"{topic} IS NULL OR {topic} NOT IN ({topics})" if topics else "true"]
    parts += [
        f"{topic} = {literal(name)} AND {partition} = {number} AND {offset} < {first}"
        for name, partitions in sorted(held.items())
        for number, first in sorted(partitions.items())
        if first > 0
    ]
    return " OR ".join(f"({part})" for part in parts)


# After a fill: rejected rows, and tombstones, of the generations before it are of rows that are no longer there.


def settle_quarantine(
    spark: SparkSession, table: TablePlan, store: Store, tail: LedgerHead, *, idempotent: bool
) -> None:
    """Under the table's commit lock. Nothing happens if it is done already, or if the last entry is no fill."""
    if not owes_settling(tail.entry):
        return
    tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
    if tombstones is not None and tombstones.filled < tail.entry.generation:
        tombstones.drop(f"generation < {tail.entry.generation}", replace(tail.entry, kind="fill", pending={}))
    if not table.may_reject:
        return
    quarantine = Quarantine(spark, store, quarantine_of(table.name, table.uri), "", idempotent=idempotent)
    generation, kept = tail.entry.generation, kept_of(tail.entry)
    if not quarantine.exists or quarantine.filled >= generation:
        return
    older = f"generation < {generation}"
    condition = older if kept is None else f"{older} AND NOT coalesce({kept}, false)"
    quarantine.drop(condition, replace(tail.entry, kind="fill", pending={}))


def drop_rejects_since(
    spark: SparkSession, table: TablePlan, store: Store, generation: int, tail: LedgerHead, *, idempotent: bool
) -> None:
    """Those of replays that came to nothing, in the generations between this one and that of the last entry, and their
    tombstones."""
    entry = replace(tail.entry, kind="open", pending={})
    between = f"generation > {generation} AND generation < {entry.generation}"
    settle_tombstones(spark, table, store, tail, idempotent=idempotent)
    if not table.may_reject:
        return
    quarantine = Quarantine(spark, store, quarantine_of(table.name, table.uri), "", idempotent=idempotent)
    if quarantine.exists:
        quarantine.drop(between, entry)


# A table made anew from what it has read: its function over all of that, and one commit that readers see.
#
# The table's generation was opened for it, so whoever wrote the one before is fenced and waits. Files are written
# first; then, under the table's lock, its rejected rows, the commit, the checkpoint. Killed anywhere, it is begun
# again in a generation of its own: rejected rows of one that never came to its commit do not count, and go in the
# end.


PARTS = 64
"""Of what is shuffled; Spark puts small ones together."""
Say = Callable[[str], None]


class SuppressionListChanged(Conflict):
    """What was made holds rows of somebody who is on the list by now: it is made once more."""


@dataclass(frozen=True)
class Filled:
    tail: LedgerHead
    rows: int
    kept: int
    row_counts: RowCounts


def fill(work: TableSession, opened: LedgerHead, say: Say = lambda _: None) -> Filled:
    """`opened` is the generation's own entry. Conflict if another process has filled it, or opened another."""
    replay = pending_replay(opened.entry)
    assert replay is not None
    table, session = work.table, work.spark.newSession()
    # The settings of a batch would sort and join all that was ever read in as many parts as there are cores.
    session.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", PARTS)
    made = look_at_table(work.spark, table, work.store, work.source)
    function = open_table(work.spark, made, table, work.store, opened.entry, idempotent=work.idempotent)
    asked = asked_of(table, opened.entry, replay)
    covered = work.source.covered(session, asked)
    kept = kept_rows(table, covered)
    entry = fill_entry(table, opened, replay, function, covered.rows)
    suppression = Suppression(table, work.store)
    there = suppression.own(session.read.format("delta").load(table.uri).where(kept)) if kept is not None else None
    refill = StagedOverwrite(session, table.uri, idempotent=work.idempotent, kept=there)
    if differences(session.read.format("delta").load(table.uri).schema, made.schema):
        refill.columns(made.schema)
    try:
        say("rows are written")
        function.write(covered.rows, entry, refill, files=0)
        for remark in getattr(function, "remarks", ()):
            say(remark)
        entry = refill.entry or entry
        say("rows are committed")
        acquire_commit(work.lock, table.name)
        try:
            return _commit(work, opened, function, covered, refill, entry)
        finally:
            work.lock.release()
    finally:
        function.done()


def asked_of(table: TablePlan, entry: Entry, replay: Replay) -> ReplayRequest:
    """What of the source is read."""
    as_state = table.write.merge is not None or table.aggregate is not None
    return ReplayRequest(entry.after, entry.began, entry.topics, replay.at, as_state)


def fill_entry(
    table: TablePlan, opened: LedgerHead, replay: Replay, function: BatchProcessor, batch: DataFrame
) -> Entry:
    last, base = opened.entry, replay.at
    if base is None and table.versions is not None:
        base = parse_version(last.after[0]).read_up_to
    if table.aggregate is not None and table.aggregate.emit == "final":
        was = last.pins.watermark or Watermark()  # windows that are closed stay closed, with all their rows
        pinned = PinnedInputs(watermark=replace(was, closed=None))
    else:
        pinned = function.pin(batch, last.pins, last.after)
    return last.followed(
        "fill",
        before=last.after,
        pins=Pins(time.time_ns() // 1_000_000, table.definition, pinned.lookups, pinned.watermark),
        counts=Counts(),
        note=last.note,
        base=base,
        horizon=None,
    )


def _commit(
    work: TableSession,
    opened: LedgerHead,
    function: BatchProcessor,
    covered: ReplayInput,
    refill: StagedOverwrite,
    entry: Entry,
) -> Filled:
    """Under the lock."""
    table, log = work.table, work.log
    tail = advance(opened, log)
    if tail.entry.key != opened.entry.key or tail.entry.kind == "fill":
        raise Conflict(
            f"another process has gone on with the table: {tail.entry.kind} {tail.entry.generation}.{tail.entry.batch}",
            where=table.name,
            hint="nothing of this replay is in the table; `penstock history` shows what is",
        )
    if function.outdated:
        raise SuppressionListChanged("a subject was added to the suppression list meanwhile", where=table.name)
    refuse_foreign_changes(tail, log)
    rows = entry.applied if entry.applied is not None else refill.rows
    row_counts = function.complete(covered.rows, entry, rows=rows, written=True)
    kept = refill.keep()
    if kept:  # they count as read, so that what was read and what is there are in balance
        entry = replace(entry, counts=Counts(row_counts={BATCHES: 0, READ: kept} if row_counts else {}))
    entry = replace(entry, seen=tail.version, pending=settling(kept_rejects(covered), covered.held))
    refill.commit(entry)
    tail = must_confirm(tail, log, entry)
    folder = folder_of(table.checkpoints, tail.entry)
    heal(work.store, folder, tail.entry)
    if row_counts:
        store_row_counts(work.store, folder, tail.entry.batch, row_counts)
    settle_quarantine(work.spark, table, work.store, tail, idempotent=work.idempotent)
    return Filled(replace(tail, row_counts=row_counts), rows, kept, row_counts)


# Opening a generation for a replay, and going on with one that was cut off.


def open_replay(work: TableSession, at: int | None, note: str) -> LedgerHead:
    """From here on the writer of the generation before is fenced. `at` is a version of the table upstream, which the
    table goes on after; None: it is read as far as the table has, and goes on where it is."""
    acquire_commit(work.lock, work.table.name)
    try:
        tail = read_head(work.log)
        if tail is None:
            raise Terminal("it was never made", where=work.table.name, hint="`penstock run` makes it")
        refuse_foreign_changes(tail, work.log)
        _refuse_rewind(work, tail.entry, at)
        tail = completed_if_it_can_be(work, tail)  # should it be aborted
        entry, owed = tail.entry, pending_replay(tail.entry)
        since, position = (owed.since, owed.position) if owed else (entry.generation, entry.after)
        after = position
        if at is not None:
            after = (str(Version(parse_version(entry.after[0]).table_id, at + 1)),)
        opened = _open(work, tail, Replay(since, position, at), after, note)
        settle_tombstones(work.spark, work.table, work.store, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _refuse_rewind(work: TableSession, entry: Entry, at: int | None) -> None:
    """The position that it has is not that of its rows, or not the one that it goes on at."""
    if pending_rewind(entry) is not None or (at is None and owes_jump(entry)):
        raise Terminal(
            "a rewind of it, or of the table that it reads, is not done yet",
            where=work.table.name,
            hint="`penstock run` finishes it",
        )


def replay(work: TableSession, at: int | None, note: str, say: Say = lambda _: None) -> Filled:
    while True:
        try:
            return fill(work, open_replay(work, at, note), say)
        except SuppressionListChanged:
            say("somebody was to be forgotten meanwhile: it is made again")


def owed(work: TableSession) -> LedgerHead | None:
    """The end of the ledger if a replay was opened and not filled."""
    tail = read_head(work.log)
    return tail if tail is not None and pending_replay(tail.entry) is not None else None


def resume(work: TableSession, tail: LedgerHead, say: Say) -> Filled:
    """In a generation of its own: what the process that was cut off has left behind is of another one."""
    asked = pending_replay(tail.entry)
    assert asked is not None
    return replay(work, asked.at, tail.entry.note or "replay", say)


def abort(work: TableSession, tail: LedgerHead) -> LedgerHead:
    """The table goes on as it is, from where it was before the replay was opened. What that has left beside the table
    goes when it cannot be filled any more; killed in between, at the next start."""
    entry = tail.entry
    asked = pending_replay(entry)
    if asked is None:
        raise Terminal("no replay of it is open", where=work.table.name, hint="there is nothing to abort")
    acquire_commit(work.lock, work.table.name)
    try:
        opened = _open(work, advance(tail, work.log), None, asked.position, "replay aborted")
        drop_rejects_since(work.spark, work.table, work.store, asked.since, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _open(work: TableSession, tail: LedgerHead, replay: Replay | None, after: tuple[str, ...], note: str) -> LedgerHead:
    entry = tail.entry
    return open_generation(
        work.spark,
        work.log,
        tail,
        work.table.uri,
        after=after,
        topics=entry.topics,
        subscription=entry.subscription,
        definition=work.table.definition,
        note=note,
        began=_began(work, entry, replay),
        pending=document(replay) if replay is not None else None,
        at_least=next_generation(work.store, work.table),
    )


def _began(work: TableSession, entry: Entry, replay: Replay | None) -> tuple[str, ...] | None:
    """All rows of a version upstream are read wherever the table had begun."""
    if replay is None:
        return None
    if replay.at is None:
        return began_of(work.log, entry)
    return (str(replace(parse_version(entry.after[0]), version=replay.at, index=-1, snapshot=True)),)
