"""What the writer asks of a source, and what a table reads in the words of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import DeltaSource

# What a table has read of its source, all at once: the input of a replay.


@dataclass(frozen=True)
class ReplayInput:
    """The source may no longer have everything: rows of the table that were made of what is gone stay as they are."""

    rows: DataFrame
    """As batches of the source bring them."""
    held: Offsets | None = None
    """Of topics: the first offsets that are read; rows from before them, or from other topics, stay. None: it is all
    there."""
    gone: tuple[str, ...] = field(default=())
    """Files whose rows stay."""

    @property
    def whole(self) -> bool:
        return self.held is None and not self.gone


@dataclass(frozen=True)
class ReplayRequest:
    """Up to where, and how, a source is to be read once more."""

    after: tuple[str, ...]
    began: tuple[str, ...]
    """Where the table began to read."""
    ids: Mapping[str, str]
    """Of the topics that were read."""
    at: int | None = None
    """A version of the table upstream, in whose place the position would stand for another one."""
    as_state: bool = False
    """Of changes: what the rows are in the end is enough, not how they became so."""


# What the protocol asks of a source, whatever it reads: where it begins, whether it is still the same, a stream.


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

    def covered(self, spark: SparkSession, asked: ReplayRequest) -> ReplayInput:
        """What was read up to a position, all at once. Raises Terminal where that can no longer be told."""

    def size(self, before: Position, after: Position) -> int | None:
        """At most so many rows lie between two positions; None if only their bytes are known."""

    def remarks(self, before: Position, after: Position) -> Iterable[str]:
        """What a person should know of what lay between two positions."""


# What a table reads, in the words of the ledger: from its plan alone, without Spark and without a broker.


def of_streams(inputs: Mapping[str, DeltaSource]) -> dict[str, str]:
    """The tables by the names of the arguments. In which order they are read only the function knows."""
    return {name: source.label for name, source in inputs.items()}


def subscribes(table: TablePlan) -> dict[str, Any]:
    """What the next entry will say; of a table with `stream` without the order."""
    if table.stream is not None:
        return {"streams": of_streams(table.stream.inputs)}
    return table.source.subscription(table.name)


def reads_the_same(table: TablePlan, subscription: Mapping[str, Any]) -> bool:
    """Whether the ledger's subscription is that of the project."""
    return {name: value for name, value in subscription.items() if name != "order"} == subscribes(table)


def said(subscription: Mapping[str, Any]) -> str:
    """`topics orders, refunds`, `table bronze.orders`."""
    if "topics" in subscription:
        names = list(map(str, subscription["topics"]))
        return f"topic{'s' * (len(names) != 1)} {', '.join(names)}"
    if "pattern" in subscription:
        return f"topics that match {subscription['pattern']}"
    if "table" in subscription:
        return f"table {subscription['table']}"
    if "streams" in subscription:
        tables = subscription["streams"]
        order = subscription.get("order") or list(tables)
        return f"table{'s' * (len(order) != 1)} {', '.join(str(tables.get(name, name)) for name in order)}"
    return "files" if "files" in subscription else "another source"
