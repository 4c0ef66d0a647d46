"""The suppression list from the view of one table: which of the rows that it reads or makes belong to a person to be
forgotten.

While the list has no order about the table's subjects, nothing is added to a plan: a batch costs one listing of a
folder, and not even that if the table declares no subjects.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.ledger.row_counts import DUPLICATES, FORGOTTEN, READ, SUPERSEDED
from penstock.ledger.writer import BatchMetrics, BatchProcessor
from penstock.plan.quarantine import is_landing_table, subjects_in_input, subjects_in_quarantine
from penstock.plan.subjects import SubjectHoldings
from penstock.sources.columns import CHANGE
from penstock.tables.subject_columns import SubjectOrders, is_redacted, redact, rows_of
from penstock.tables.suppression_list import SuppressionList

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import PinnedInputs
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

_MARK, _COUNT = "__forgotten", "forgotten"


class Suppression:
    def __init__(self, table: TablePlan, store: Store) -> None:
        self._table = table
        self._subjects = _subjects(table)
        self._list = SuppressionList(table.forget, store) if table.forget is not None and self._subjects else None
        self._match: SubjectOrders | None = None
        self._is_read = False
        self._own_metrics: BatchMetrics | None = None
        self._count = 0

    @property
    def applies(self) -> bool:
        """Whether the table's rows could belong to a subject; if not, the list is never read."""
        return self._list is not None

    def read_list(self) -> None:
        """Reads the current list, under the table's commit lock: whoever writes an order and then takes the lock finds
        all rows that were written without it."""
        self._match, self._is_read = self._read_list(), True

    def release(self) -> None:
        """Called when a batch has ended: the next one reads the list again."""
        self._is_read, self._own_metrics, self._count = False, None, 0

    @property
    def has_new_orders(self) -> bool:
        """Whether an order was added since the list was last read."""
        current = self._read_list()
        return self._is_read and (current.orders if current else ()) != (self._match.orders if self._match else ())

    def input_condition(self, rows: DataFrame) -> Column | None:
        """The condition for rows to leave out of those that the table reads; None if there are none."""
        return self.condition(rows, subjects_in_input(self._table))

    def condition(self, rows: DataFrame, holds: SubjectHoldings) -> Column | None:
        """The same for rows with other places. Deletes pass, so that copies lose the row as well."""
        if not self._is_read:
            self.read_list()
        if self._match is None:
            return None
        condition = rows_of(rows, holds.subjects, self._match, self._table.name, partly=True)
        if condition is None:
            return None
        if holds.headers is not None and holds.headers in rows.columns:
            condition = condition | is_redacted(holds.headers)
        return condition & (F.col(CHANGE) != "delete") if CHANGE in rows.columns else condition

    def drop_matching(self, rows: DataFrame, holds: SubjectHoldings) -> DataFrame:
        condition = self.condition(rows, holds)
        return rows if condition is None else rows.where(~condition)

    def drop_suppressed_input(self, rows: DataFrame) -> DataFrame:
        """Rows of the table's source, without those to leave out."""
        return self.drop_matching(rows, subjects_in_input(self._table))

    def drop_suppressed(self, rows: DataFrame, *, count: bool = False) -> DataFrame:
        """The rows that the table makes, without those to leave out; records that it lands are redacted instead."""
        condition = self.condition(rows, SubjectHoldings(self._table.subjects))
        if condition is None:
            return rows
        if is_landing_table(self._table):
            return redact(rows, self._table.columns, condition)
        marked = rows.withColumn(_MARK, condition)
        if count:
            self._own_metrics = BatchMetrics()
            marked = self._own_metrics.on(marked, F.count_if(F.col(_MARK)).alias(_COUNT))
        return marked.where(~F.col(_MARK)).drop(_MARK)

    def left_out_count(self) -> int | None:
        """How many rows `drop_suppressed` left out, known after the write; None if unknown."""
        counts = self._own_metrics.result() if self._own_metrics is not None else {_COUNT: self._count}
        return None if counts is None else int(counts[_COUNT])

    def count(self, rows: DataFrame) -> None:
        """Counts what `drop_suppressed` would have left out, for rows that are in the table already."""
        condition = self.condition(rows, SubjectHoldings(self._table.subjects))
        self._own_metrics, self._count = None, 0 if condition is None else rows.where(condition).count()

    def quarantine_condition(self, rows: DataFrame) -> Column | None:
        """The condition for rows to leave out of those on their way to quarantine; None if there are none."""
        return self.condition(rows, SubjectHoldings(subjects_in_quarantine(self._table)))

    def _read_list(self) -> SubjectOrders | None:
        if self._list is None:
            return None
        orders = self._list.orders(self._subjects)
        return SubjectOrders(self._list.key, orders) if orders else None


def _subjects(table: TablePlan) -> frozenset[str]:
    lookups = table.stages.lookups if table.stages is not None else ()
    inputs = table.stream.inputs.values() if table.stream is not None else ()
    return frozenset(table.subjects).union(
        subjects_in_input(table).subjects, *(other.holds.subjects for other in (*lookups, *inputs))
    )


_READ_MARK, _READ_COUNT = "__left_out", "left_out"


class TableProcessor(BatchProcessor):
    """A processor that reads the suppression list itself."""

    _suppression: Suppression

    @property
    def suppression_changed(self) -> bool:
        return self._suppression.has_new_orders


class RowProcessor(TableProcessor):
    """A processor that makes and rejects rows one by one, so that failing records can be found."""

    @abstractmethod
    def probe(self, batch: DataFrame, entry: Entry) -> None:
        """Runs every expression of the definition on the rows and raises what they raise; writes nothing."""

    @abstractmethod
    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        """The number of rows, the number on which an expression raises, the first of these, and its error."""

    @abstractmethod
    def inspect(self, batch: DataFrame, entry: Entry) -> None:
        """Replaces `write` for rows that are in the table already."""

    @abstractmethod
    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        """The row counts of a batch of which `rows` rows are in the table now."""

    @abstractmethod
    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame: ...


class SuppressingProcessor(BatchProcessor):
    """Wraps a processor so that rows of people to be forgotten do not reach it."""

    def __init__(self, inner: BatchProcessor, suppression: Suppression) -> None:
        self._inner, self._suppression = inner, suppression
        self._read_metrics: BatchMetrics | None = None

    @property
    def suppression_changed(self) -> bool:
        return self._suppression.has_new_orders or self._inner.suppression_changed

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.read_list()
        return self._inner.pin(self._suppression.drop_suppressed_input(batch), last, after)

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        condition = self._suppression.input_condition(batch)
        rows = batch if condition is None else self._count_left_out(batch, condition)
        self._inner.write(rows, entry, write_target, files=files)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        remaining = self._suppression.drop_suppressed_input(batch)
        row_counts = self._inner.complete(remaining, entry, rows=rows, written=written)
        return self._with_forgotten(row_counts, batch) if row_counts else row_counts

    def release(self) -> None:
        self._inner.release()
        self._suppression.release()
        self._read_metrics = None

    def _count_left_out(self, batch: DataFrame, condition: Column) -> DataFrame:
        """The batch without the rows to leave out, which are counted in the pass that writes the others."""
        self._read_metrics = BatchMetrics()
        count = F.count_if(F.col(_READ_MARK)).alias(_READ_COUNT)
        marked = self._read_metrics.on(batch.withColumn(_READ_MARK, condition), count)
        return marked.where(~F.col(_READ_MARK)).drop(_READ_MARK)

    def _with_forgotten(self, row_counts: RowCounts, batch: DataFrame) -> RowCounts:
        """The row counts with forgotten rows, which count as read. Rows that were made and left out would otherwise
        count as duplicates. In a batch written before a subject was listed, no more count than its table lacks."""
        read, made = self._left_out_count(batch), self._suppression.left_out_count() or 0
        if not read and not made and not row_counts.get(FORGOTTEN):
            return row_counts
        reduced = SUPERSEDED if row_counts.get(SUPERSEDED) else DUPLICATES
        remaining = row_counts.get(reduced, 0) - made
        return {
            **row_counts,
            READ: row_counts.get(READ, 0) + read,
            FORGOTTEN: row_counts.get(FORGOTTEN, 0) + read + made + min(remaining, 0),
            reduced: max(remaining, 0),
        }

    def _left_out_count(self, batch: DataFrame) -> int:
        counts = self._read_metrics.result() if self._read_metrics is not None else None
        if counts is not None:
            return int(counts[_READ_COUNT])
        condition = self._suppression.input_condition(batch)
        return 0 if condition is None else batch.where(condition).count()


class SuppressingRows(SuppressingProcessor, RowProcessor):
    def __init__(self, inner: RowProcessor, suppression: Suppression) -> None:
        super().__init__(inner, suppression)
        self._rows = inner

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        rows = self._rows.rejected(self._suppression.drop_suppressed_input(batch), entry)
        condition = self._suppression.quarantine_condition(rows)
        return rows if condition is None else rows.where(~condition)

    def probe(self, batch: DataFrame, entry: Entry) -> None:
        self._rows.probe(self._suppression.drop_suppressed_input(batch), entry)

    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        return self._rows.raising(self._suppression.drop_suppressed_input(batch), entry)

    def inspect(self, batch: DataFrame, entry: Entry) -> None:
        self._rows.inspect(self._suppression.drop_suppressed_input(batch), entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        return self._with_forgotten(self._rows.counted(batch, entry, rows), batch)
