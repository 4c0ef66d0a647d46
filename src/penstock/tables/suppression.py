"""The suppression list as one table sees it: which of the rows that it reads, and of those that it makes, are of
somebody who shall be forgotten.

As long as nobody is whom its rows could be of, nothing is added to a plan: all that a batch costs is a look into a
folder; and not even that where no table says who its rows are of.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.ledger.row_counts import DUPLICATES, FORGOTTEN, READ, SUPERSEDED
from penstock.ledger.writer import BatchMetrics, BatchProcessor
from penstock.plan.quarantine import in_quarantine, lands, read_by
from penstock.plan.subjects import Holds
from penstock.sources.columns import CHANGE
from penstock.tables.subject_columns import SubjectMatch, is_redacted, redacted, rows_of
from penstock.tables.suppression_list import SuppressionList

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import PinnedInputs
    from penstock.plan.model import TablePlan
    from penstock.plan.subjects import Subjects
    from penstock.storage.stores import Store

_MARK, _COUNT = "__forgotten", "forgotten"


class Suppression:
    def __init__(self, table: TablePlan, store: Store) -> None:
        self._table = table
        self._subjects = _subjects(table)
        self._list = SuppressionList(table.forget, store) if table.forget is not None and self._subjects else None
        self._wanted: SubjectMatch | None = None
        self._looked = False
        self._made: BatchMetrics | None = None
        self._count = 0

    @property
    def possible(self) -> bool:
        """Its rows could be of somebody; else nothing is ever looked at."""
        return self._list is not None

    def look(self) -> None:
        """As the list is now. Under the table's commit lock: whoever writes an order and takes the lock then finds all
        rows that were written without it."""
        self._wanted, self._looked = self._now(), True

    def let_go(self) -> None:
        """A batch has ended: the next one looks again."""
        self._looked, self._made, self._count = False, None, 0

    @property
    def grown(self) -> bool:
        """Somebody was added since the last look."""
        now = self._now()
        return self._looked and (now.orders if now else ()) != (self._wanted.orders if self._wanted else ())

    def of_read(self, rows: DataFrame) -> Column | None:
        """True for those among the rows that the table reads that are left out; None: none is."""
        return self.of(rows, read_by(self._table))

    def of(self, rows: DataFrame, holds: Holds) -> Column | None:
        """The same for rows that hold something else. A delete passes: copies shall lose the row as well."""
        wanted = self._current()
        found = rows_of(rows, holds.subjects, wanted, self._table.name, partly=True) if wanted is not None else None
        if found is None:
            return None
        if holds.headers is not None and holds.headers in rows.columns:
            found = found | is_redacted(holds.headers)
        return found & (F.col(CHANGE) != "delete") if CHANGE in rows.columns else found

    def without(self, rows: DataFrame, holds: Holds) -> DataFrame:
        found = self.of(rows, holds)
        return rows if found is None else rows.where(~found)

    def source(self, rows: DataFrame) -> DataFrame:
        """The rows of the table's source, read anew."""
        return self.without(rows, read_by(self._table))

    def own(self, rows: DataFrame, *, count: bool = False) -> DataFrame:
        """The rows that the table makes, without those that it shall not have; records that it lands are redacted."""
        found = self.of(rows, Holds(self._table.subjects))
        if found is None:
            return rows
        if lands(self._table):
            return redacted(rows, self._table.columns, found)
        marked = rows.withColumn(_MARK, found)
        if count:
            self._made = BatchMetrics()
            marked = self._made.on(marked, F.count_if(F.col(_MARK)).alias(_COUNT))
        return marked.where(~F.col(_MARK)).drop(_MARK)

    def made(self) -> int | None:
        """How many rows `own` has left out, after they were written; None if that is not known."""
        told = self._made.result() if self._made is not None else {_COUNT: self._count}
        return None if told is None else int(told[_COUNT])

    def count(self, rows: DataFrame) -> None:
        """In place of `own`, where the rows are in the table already: how many it would have left out."""
        found = self.of(rows, Holds(self._table.subjects))
        self._made, self._count = None, 0 if found is None else rows.where(found).count()

    def of_rejected(self, rows: DataFrame) -> Column | None:
        """True for those among the rows on their way to quarantine that do not go there."""
        return self.of(rows, Holds(in_quarantine(self._table)))

    def _current(self) -> SubjectMatch | None:
        if not self._looked:
            self.look()
        return self._wanted

    def _now(self) -> SubjectMatch | None:
        orders = self._list.orders(self._subjects) if self._list is not None else ()
        assert self._list is not None or not orders
        return SubjectMatch(self._list.key, orders) if self._list is not None and orders else None


def _subjects(table: TablePlan) -> frozenset[str]:
    return frozenset(subject for subjects in _all(table) for subject in subjects)


def _all(table: TablePlan) -> Iterator[Subjects]:
    yield table.subjects
    yield read_by(table).subjects
    for lookup in table.stages.lookups if table.stages is not None else ():
        yield lookup.holds.subjects
    for source in table.stream.inputs.values() if table.stream is not None else ():
        yield source.holds.subjects


_READ_MARK, _READ_COUNT = "__left_out", "left_out"


class RowProcessor(BatchProcessor):
    """A processor that makes and rejects rows one by one, so that the records at fault can be found."""

    @abstractmethod
    def probe(self, batch: DataFrame, entry: Entry) -> None:
        """Runs every expression of the definition on the rows; raises what they raise, and writes nothing."""

    @abstractmethod
    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        """How many rows there are, on how many an expression raises, the first of these, and the error."""

    @abstractmethod
    def look(self, batch: DataFrame, entry: Entry) -> None:
        """In place of `write`, where the rows are in the table already."""

    @abstractmethod
    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        """What became of the rows that `write` was given, of which `rows` are in the table now."""

    @abstractmethod
    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame: ...


class SuppressingProcessor(BatchProcessor):
    """A processor without those who shall be forgotten: what is read of them does not reach it."""

    def __init__(self, inner: BatchProcessor, suppression: Suppression) -> None:
        self._inner, self._suppression = inner, suppression
        self._observed: BatchMetrics | None = None

    @property
    def outdated(self) -> bool:
        return self._suppression.grown or self._inner.outdated

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.look()
        return self._inner.pin(self._plain(batch), last, after)

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        found = self._suppression.of_read(batch)
        self._inner.write(batch if found is None else self._watched(batch, found), entry, into, files=files)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        row_counts = self._inner.complete(self._plain(batch), entry, rows=rows, written=written)
        return self._with_forgotten(row_counts, batch) if row_counts else row_counts

    def done(self) -> None:
        self._inner.done()
        self._suppression.let_go()
        self._observed = None

    def _plain(self, batch: DataFrame) -> DataFrame:
        found = self._suppression.of_read(batch)
        return batch if found is None else batch.where(~found)

    def _watched(self, batch: DataFrame, found: Column) -> DataFrame:
        """Left out and counted in the pass that writes the others."""
        self._observed = BatchMetrics()
        marked = self._observed.on(
            batch.withColumn(_READ_MARK, found), F.count_if(F.col(_READ_MARK)).alias(_READ_COUNT)
        )
        return marked.where(~F.col(_READ_MARK)).drop(_READ_MARK)

    def _with_forgotten(self, row_counts: RowCounts, batch: DataFrame) -> RowCounts:
        """They count as read. Rows that were made and left out would else pass for duplicates. Of a batch that was
        written before a subject was added to the list, not more are gone than its table lacks."""
        read, made = self._left_out(batch), self._suppression.made() or 0
        if not read and not made and not row_counts.get(FORGOTTEN):
            return row_counts
        others = SUPERSEDED if row_counts.get(SUPERSEDED) else DUPLICATES
        rest = row_counts.get(others, 0) - made
        return {
            **row_counts,
            READ: row_counts.get(READ, 0) + read,
            FORGOTTEN: row_counts.get(FORGOTTEN, 0) + read + made + min(rest, 0),
            others: max(rest, 0),
        }

    def _left_out(self, batch: DataFrame) -> int:
        told = self._observed.result() if self._observed is not None else None
        if told is not None:
            return int(told[_READ_COUNT])
        found = self._suppression.of_read(batch)
        return 0 if found is None else batch.where(found).count()


class SuppressingRows(SuppressingProcessor, RowProcessor):
    def __init__(self, inner: RowProcessor, suppression: Suppression) -> None:
        super().__init__(inner, suppression)
        self._rows = inner

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        rows = self._rows.rejected(self._plain(batch), entry)
        found = self._suppression.of_rejected(rows)
        return rows if found is None else rows.where(~found)

    def probe(self, batch: DataFrame, entry: Entry) -> None:
        self._rows.probe(self._plain(batch), entry)

    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        return self._rows.raising(self._plain(batch), entry)

    def look(self, batch: DataFrame, entry: Entry) -> None:
        self._rows.look(self._plain(batch), entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        return self._with_forgotten(self._rows.counted(batch, entry, rows), batch)
