"""The function of a table without those who shall be forgotten: what it reads of them does not reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.ledger.checkpoint import DUPLICATES, FORGOTTEN, READ, SUPERSEDED
from penstock.ledger.writer import BatchMetrics
from penstock.tables.staged import StagedProcessor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import BatchProcessor, PinnedInputs
    from penstock.tables.suppression import Suppression

_MARK, _COUNT = "__left_out", "left_out"


class SuppressingProcessor:
    def __init__(self, inner: BatchProcessor, suppression: Suppression) -> None:
        self._inner, self._suppression = inner, suppression
        self._observed: BatchMetrics | None = None

    @property
    def grown(self) -> bool:
        """Somebody was to be forgotten since it began: what it has made is not good any more."""
        return self._suppression.grown

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.look()
        return self._inner.pin(self._plain(batch), last, after)

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        found = self._suppression.of_read(batch)
        self._inner.write(batch if found is None else self._watched(batch, found), entry, into, files=files)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        fates = self._inner.complete(self._plain(batch), entry, rows=rows, written=written)
        return self._with_forgotten(fates, batch) if fates else fates

    def done(self) -> None:
        self._inner.done()
        self._suppression.let_go()
        self._observed = None

    @property
    def staged(self) -> bool:
        """What follows is only for tables with stages."""
        return isinstance(self._inner, StagedProcessor)

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        assert isinstance(self._inner, StagedProcessor)
        rows = self._inner.rejected(self._plain(batch), entry)
        found = self._suppression.of_rejected(rows)
        return rows if found is None else rows.where(~found)

    def probe(self, batch: DataFrame, entry: Entry) -> None:
        assert isinstance(self._inner, StagedProcessor)
        self._inner.probe(self._plain(batch), entry)

    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        assert isinstance(self._inner, StagedProcessor)
        return self._inner.raising(self._plain(batch), entry)

    def look(self, batch: DataFrame, entry: Entry) -> None:
        assert isinstance(self._inner, StagedProcessor)
        self._inner.look(self._plain(batch), entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        assert isinstance(self._inner, StagedProcessor)
        return self._with_forgotten(self._inner.counted(entry, rows), batch)

    def _plain(self, batch: DataFrame) -> DataFrame:
        found = self._suppression.of_read(batch)
        return batch if found is None else batch.where(~found)

    def _watched(self, batch: DataFrame, found: Column) -> DataFrame:
        """Left out and counted in the pass that writes the others."""
        self._observed = BatchMetrics()
        marked = self._observed.on(batch.withColumn(_MARK, found), F.count_if(F.col(_MARK)).alias(_COUNT))
        return marked.where(~F.col(_MARK)).drop(_MARK)

    def _with_forgotten(self, fates: RowCounts, batch: DataFrame) -> RowCounts:
        """They count as read. Rows that were made and left out would else pass for duplicates. Of a batch that was
        written before somebody was added to the list, not more are gone than its table lacks."""
        read, made = self._left_out(batch), self._suppression.made() or 0
        if not read and not made and not fates.get(FORGOTTEN):
            return fates
        others = SUPERSEDED if fates.get(SUPERSEDED) else DUPLICATES
        rest = fates.get(others, 0) - made
        return {
            **fates,
            READ: fates.get(READ, 0) + read,
            FORGOTTEN: fates.get(FORGOTTEN, 0) + read + made + min(rest, 0),
            others: max(rest, 0),
        }

    def _left_out(self, batch: DataFrame) -> int:
        told = self._observed.result() if self._observed is not None else None
        if told is not None:
            return int(told[_COUNT])
        found = self._suppression.of_read(batch)
        return 0 if found is None else batch.where(found).count()
