"""A table whose generation is open, with all that filling it needs; and its last batch, completed after a crash."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import DataLoss, Terminal
from penstock.ledger.checkpoint import folder_of, heal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.row_counts import read_row_counts, store_row_counts
from penstock.ledger.source import said
from penstock.tables.kinds import look_at_table, open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.source import Source
    from penstock.plan.model import TablePlan
    from penstock.storage.locks import Lock
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class TableSession:
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

    def end(self) -> LedgerHead:
        """The end of its ledger, with what became of the rows of its last batch."""
        tail = read_head(self.log)
        if tail is None:
            raise Terminal("it was never made", where=self.table.name, hint="`penstock run` makes it")
        return self.counted(tail)

    def counted(self, tail: LedgerHead) -> LedgerHead:
        folder = folder_of(self.table.checkpoints, tail.entry)
        return replace(tail, row_counts=read_row_counts(self.store, folder, tail.entry.batch))


# The last batch of a table, completed: its good rows are there, and a crash came before its rejected ones.
#
# Within a generation the query itself runs it again. Before another is opened somebody else has to: nobody would read
# it there. It is run by a query of its own, over its recorded range, in a checkpoint of its own, and nothing comes
# after it.


def is_complete(work: TableSession, tail: LedgerHead) -> bool:
    """Whether all of its last batch is known to be written, its rejected rows too."""
    entry, folder = tail.entry, folder_of(work.table.checkpoints, tail.entry)
    return entry.batch == 0 or bool(tail.row_counts) or work.store.read(f"{folder}/commits/{entry.batch}") is not None


def complete_last(work: TableSession, tail: LedgerHead) -> LedgerHead:
    """Under the table's commit lock. Nothing happens if it is complete, or if the table rejects nothing; sinks put
    aside what they reject before they commit, and state has to be run by its own query."""
    table, entry = work.table, tail.entry
    tail = work.counted(tail)
    if not table.may_reject or table.sink is not None or table.stream is not None or is_complete(work, tail):
        return tail
    _refuse_another_source(work, entry)
    made = look_at_table(work.spark, table, work.store, work.source)
    function = open_table(work.spark, made, table, work.store, entry, idempotent=work.idempotent)
    folder = folder_of(table.checkpoints, entry)
    own = f"{folder}.{uuid.uuid4().hex}.new"
    outcome: list[BaseException | LedgerHead] = []

    def once(batch: DataFrame, number: int) -> None:
        try:
            assert number == entry.batch, number
            row_counts = function.complete(batch, entry, rows=tail.counts.rows, written=False)
            if row_counts:
                store_row_counts(work.store, folder, number, row_counts)
            outcome.append(replace(tail, row_counts=row_counts))
        except BaseException as error:
            outcome.append(error)  # Spark would hand it back as text
        finally:
            function.done()
        raise _Enough

    heal(work.store, own, entry)
    try:
        stream = work.source.stream(work.spark).writeStream.foreachBatch(once)
        query = stream.option("checkpointLocation", own).start()
        try:
            query.awaitTermination()
        except Exception:
            if not outcome:
                raise
    finally:
        work.store.delete(own)
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found


def completed_if_it_can_be(work: TableSession, tail: LedgerHead) -> LedgerHead:
    """Before all rows are made anew, or most of them undone: that it cannot be completed matters only if this is given
    up in the end."""
    with suppress(Terminal):
        return complete_last(work, tail)
    return work.counted(tail)


def _refuse_another_source(work: TableSession, entry: Entry) -> None:
    """The same positions mean other records there."""
    try:
        now = dict(work.source.ids(entry.after))
        why = f"it read {said(entry.subscription)}" if now != {one: entry.topics.get(one) for one in now} else None
    except DataLoss as error:
        why = error.message
    if why is not None:
        raise Terminal(
            f"batch {entry.generation}.{entry.batch} was cut off between its good rows and its rejected ones, and "
            f"cannot be read again: {why}",
            where=entry.table,
            hint=f"put back what it read, and run it once; or `penstock checkpoints reset {entry.table} --to ledger` "
            "goes on without those that were rejected",
        )


class _Enough(Exception):
    """Ends the query: no batch after this one shall be planned."""
