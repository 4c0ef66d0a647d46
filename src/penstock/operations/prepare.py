"""Prepares a table to run: creates it if it is new, compares it with its source and its checkpoint with its ledger."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import TableChanged, Transient
from penstock.ledger.checkpoint import checkpoint_folder, read_checkpoint, rebuild
from penstock.ledger.create import genesis
from penstock.ledger.entry import REPLACING_KINDS
from penstock.ledger.generations import carry_forward, open_generation
from penstock.ledger.head import advance, last_rows
from penstock.ledger.pending import owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import base_of, describe_position, dump, parse
from penstock.ledger.writer import WriterSettings
from penstock.operations.replay import Say, drop_rejects_since, settle_quarantine
from penstock.operations.rewind import finish, finish_reader
from penstock.storage.locks import acquire_commit
from penstock.tables.columns import settle_columns, settle_statistics, with_statistics
from penstock.tables.kinds import open_table, resolve_table
from penstock.tables.merge.tombstones import TombstoneTable, move_tombstones, next_generation, tombstone_table
from penstock.tables.session import TableSession, complete_last
from penstock.tables.startup_checks import check_checkpoint, move_leftovers, read_ledger, refuse_missing_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructType

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.source import Move, Start
    from penstock.ledger.writer import BatchProcessor
    from penstock.tables.kinds import TableKind


@dataclass(frozen=True)
class Ready:
    """All that a query over the table needs."""

    settings: WriterSettings
    head: LedgerHead
    processor: BatchProcessor


def prepare(session: TableSession, *, say: Say, distrust: bool = False, own: int | None = None) -> Ready:
    """Raises where a person has to decide; heals what cannot lose or double a row, and reports it. `distrust` rebuilds
    the checkpoint though it looks intact: Spark could not continue from it. `own` is the generation that this runner
    has written before, on stores without our locks."""
    start, lock = _TableStart(session, say, own), session.lock
    acquire_commit(lock, session.table.name)
    try:
        start.read_or_create()
        start.move_leftovers_aside()
        start.refuse_open_replay()
        start.finish_rewinds()
        start.refuse_outdated_runner()
        start.compare_checkpoint()
        start.settle_quarantine()
        start.count_last_batch()
        start.follow_source()
        start.settle_columns()
        start.take_over()
        start.drop_abandoned_rejects()
        start.separate_tombstones()
        start.open_processor()
        start.drop_old_tombstones()
        start.rebuild_checkpoint(distrust=distrust)
    finally:
        lock.release()
    return start.ready()


class _TableStart:
    """The steps of a start, in their order; under the table's commit lock."""

    head: LedgerHead
    """The end of the ledger, as far as the steps have moved it."""
    compared_head: LedgerHead
    """The head that the checkpoint was compared with."""
    processor: BatchProcessor
    reason: str | None
    """Why the checkpoint has to be rebuilt; None: it is in step with the ledger."""

    def __init__(self, work: TableSession, say: Say, own: int | None) -> None:
        self.work, self.say, self.own, self.log = work, say, own, work.log
        self.spark, self.table, self.store, self.source = work.spark, work.table, work.store, work.source
        self.kind: TableKind | None = None
        self.created = False

    def read_or_create(self) -> None:
        """Reads the ledger, or creates the table with its first entry."""
        head = read_ledger(self.log, self.store, self.table)
        self.created = head is None
        self.head = head if head is not None else self._create()

    def _create(self) -> LedgerHead:
        table, source = self.table, self.source
        refuse_missing_table(self.store, table)
        start = source.start()
        self.kind = resolve_table(self.spark, table, self.store, source)
        base = base_of(start.position[0]) if table.versions is not None and table.stream is None else None
        head = create_table(self.work, self.kind.schema, start, base=base)
        self.say(f"table created, starting at {start.description or ', '.join(map(describe_position, start.position))}")
        for note in start.notes:
            self.say(note)
        return head

    def move_leftovers_aside(self) -> None:
        """Moves aside what an earlier table of the same name has left."""
        for message in move_leftovers(self.store, self.table, self.head):
            self.say(message)

    def refuse_open_replay(self) -> None:
        """Transient until a replay of the table is done: the runner tries again."""
        if pending_replay(self.head.entry) is not None:
            raise Transient("a replay of it is not done yet", where=self.table.name)

    def finish_rewinds(self) -> None:
        """Finishes an open rewind of this table, or of the one that it reads."""
        if pending_rewind(self.head.entry) is not None:
            self.head = finish(self.work, self.work.with_row_counts(self.head))
            self.say(f"{self.head.entry.note}: it was cut off, and is done now")
        if not owes_jump(self.head.entry):
            return
        generation = self.head.entry.generation
        self.head = finish_reader(self.work, self.work.with_row_counts(self.head))
        if self.head.entry.generation != generation:
            self._report_generation()
        self.own = self.own if self.own is None else self.head.entry.generation

    def refuse_outdated_runner(self) -> None:
        """Refuses to mix rows of two definitions in one table, which would go unnoticed."""
        entry = self.head.entry
        if self.own is None or entry.kind not in REPLACING_KINDS or entry.generation <= self.own:
            return
        if entry.pins.definition != self.table.definition:
            raise TableChanged(
                f"it was {'replayed' if entry.kind == 'fill' else 'rewound'} by another definition than this process "
                "has: the project file was changed since it began",
                where=self.table.name,
                hint="nothing was written by the old one. Restart the runner: it reads the project file again",
            )

    def compare_checkpoint(self) -> None:
        """Compares the checkpoint with the ledger."""
        checkpoint = read_checkpoint(self.store, self._folder())
        self.reason = check_checkpoint(self.store, self.log, self.table, self.head, checkpoint)

    def settle_quarantine(self) -> None:
        """Removes rejected rows that a replay has replaced."""
        settle_quarantine(self.spark, self.table, self.store, self.head, idempotent=self.work.idempotent)

    def count_last_batch(self) -> None:
        """Reads the row counts of the last batch; one that is run again is counted then."""
        if self.reason is None:
            self.head = self.work.with_row_counts(self.head)
        self.compared_head = self.head

    def follow_source(self) -> None:
        """Opens a generation if the table's source has changed; raises if the source lost data that was not read."""
        move = self.source.follow(self.head.entry)
        if self.work.idempotent or move is not None:
            self.head = complete_last(self.work, self.head)
        if move is not None:
            self.head = open_generation(
                self.spark,
                self.log,
                self.head,
                self.table.uri,
                after=move.position,
                topics=move.ids,
                subscription=self.source.subscription,
                definition=self.table.definition,
                note=move.note,
                parked=move.parked,
                began=_begin_positions(self.head.entry, move),
                at_least=next_generation(self.store, self.table),
            )
            self._report_generation()
        self.source.refuse_lost(self.head.entry)

    def settle_columns(self) -> None:
        """Gives an existing table the columns and statistics of its definition."""
        if self.kind is not None:
            return
        self.kind = resolve_table(self.spark, self.table, self.store, self.source)
        for apply in (settle_columns, settle_statistics):
            if message := apply(self.spark, self.table, self.kind.schema):
                self.say(message)
                self.head = advance(self.head, self.log)

    def take_over(self) -> None:
        """Opens a generation for this runner where there are no locks: two runners that shared a checkpoint could each
        commit its rows under the other's offsets. The newest continues, and the other one ends at its next batch."""
        if not self.work.idempotent or self.created:
            return
        entry, own_generation = self.head.entry, self.own
        if (
            own_generation is not None
            and entry.generation > own_generation
            and entry.generation != (self.head.filled or (0, 0))[0]
        ):
            raise TableChanged(
                f"the table was taken over by another process: generation {entry.generation}, "
                f"{entry.note or entry.kind}",
                where=self.table.name,
                hint="nothing was lost or doubled. If it is a runner, it continues: stop it before you start this one "
                "again",
            )
        at_least = next_generation(self.store, self.table)
        if own_generation == entry.generation and at_least <= own_generation + 1:
            return
        self.head = open_generation(
            self.spark,
            self.log,
            self.head,
            self.table.uri,
            after=entry.after,
            topics=entry.topics,
            subscription=entry.subscription,
            definition=self.table.definition,
            note=f"a runner started on {socket.gethostname()}, process {os.getpid()}",
            pending=entry.pending if entry.stop_position is not None else None,
            at_least=at_least,
        )

    def drop_abandoned_rejects(self) -> None:
        """Removes rejected rows of replays that were given up."""
        last = last_rows(self.head, self.log)
        if last.abandoned:
            generation, idempotent = last.entry.generation, self.work.idempotent
            drop_rejects_since(self.spark, self.table, self.store, generation, self.head, idempotent=idempotent)

    def separate_tombstones(self) -> None:
        """Moves deleted rows of a merged table to its table of tombstones."""
        if self.table.write.merge is None:
            return
        assert self.kind is not None
        tombstones = TombstoneTable(self.spark, self.store, self.table, idempotent=self.work.idempotent)
        tombstones.settle(self.head)
        self.head, message = move_tombstones(self.spark, tombstones, self.table, self.kind.schema, self.head)
        if message:
            self.say(message)

    def open_processor(self) -> None:
        """Opens the batch processor, and carries the ledger over commits of other programs."""
        assert self.kind is not None
        arguments = (self.spark, self.kind, self.table, self.store, self.head.entry)
        self.processor = open_table(*arguments, idempotent=self.work.idempotent)
        self.head = carry_forward(self.spark, self.log, self.head, self.table.uri)

    def drop_old_tombstones(self) -> None:
        """Removes tombstones that are older than the table keeps them."""
        if (drop := self._tombstone_cleaner()) is not None:
            drop(self.head)

    def _tombstone_cleaner(self) -> Callable[[LedgerHead], None] | None:
        """The function that drops old tombstones; None if all are kept."""
        merge = self.table.write.merge
        if merge is None or merge.keep_deleted_ms is None:
            return None
        spark, store, table, idempotent = self.spark, self.store, self.table, self.work.idempotent

        def drop(head: LedgerHead) -> None:
            tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
            if tombstones is not None:
                tombstones.drop_old(head.carry_entry)

        return drop

    def rebuild_checkpoint(self, *, distrust: bool) -> None:
        """Makes the checkpoint from the ledger if it is not in step, or if a generation was opened."""
        compared = self.compared_head.entry
        if self.reason is None and distrust and self.table.stream is None:
            self.reason = "Spark could not continue from it"
        if self.reason is not None or self.head.entry.generation != compared.generation:
            rebuild(self.spark, self.store, self.table, self._folder(), self.head.entry)
        if self.reason is not None and compared.kind != "genesis":
            self.say(
                f"checkpoint rebuilt from the ledger at batch {compared.generation}.{compared.batch}: {self.reason}"
            )

    def ready(self) -> Ready:
        settings = WriterSettings(
            table=self.table.name,
            uri=self.table.uri,
            checkpoint=self._folder(),
            definition=self.table.definition,
            source=self.source,
            store=self.store,
            log=self.log,
            lock=self.work.lock,
            idempotent=self.work.idempotent,
            purge=self._tombstone_cleaner(),
        )
        return Ready(settings, self.head, self.processor)

    def _folder(self) -> str:
        return checkpoint_folder(self.table.checkpoints, self.head.entry)

    def _report_generation(self) -> None:
        self.say(f"generation {self.head.entry.generation} opened: {self.head.entry.note}")


def create_table(
    work: TableSession, schema: StructType, start: Start, *, base: int | None = None, generation: int = 1
) -> LedgerHead:
    """Creates the table with its first entry, which begins at `start`."""
    table = work.table
    return genesis(
        work.spark,
        work.log,
        table=table.name,
        uri=table.uri,
        schema=schema,
        partition_by=table.write.partition_by,
        cluster_by=table.write.cluster_by,
        properties=with_statistics(table, schema),
        position=start.position,
        definition=table.definition,
        topics=start.ids,
        subscription=work.source.subscription,
        generation=generation,
        base=base,
    )


def _begin_positions(entry: Entry, move: Move) -> tuple[str, ...]:
    """New topics begin at their current position. Empty for tables and streams: what was read of another table is
    unknown."""
    if not entry.began or "table" in entry.subscription or "streams" in entry.subscription:
        return ()
    began_offsets, new_offsets = parse(entry.began[0]), parse(move.position[0])
    return (
        dump({**{topic: parts for topic, parts in new_offsets.items() if topic not in began_offsets}, **began_offsets}),
    )
