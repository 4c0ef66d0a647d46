"""Replay: rebuilds a table from what it has read. Opens a generation, fills it and settles its quarantine; readers see
one commit."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import Conflict, Terminal
from penstock.ledger.checkpoint import checkpoint_folder, heal
from penstock.ledger.commit import must_confirm
from penstock.ledger.entry import Counts, Pins, Watermark
from penstock.ledger.generations import open_generation
from penstock.ledger.head import advance, read_head, refuse_foreign_changes
from penstock.ledger.pending import (
    Replay,
    kept_condition_of,
    owes_jump,
    owes_settling,
    pending_replay,
    pending_rewind,
    replay_document,
    settle_document,
    start_position,
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
from penstock.tables.kinds import open_table, resolve_table
from penstock.tables.merge.tombstones import next_generation, settle_tombstones, tombstone_table
from penstock.tables.quarantine import Quarantine
from penstock.tables.session import try_complete_last
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

_IN_SOURCE = {name: f"{SOURCE}.{name}" for name in ("topic", "partition", "offset")}


def kept_rows_condition(table: TablePlan, replay_input: ReplayInput) -> str | None:
    """The condition on the rows that stay; None: all are rebuilt. Terminal if those that stay cannot be identified."""
    if replay_input.complete:
        return None
    if table.write.merge is not None or (table.stages is not None and not table.write.source):
        raise Terminal(
            "its source no longer has everything that the table was made of, and rows of "
            + ("a merged table are made of many records" if table.write.merge else "this table do not say of which")
            + ": a replay would lose some",
            where=table.name,
            hint="land the topic in a bronze table and replay from there; or start over with what there is: "
            f"`penstock checkpoints reset {table.name} --to earliest`",
        )
    if replay_input.missing_files:
        return _in_files(replay_input.missing_files)
    assert replay_input.first_offsets is not None
    columns = {name: quote(table.columns[name]) for name in _IN_SOURCE} if table.stages is None else _IN_SOURCE
    return _before_offsets(replay_input.first_offsets, columns)


def kept_rejects_condition(replay_input: ReplayInput) -> str | None:
    """The same condition on the rows of its quarantine."""
    if replay_input.complete:
        return None
    if replay_input.missing_files:
        return _in_files(replay_input.missing_files)
    return _before_offsets(replay_input.first_offsets or {}, _IN_SOURCE)


def _in_files(names: tuple[str, ...]) -> str:
    return f"{SOURCE}.file IN ({', '.join(map(literal, names))})"


def _before_offsets(first_offsets: Offsets, columns: Mapping[str, str]) -> str:
    topic, partition, offset = (columns[name] for name in ("topic", "partition", "offset"))
    topics = ", ".join(literal(name) for name in sorted(first_offsets))
    conditions = [f"{topic} IS NULL OR {topic} NOT IN ({topics})" if topics else "true"]
    conditions += [
        f"{topic} = {literal(name)} AND {partition} = {number} AND {offset} < {first}"
        for name, partitions in sorted(first_offsets.items())
        for number, first in sorted(partitions.items())
        if first > 0
    ]
    return " OR ".join(f"({condition})" for condition in conditions)


# After a fill: rejected rows and tombstones of earlier generations belong to rows that no longer exist.


def settle_quarantine(
    spark: SparkSession, table: TablePlan, store: Store, head: LedgerHead, *, idempotent: bool
) -> None:
    """Drops rejected rows and tombstones that a fill has replaced, under the table's commit lock. Does nothing if that
    is done already, or if the last entry is not a fill."""
    if not owes_settling(head.entry):
        return
    tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
    if tombstones is not None and tombstones.last_filled_generation < head.entry.generation:
        tombstones.drop(f"generation < {head.entry.generation}", replace(head.entry, kind="fill", pending={}))
    quarantine = existing_quarantine(spark, table, store, idempotent=idempotent)
    generation, kept_condition = head.entry.generation, kept_condition_of(head.entry)
    if quarantine is None or quarantine.last_filled_generation >= generation:
        return
    older_rows = f"generation < {generation}"
    condition = older_rows if kept_condition is None else f"{older_rows} AND NOT coalesce({kept_condition}, false)"
    quarantine.drop(condition, replace(head.entry, kind="fill", pending={}))


def drop_rejects_since(
    spark: SparkSession, table: TablePlan, store: Store, generation: int, head: LedgerHead, *, idempotent: bool
) -> None:
    """Drops rejected rows and tombstones of replays that were given up: of the generations between this one and that of
    the last entry."""
    entry = replace(head.entry, kind="open", pending={})
    between = f"generation > {generation} AND generation < {entry.generation}"
    settle_tombstones(spark, table, store, head, idempotent=idempotent)
    quarantine = existing_quarantine(spark, table, store, idempotent=idempotent)
    if quarantine is not None:
        quarantine.drop(between, entry)


def existing_quarantine(spark: SparkSession, table: TablePlan, store: Store, *, idempotent: bool) -> Quarantine | None:
    """None if the table rejects no rows, or has no quarantine yet."""
    if not table.may_reject:
        return None
    quarantine = Quarantine(spark, store, quarantine_of(table.name, table.uri), "", idempotent=idempotent)
    return quarantine if quarantine.exists else None


# Rebuilding a table from what it has read: its function runs over all of that, and readers see one commit.
#
# A generation was opened for it, so the writer of the one before is fenced and waits. Files are written first; then,
# under the table's lock, the rejected rows, the commit, the checkpoint. Killed anywhere, the replay starts over in a
# new generation: rejected rows of a generation that was never committed do not count, and are dropped in the end.


SHUFFLE_PARTITIONS = 64
"""Partitions of a shuffle; Spark merges small ones."""
Say = Callable[[str], None]


class SuppressionListChanged(Conflict):
    """The rebuilt rows include a subject that was added to the suppression list meanwhile: they are rebuilt again."""


@dataclass(frozen=True)
class FillResult:
    head: LedgerHead
    rows: int
    kept_rows: int
    row_counts: RowCounts


def fill(work: TableSession, opened: LedgerHead, say: Say = lambda _: None) -> FillResult:
    """`opened` ends with the entry that opened the generation. Conflict if another process has filled that generation,
    or opened another."""
    replay = pending_replay(opened.entry)
    assert replay is not None
    table, session = work.table, work.spark.newSession()
    # With the settings of a batch, all that was ever read would be sorted and joined in as many parts as cores.
    session.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", SHUFFLE_PARTITIONS)
    kind = resolve_table(work.spark, table, work.store, work.source)
    processor = open_table(work.spark, kind, table, work.store, opened.entry, idempotent=work.idempotent)
    request = replay_request(table, opened.entry, replay)
    replay_input = work.source.replay_input(session, request)
    kept_condition = kept_rows_condition(table, replay_input)
    entry = fill_entry(table, opened, replay, processor, replay_input.rows)
    suppression = Suppression(table, work.store)
    kept_existing = (
        suppression.drop_suppressed(session.read.format("delta").load(table.uri).where(kept_condition))
        if kept_condition is not None
        else None
    )
    refill = StagedOverwrite(session, table.uri, idempotent=work.idempotent, kept=kept_existing)
    if differences(session.read.format("delta").load(table.uri).schema, kind.schema):
        refill.columns(kind.schema)
    try:
        say("rows are written")
        processor.write(replay_input.rows, entry, refill, files=0)
        for remark in processor.remarks:
            say(remark)
        entry = refill.entry or entry
        say("rows are committed")
        acquire_commit(work.lock, table.name)
        try:
            return _commit(work, opened, processor, replay_input, refill, entry)
        finally:
            work.lock.release()
    finally:
        processor.release()


def replay_request(table: TablePlan, entry: Entry, replay: Replay) -> ReplayRequest:
    """The part of the source that the replay reads."""
    as_state = table.write.merge is not None or table.aggregate is not None
    return ReplayRequest(entry.after, entry.began, entry.topics, replay.at, as_state)


def fill_entry(
    table: TablePlan, opened: LedgerHead, replay: Replay, processor: BatchProcessor, batch: DataFrame
) -> Entry:
    opening, base = opened.entry, replay.at
    if base is None and table.versions is not None:
        base = parse_version(opening.after[0]).read_up_to
    if table.aggregate is not None and table.aggregate.emit == "final":
        watermark = opening.pins.watermark or Watermark()  # closed windows stay closed, with all their rows
        pinned = PinnedInputs(watermark=replace(watermark, closed=None))
    else:
        pinned = processor.pin(batch, opening.pins, opening.after)
    return opening.next_entry(
        "fill",
        before=opening.after,
        pins=Pins(time.time_ns() // 1_000_000, table.definition, pinned.lookups, pinned.watermark),
        counts=Counts(),
        note=opening.note,
        base=base,
        horizon=None,
    )


def _commit(
    work: TableSession,
    opened: LedgerHead,
    processor: BatchProcessor,
    replay_input: ReplayInput,
    refill: StagedOverwrite,
    entry: Entry,
) -> FillResult:
    """Under the table's commit lock."""
    table, log = work.table, work.log
    head = advance(opened, log)
    if head.entry.key != opened.entry.key or head.entry.kind == "fill":
        raise Conflict(
            f"another process wrote to the table: {head.entry.kind} {head.entry.generation}.{head.entry.batch}",
            where=table.name,
            hint="nothing of this replay is in the table; `penstock history` shows what is",
        )
    if processor.suppression_changed:
        raise SuppressionListChanged("a subject was added to the suppression list meanwhile", where=table.name)
    refuse_foreign_changes(head, log)
    rows = entry.applied if entry.applied is not None else refill.rows
    row_counts = processor.complete(replay_input.rows, entry, rows=rows, written=True)
    kept = refill.write_kept_rows()
    if kept:  # they count as read, so that rows read and rows present balance
        entry = replace(entry, counts=Counts(row_counts={BATCHES: 0, READ: kept} if row_counts else {}))
    entry = replace(
        entry,
        seen=head.version,
        pending=settle_document(kept_rejects_condition(replay_input), replay_input.first_offsets),
    )
    refill.commit(entry)
    head = must_confirm(head, log, entry)
    folder = checkpoint_folder(table.checkpoints, head.entry)
    heal(work.store, folder, head.entry)
    if row_counts:
        store_row_counts(work.store, folder, head.entry.batch, row_counts)
    settle_quarantine(work.spark, table, work.store, head, idempotent=work.idempotent)
    return FillResult(replace(head, row_counts=row_counts), rows, kept, row_counts)


def open_replay(work: TableSession, at: int | None, note: str) -> LedgerHead:
    """Fences the writer of the generation before. `at` is a version of the table upstream, after which the table
    continues; None: the source is read as far as the table has read it, and the table keeps its position."""
    acquire_commit(work.lock, work.table.name)
    try:
        head = work.head()
        refuse_foreign_changes(head, work.log)
        _refuse_rewind(work, head.entry, at)
        head = try_complete_last(work, head)  # in case the replay is aborted
        entry, pending = head.entry, pending_replay(head.entry)
        since, position = (pending.since, pending.position) if pending else (entry.generation, entry.after)
        after = position
        if at is not None:
            after = (str(Version(parse_version(entry.after[0]).table_id, at + 1)),)
        opened = _open_generation(work, head, Replay(since, position, at), after, note)
        settle_tombstones(work.spark, work.table, work.store, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _refuse_rewind(work: TableSession, entry: Entry, at: int | None) -> None:
    """Terminal during a rewind: the table's position is not that of its rows, or not the one it continues from."""
    if pending_rewind(entry) is not None or (at is None and owes_jump(entry)):
        raise Terminal(
            "a rewind of it, or of the table that it reads, is not done yet",
            where=work.table.name,
            hint="`penstock run` finishes it",
        )


def replay(work: TableSession, at: int | None, note: str, say: Say = lambda _: None) -> FillResult:
    while True:
        try:
            return fill(work, open_replay(work, at, note), say)
        except SuppressionListChanged:
            say("a subject was to be forgotten meanwhile: the replay starts over")


def open_replay_head(work: TableSession) -> LedgerHead | None:
    """The end of the ledger if a replay was opened and not filled."""
    head = read_head(work.log)
    return head if head is not None and pending_replay(head.entry) is not None else None


def resume(work: TableSession, head: LedgerHead, say: Say) -> FillResult:
    """Repeats the replay in a new generation: the leftovers of the process that was cut off belong to another one."""
    pending = pending_replay(head.entry)
    assert pending is not None
    return replay(work, pending.at, head.entry.note or "replay", say)


def abort(work: TableSession, head: LedgerHead) -> LedgerHead:
    """The table keeps its rows and the position it had before the replay was opened. The replay's rejected rows and
    tombstones are dropped once it cannot be filled any more; killed in between, at the next start."""
    entry = head.entry
    pending = pending_replay(entry)
    if pending is None:
        raise Terminal("no replay of it is open", where=work.table.name, hint="there is nothing to abort")
    acquire_commit(work.lock, work.table.name)
    try:
        opened = _open_generation(work, advance(head, work.log), None, pending.position, "replay aborted")
        drop_rejects_since(work.spark, work.table, work.store, pending.since, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _open_generation(
    work: TableSession, head: LedgerHead, replay: Replay | None, after: tuple[str, ...], note: str
) -> LedgerHead:
    entry = head.entry
    return open_generation(
        work.spark,
        work.log,
        head,
        work.table.uri,
        after=after,
        topics=entry.topics,
        subscription=entry.subscription,
        definition=work.table.definition,
        note=note,
        began=_begin_positions(work, entry, replay),
        pending=replay_document(replay) if replay is not None else None,
        at_least=next_generation(work.store, work.table),
    )


def _begin_positions(work: TableSession, entry: Entry, replay: Replay | None) -> tuple[str, ...] | None:
    """Where the rows begin; for a version upstream its whole snapshot, wherever the table had begun."""
    if replay is None:
        return None
    if replay.at is None:
        return start_position(work.log, entry)
    return (str(replace(parse_version(entry.after[0]), version=replay.at, index=-1, snapshot=True)),)
