"""An open table with everything that filling it needs, and completing its last batch after a crash."""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import DataLoss, Terminal
from penstock.ledger.checkpoint import checkpoint_folder, heal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.row_counts import read_row_counts, store_row_counts
from penstock.ledger.source import describe_subscription
from penstock.tables.kinds import open_table, resolve_table

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
    """A table with an open generation, and everything that filling it needs."""

    spark: SparkSession
    table: TablePlan
    store: Store
    source: Source
    lock: Lock
    idempotent: bool

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.store, self.table.uri, self.table.name)

    def head(self) -> LedgerHead:
        """The head of the table's ledger, with the row counts of its last batch."""
        head = read_head(self.log)
        if head is None:
            raise Terminal("it was never made", where=self.table.name, hint="`penstock run` makes it")
        return self.with_row_counts(head)

    def with_row_counts(self, head: LedgerHead) -> LedgerHead:
        folder = checkpoint_folder(self.table.checkpoints, head.entry)
        return replace(head, row_counts=read_row_counts(self.store, folder, head.entry.batch))


# Completing the last batch of a table, after a crash between its good rows and its rejected ones.
#
# Within a generation the query itself runs the batch again. It must also happen before another generation is opened,
# which would never read it. A separate query runs the batch, over its recorded range, with a separate checkpoint, and
# stops after it.


def is_complete(session: TableSession, head: LedgerHead) -> bool:
    """Whether the last batch is known to be fully written, including its rejected rows."""
    entry, folder = head.entry, checkpoint_folder(session.table.checkpoints, head.entry)
    return (
        entry.batch == 0 or bool(head.row_counts) or session.store.read(f"{folder}/commits/{entry.batch}") is not None
    )


def complete_last(session: TableSession, head: LedgerHead) -> LedgerHead:
    """Completes the last batch, under the table's commit lock. Does nothing if it is complete or the table rejects no
    rows; sinks set rejected rows aside before they commit, and stateful tables must be run by their own query."""
    table, entry = session.table, head.entry
    head = session.with_row_counts(head)
    if not table.may_reject or table.sink is not None or table.stream is not None or is_complete(session, head):
        return head
    _refuse_another_source(session, entry)
    table_kind = resolve_table(session.spark, table, session.store, session.source)
    processor = open_table(session.spark, table_kind, table, session.store, entry, idempotent=session.idempotent)
    folder = checkpoint_folder(table.checkpoints, entry)
    own_checkpoint = f"{folder}.{uuid.uuid4().hex}.new"
    outcome: list[BaseException | LedgerHead] = []

    def complete_batch(batch: DataFrame, number: int) -> None:
        try:
            assert number == entry.batch, number
            row_counts = processor.complete(batch, entry, rows=head.counts.rows, written=False)
            if row_counts:
                store_row_counts(session.store, folder, number, row_counts)
            outcome.append(replace(head, row_counts=row_counts))
        except BaseException as error:
            outcome.append(error)  # Spark would return it as text
        finally:
            processor.release()
        raise _StopQuery

    heal(session.store, own_checkpoint, entry)
    try:
        stream = session.source.stream(session.spark).writeStream.foreachBatch(complete_batch)
        query = stream.option("checkpointLocation", own_checkpoint).start()
        try:
            query.awaitTermination()
        except Exception:
            if not outcome:
                raise
    finally:
        session.store.delete(own_checkpoint)
    (result,) = outcome
    if isinstance(result, BaseException):
        raise result
    return result


def try_complete_last(session: TableSession, head: LedgerHead) -> LedgerHead:
    """Completes the last batch if it can, before all rows are rebuilt or most of them undone: a failure to complete it
    matters only if that is given up in the end."""
    with suppress(Terminal):
        return complete_last(session, head)
    return session.with_row_counts(head)


def _refuse_another_source(session: TableSession, entry: Entry) -> None:
    """Raises if the source was replaced: the same positions mean other records there."""
    try:
        current_ids = dict(session.source.ids(entry.after))
        problem = (
            f"it read {describe_subscription(entry.subscription)}"
            if current_ids != {name: entry.topics.get(name) for name in current_ids}
            else None
        )
    except DataLoss as error:
        problem = error.message
    if problem is not None:
        raise Terminal(
            f"batch {entry.generation}.{entry.batch} was cut off between its good rows and its rejected ones, and "
            f"cannot be read again: {problem}",
            where=entry.table,
            hint=f"put back what it read, and run it once; or `penstock checkpoints reset {entry.table} --to ledger` "
            "continues without those that were rejected",
        )


class _StopQuery(Exception):
    """Stops the query, so that no further batch is planned."""
