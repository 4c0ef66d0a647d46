"""A table made anew from what it has read: its function over all of that, and one commit that readers see.

The table's generation was opened for it, so whoever wrote the one before is fenced and waits. Files are written first;
then, under the table's lock, its rejected rows, the commit, the checkpoint. Killed anywhere, it is begun again in a
generation of its own: rejected rows of one that never came to its commit do not count, and go in the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.covered import Asked, Covered
from penstock.engine.delta.version import parse
from penstock.engine.forget.suppression import Suppression
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.commit import must_confirm
from penstock.engine.protocol.entry import Counts, Entry, Pins, Watermark
from penstock.engine.protocol.fates import BATCHES, READ, Fates, read_fates, store_fates
from penstock.engine.protocol.function import Function, Pinned
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.ledger import Tail, advance, read_tail, refuse_foreign_changes
from penstock.engine.protocol.locks import Lock, acquire_commit
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.refill import Refill
from penstock.engine.replay.kept import kept_rejects, kept_rows
from penstock.engine.replay.pending import Replay, pending_replay, settling
from penstock.engine.replay.settle import settle_quarantine
from penstock.engine.schema import differences
from penstock.engine.source import Source
from penstock.engine.store import Store
from penstock.engine.table_function import table_function
from penstock.errors import Conflict, Terminal
from penstock.plan.model import DeltaSource, TablePlan

PARTS = 64
"""Of what is shuffled; Spark puts small ones together."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """A table whose generation is open, and all that its fill needs."""

    spark: SparkSession
    table: TablePlan
    store: Store
    source: Source
    lock: Lock
    idempotent: bool

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.store, self.table.uri, self.table.name)

    def end(self) -> Tail:
        """The end of its ledger, with what became of the rows of its last batch."""
        tail = read_tail(self.log)
        if tail is None:
            raise Terminal("it was never made", where=self.table.name, hint="`penstock run` makes it")
        return self.counted(tail)

    def counted(self, tail: Tail) -> Tail:
        folder = folder_of(self.table.checkpoints, tail.entry)
        return replace(tail, fates=read_fates(self.store, folder, tail.entry.batch))


class Outgrown(Conflict):
    """What was made holds rows of somebody who is on the list by now: it is made once more."""


@dataclass(frozen=True)
class Filled:
    tail: Tail
    rows: int
    kept: int
    fates: Fates


def fill(work: Work, opened: Tail, say: Say = lambda _: None) -> Filled:
    """`opened` is the generation's own entry. Conflict if another process has filled it, or opened another."""
    replay = pending_replay(opened.entry)
    assert replay is not None
    table, session = work.table, work.spark.newSession()
    # The settings of a batch would sort and join all that was ever read in as many parts as there are cores.
    session.conf.set("spark.sql.adaptive.coalescePartitions.initialPartitionNum", PARTS)
    made = table_function(work.spark, table, work.store, work.source)
    function = made.ready(work.spark, table, work.store, opened.entry, idempotent=work.idempotent)
    asked = asked_of(table, opened.entry, replay)
    covered = work.source.covered(session, asked)
    kept = kept_rows(table, covered)
    entry = fill_entry(table, opened, replay, function, covered.rows)
    suppression = Suppression(table, work.store)
    there = suppression.own(session.read.format("delta").load(table.uri).where(kept)) if kept is not None else None
    refill = Refill(session, table.uri, idempotent=work.idempotent, kept=there)
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


def asked_of(table: TablePlan, entry: Entry, replay: Replay) -> Asked:
    """What of the source is read."""
    as_state = table.write.merge is not None or table.aggregate is not None
    return Asked(entry.after, entry.began, entry.topics, replay.at, as_state)


def fill_entry(table: TablePlan, opened: Tail, replay: Replay, function: Function, batch: DataFrame) -> Entry:
    last, base = opened.entry, replay.at
    if base is None and isinstance(table.source, DeltaSource):
        base = parse(last.after[0]).read_up_to
    if table.aggregate is not None and table.aggregate.emit == "final":
        was = last.pins.watermark or Watermark()  # windows that are closed stay closed, with all their rows
        pinned = Pinned(watermark=replace(was, closed=None))
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


def _commit(work: Work, opened: Tail, function: Function, covered: Covered, refill: Refill, entry: Entry) -> Filled:
    """Under the lock."""
    table, log = work.table, work.log
    tail = advance(opened, log)
    if tail.entry.key != opened.entry.key or tail.entry.kind == "fill":
        raise Conflict(
            f"another process has gone on with the table: {tail.entry.kind} {tail.entry.generation}.{tail.entry.batch}",
            where=table.name,
            hint="nothing of this replay is in the table; `penstock history` shows what is",
        )
    if getattr(function, "grown", False):
        raise Outgrown("somebody was to be forgotten since it began", where=table.name)
    refuse_foreign_changes(tail, log)
    rows = entry.applied if entry.applied is not None else refill.rows
    fates = function.complete(covered.rows, entry, rows=rows, written=True)
    kept = refill.keep()
    if kept:  # they count as read, so that what was read and what is there are in balance
        entry = replace(entry, counts=Counts(fates={BATCHES: 0, READ: kept} if fates else {}))
    entry = replace(entry, seen=tail.version, pending=settling(kept_rejects(covered), covered.held))
    refill.commit(entry)
    tail = must_confirm(tail, log, entry)
    folder = folder_of(table.checkpoints, tail.entry)
    heal(work.store, folder, tail.entry)
    if fates:
        store_fates(work.store, folder, tail.entry.batch, fates)
    settle_quarantine(work.spark, table, work.store, tail, idempotent=work.idempotent)
    return Filled(replace(tail, fates=fates), rows, kept, fates)
