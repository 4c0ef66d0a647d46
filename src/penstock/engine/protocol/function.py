"""What the writer of a table's batches asks of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry, Pins


@dataclass(frozen=True)
class Rest:
    """What became of the rows of a batch that were not written; None where a crash took the knowledge."""

    read: int | None = None
    rejected: int = 0
    dropped: int | None = None
    passed: int | None = None
    """Rows that met every expectation: what of them was not written was there already."""
    unmet: Mapping[str, int] = field(default_factory=dict)
    """Per expectation, how many rows did not meet it."""


class Function(Protocol):
    def pin(self) -> Mapping[str, int]:
        """The versions of the lookups that a batch which begins now shall see."""

    def rows(self, batch: DataFrame, pins: Pins) -> DataFrame:
        """What is to be written; run once."""

    def complete(self, batch: DataFrame, entry: Entry, *, written: bool) -> Rest:
        """After the rows are in the table: whatever else belongs to the batch. `written` says that this call of `rows`
        was; else they were there already."""

    def done(self) -> None:
        """The batch has ended, well or not: what was kept for it is let go."""
