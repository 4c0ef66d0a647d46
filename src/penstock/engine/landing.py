"""A table that lands its source: the record as it came."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine import bronze
from penstock.engine.forget.suppression import Suppression
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into, in_files
from penstock.plan.model import TablePlan


class Landing:
    def __init__(self, table: TablePlan, suppression: Suppression) -> None:
        self._table, self._suppression = table, suppression

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        rows = bronze.rows(batch, self._table, entry.pins) if self._table.columns else batch
        into.append(in_files(self._suppression.own(rows), files), entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        return {}

    def done(self) -> None:
        pass
