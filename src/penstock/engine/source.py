"""What the protocol asks of a source, whatever it reads: where it begins, whether it is still the same, a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.covered import Asked, Covered
from penstock.engine.protocol.entry import Entry

Position = tuple[str, ...]
"""One text per stream that a table reads, as Spark writes it into `offsets/N`."""


@dataclass(frozen=True)
class Start:
    """Where a table begins, resolved once."""

    position: Position
    ids: Mapping[str, str]
    said: str | None = None
    """The position in words, where its text says nothing to a person."""
    notes: tuple[str, ...] = ()
    """What else a person should know of how the table begins."""


@dataclass(frozen=True)
class Move:
    """The project names the source in another way than the ledger does: where the table goes on."""

    position: Position
    ids: Mapping[str, str]
    note: str
    parked: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Opened at each start of a table; what it needs to ask outside, it asks before the table's lock is taken."""

    @property
    def subscription(self) -> Mapping[str, Any]:
        """What is read, as the ledger keeps it."""

    def start(self) -> Start:
        """Raises Transient while what is named does not exist."""

    def follow(self, entry: Entry) -> Move | None:
        """None if the ledger's subscription is that of the project."""

    def refuse_lost(self, entry: Entry) -> None:
        """Raises DataLoss where what comes after the entry's position can no longer be read."""

    def ids(self, after: Position) -> Mapping[str, str]:
        """Asked in every batch; raises DataLoss if something is no longer what was read before."""

    def stream(self, spark: SparkSession) -> DataFrame: ...

    def covered(self, spark: SparkSession, asked: Asked) -> Covered:
        """What was read up to a position, all at once. Raises Terminal where that can no longer be told."""

    def size(self, before: Position, after: Position) -> int | None:
        """At most so many rows lie between two positions; None if only their bytes are known."""

    def remarks(self, before: Position, after: Position) -> Iterable[str]:
        """What a person should know of what lay between two positions."""
