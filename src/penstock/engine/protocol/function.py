"""What the writer of a table's batches asks of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry, Pins, Watermark
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.into import Into


@dataclass(frozen=True)
class Pinned:
    """What a batch shall see again if it runs again; `Pins` says what each means."""

    lookups: Mapping[str, int] = field(default_factory=dict)
    watermark: Watermark | None = None


class Function(Protocol):
    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        """Of a batch which begins now and reads up to `after`; `last` are the pins of the batch before."""

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        """One commit with the entry, or none if the batch makes no row. `files` is how many its rows deserve; 0 leaves
        that to Spark."""

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        """After the rows are in the table, so many: whatever else belongs to the batch. `written` says that this
        function wrote them; else they were there already. What became of the batch; empty where nothing is counted."""

    def done(self) -> None:
        """The batch has ended, well or not: what was kept for it is let go."""
