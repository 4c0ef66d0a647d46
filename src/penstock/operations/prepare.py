"""Getting a table ready to run: made if it is new, compared with its source, its checkpoint with its ledger."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import TableChanged, Transient
from penstock.ledger.checkpoint import folder_of, read_checkpoint, rebuild
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import WHOLE
from penstock.ledger.generations import carry_forward, open_generation
from penstock.ledger.head import advance, last_rows
from penstock.ledger.pending import owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import base_of, describe_position, dump, parse
from penstock.ledger.row_counts import read_row_counts
from penstock.ledger.writer import WriterTarget
from penstock.operations.replay import drop_rejects_since, settle_quarantine
from penstock.operations.rewind import finish, settle
from penstock.storage.locks import acquire_commit
from penstock.tables.columns import settle_columns, settle_statistics, with_statistics
from penstock.tables.kinds import look_at_table, open_table
from penstock.tables.merge.tombstones import TombstoneTable, next_generation, separate, tombstone_table
from penstock.tables.session import TableSession, complete_last
from penstock.tables.startup_checks import compare, move_leftovers, read_ledger, refuse_gone

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.source import Move, Source
    from penstock.ledger.writer import BatchProcessor
    from penstock.plan.model import TablePlan
    from penstock.storage.locks import Lock
    from penstock.storage.stores import Store
    from penstock.tables.kinds import TableKind

Say = Callable[[str], None]


@dataclass(frozen=True)
class Ready:
    """All that a query over the table needs."""

    target: WriterTarget
    tail: LedgerHead
    function: BatchProcessor


def prepare(
    spark: SparkSession,
    table: TablePlan,
    store: Store,
    source: Source,
    lock: Lock,
    *,
    idempotent: bool,
    say: Say,
    distrust: bool = False,
    own: int | None = None,
) -> Ready:
    """Raises where a person has to decide; heals by itself whatever cannot lose or double a row, and says so.
    `distrust` rebuilds the checkpoint though it looks whole: Spark could not go on from it. `own` is the generation
    that this runner has written before, on stores without our locks."""
    log = DeltaLog(store, table.uri, table.name)
    acquire_commit(lock, table.name)
    try:
        tail = read_ledger(log, store, table)
        made: TableKind | None = None
        created = tail is None
        if tail is None:
            made, tail = _create(spark, table, store, source, log, say)
        for moved in move_leftovers(store, table, tail):
            say(moved)
        if pending_replay(tail.entry) is not None:
            raise Transient("a replay of it is not done yet", where=table.name)
        work = TableSession(spark, table, store, source, lock, idempotent)
        tail, own = _settle_rewinds(work, tail, own, say)
        if own is not None:
            _refuse_outdated(table, tail, own)
        folder = folder_of(table.checkpoints, tail.entry)
        reason = compare(store, log, table, tail, read_checkpoint(store, folder))
        settle_quarantine(spark, table, store, tail, idempotent=idempotent)
        if reason is None:  # else the batch is run again, and counted then
            tail = replace(tail, fates=read_row_counts(store, folder, tail.entry.batch))
        found = tail
        move = source.follow(tail.entry)
        if idempotent or move is not None:
            tail = complete_last(work, tail)
        if move is not None:
            tail = _follow(spark, table, source, log, tail, move, say)
        source.refuse_lost(tail.entry)
        if made is None:
            made = look_at_table(spark, table, store, source)
            if evolved := settle_columns(spark, table, made.schema):
                say(evolved)
                tail = advance(tail, log)
            if hidden := settle_statistics(spark, table, made.schema):
                say(hidden)
                tail = advance(tail, log)
        if idempotent and not created:  # from here on nobody else writes to it, nor to what lies beside it
            tail = _take_over(spark, table, store, log, tail, own)
        if last_rows(tail, log).abandoned:
            drop_rejects_since(spark, table, store, last_rows(tail, log).entry.generation, tail, idempotent=idempotent)
        tail = _separate_tombstones(spark, table, store, made, tail, say, idempotent=idempotent)
        function = open_table(spark, made, table, store, tail.entry, idempotent=idempotent)
        tail = carry_forward(spark, log, tail, table.uri)
        forget_old_tombstones = _forget_old_tombstones(spark, table, store, idempotent=idempotent)
        if forget_old_tombstones is not None:
            forget_old_tombstones(tail)
        folder = folder_of(table.checkpoints, tail.entry)
        if reason is None and distrust and table.stream is None:
            reason = "Spark could not go on from it"
        if reason is not None or tail.entry.generation != found.entry.generation:
            rebuild(spark, store, table, folder, tail.entry)
        if reason is not None and found.entry.kind != "genesis":
            say(f"checkpoint rebuilt from the ledger at batch {found.entry.generation}.{found.entry.batch}: {reason}")
    finally:
        lock.release()
    target = WriterTarget(
        table=table.name,
        uri=table.uri,
        checkpoint=folder,
        definition=table.definition,
        source=source,
        store=store,
        log=log,
        lock=lock,
        idempotent=idempotent,
        purge=forget_old_tombstones,
    )
    return Ready(target, tail, function)


def _separate_tombstones(
    spark: SparkSession,
    table: TablePlan,
    store: Store,
    made: TableKind,
    tail: LedgerHead,
    say: Say,
    *,
    idempotent: bool,
) -> LedgerHead:
    """A merged table holds living rows only, and its table of tombstones those of its batches only."""
    if table.write.merge is None:
        return tail
    tombstones = TombstoneTable(spark, store, table, idempotent=idempotent)
    tombstones.settle(tail)
    tail, moved = separate(spark, tombstones, table, made.schema, tail)
    if moved:
        say(moved)
    return tail


def _forget_old_tombstones(
    spark: SparkSession, table: TablePlan, store: Store, *, idempotent: bool
) -> Callable[[LedgerHead], None] | None:
    """None if all are kept."""
    if table.write.merge is None or table.write.merge.keep_deleted_ms is None:
        return None

    def forget(tail: LedgerHead) -> None:
        tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
        if tombstones is not None:
            tombstones.drop_old(tail.carried)

    return forget


def _create(
    spark: SparkSession, table: TablePlan, store: Store, source: Source, log: DeltaLog, say: Say
) -> tuple[TableKind, LedgerHead]:
    refuse_gone(store, table)
    start = source.start()
    made = look_at_table(spark, table, store, source)
    tail = genesis(
        spark,
        log,
        table=table.name,
        uri=table.uri,
        schema=made.schema,
        partition_by=table.write.partition_by,
        cluster_by=table.write.cluster_by,
        properties=with_statistics(table, made.schema),
        position=start.position,
        definition=table.definition,
        topics=start.ids,
        subscription=source.subscription,
        base=base_of(start.position[0]) if table.versions is not None and table.stream is None else None,
    )
    say(f"table created, starting at {start.said or ', '.join(map(describe_position, start.position))}")
    for note in start.notes:
        say(note)
    return made, tail


def _follow(
    spark: SparkSession, table: TablePlan, source: Source, log: DeltaLog, tail: LedgerHead, move: Move, say: Say
) -> LedgerHead:
    tail = open_generation(
        spark,
        log,
        tail,
        table.uri,
        after=move.position,
        topics=move.ids,
        subscription=source.subscription,
        definition=table.definition,
        note=move.note,
        parked=move.parked,
        began=_began(tail.entry, move),
        at_least=next_generation(log.store, table),
    )
    say(f"generation {tail.entry.generation} opened: {move.note}")
    return tail


def _settle_rewinds(work: TableSession, tail: LedgerHead, own: int | None, say: Say) -> tuple[LedgerHead, int | None]:
    """What a rewind of this table, or of the one that it reads, has left to do; and the generation to go on from."""
    if pending_rewind(tail.entry) is not None:
        tail = finish(work, work.counted(tail))
        say(f"{tail.entry.note}: it was cut off, and is done now")
    if not owes_jump(tail.entry):
        return tail, own
    was = tail.entry.generation
    tail = settle(work, work.counted(tail))
    if tail.entry.generation != was:
        say(f"generation {tail.entry.generation} opened: {tail.entry.note}")
    return tail, own if own is None else tail.entry.generation


def _refuse_outdated(table: TablePlan, tail: LedgerHead, own: int) -> None:
    """Rows of two definitions would be in one table, and nobody would see it."""
    entry = tail.entry
    if entry.kind in WHOLE and entry.generation > own and entry.pins.definition != table.definition:
        raise TableChanged(
            f"it was {'replayed' if entry.kind == 'fill' else 'rewound'} by another definition than this process has: "
            "the project file was changed since it began",
            where=table.name,
            hint="nothing was written by the old one. Start the runner again: it reads the project file anew",
        )


def _began(entry: Entry, move: Move) -> tuple[str, ...]:
    """Topics that are new begin where they are read from now. Of another table nobody could say what was read."""
    if not entry.began or "table" in entry.subscription or "streams" in entry.subscription:
        return ()
    known, now = parse(entry.began[0]), parse(move.position[0])
    return (dump({**{topic: parts for topic, parts in now.items() if topic not in known}, **known}),)


def _take_over(
    spark: SparkSession, table: TablePlan, store: Store, log: DeltaLog, tail: LedgerHead, own: int | None
) -> LedgerHead:
    """Without our locks each runner opens a generation of its own, with a checkpoint of its own: two that shared one
    could each commit its rows under the other's offsets. The newest goes on, at its next batch the other one ends."""
    entry = tail.entry
    if own is not None and entry.generation > own and entry.generation != (tail.filled or (0, 0))[0]:
        raise TableChanged(
            f"the table was taken over by another process: generation {entry.generation}, {entry.note or entry.kind}",
            where=table.name,
            hint="nothing was lost or doubled. If it is a runner, it goes on: stop it before you start this one again",
        )
    at_least = next_generation(store, table)
    if own == entry.generation and at_least <= own + 1:
        return tail
    return open_generation(
        spark,
        log,
        tail,
        table.uri,
        after=entry.after,
        topics=entry.topics,
        subscription=entry.subscription,
        definition=table.definition,
        note=f"a runner started on {socket.gethostname()}, process {os.getpid()}",
        pending=entry.pending if entry.stops_at is not None else None,
        at_least=at_least,
    )
