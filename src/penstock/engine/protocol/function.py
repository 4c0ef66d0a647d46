"""What the writer of a table's batches asks of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.fates import Fates


class Function(Protocol):
    def pin(self) -> Mapping[str, int]:
        """The versions of the lookups that a batch which begins now shall see."""

    def write(self, batch: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        """One commit with the entry, or none if the batch makes no row. `files` is how many its rows deserve."""

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        """After the rows are in the table, so many: whatever else belongs to the batch. `written` says that this
        function wrote them; else they were there already. What became of the batch; empty where nothing is counted."""

    def done(self) -> None:
        """The batch has ended, well or not: what was kept for it is let go."""
