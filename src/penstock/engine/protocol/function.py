"""What the writer of a table's batches asks of the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry


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

    def write(self, batch: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        """One commit with the entry, or none if the batch makes no row. `files` is how many its rows deserve."""

    def complete(self, batch: DataFrame, entry: Entry, *, written: bool) -> Rest:
        """After the rows are in the table: whatever else belongs to the batch. `written` says that this function
        wrote them; else they were there already."""

    def done(self) -> None:
        """The batch has ended, well or not: what was kept for it is let go."""
