"""What the writer needs from a source, and what a table reads in the terms of the ledger."""

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

# Everything a table has read of its source at once: the input of a replay.


@dataclass(frozen=True)
class ReplayInput:
    """The source may no longer have everything: rows of the table that were made from missing input stay as they
    are."""

    rows: DataFrame
    """In the form in which batches of the source have them."""
    first_offsets: Offsets | None = None
    """For topics: the first offsets that are read; rows from before them, or from other topics, stay. None: everything
    is there."""
    missing_files: tuple[str, ...] = field(default=())
    """Files whose rows stay."""

    @property
    def complete(self) -> bool:
        return self.first_offsets is None and not self.missing_files


@dataclass(frozen=True)
class ReplayRequest:
    """Up to which position, and how, a source is to be read once more."""

    after: tuple[str, ...]
    began: tuple[str, ...]
    """Where the table began to read."""
    ids: Mapping[str, str]
    """Ids of the topics that were read."""
    at: int | None = None
    """A version of the upstream table, read instead of the one that the position names."""
    as_state: bool = False
    """For changes: the final state of the rows is enough, not how they got there."""


Position = tuple[str, ...]
"""One text per stream that a table reads, as Spark writes it into `offsets/N`."""


@dataclass(frozen=True)
class Start:
    """Where a table begins, resolved once."""

    position: Position
    ids: Mapping[str, str]
    description: str | None = None
    """The position in words, where its text tells a person nothing."""
    notes: tuple[str, ...] = ()
    """What else a person should know about how the table begins."""


@dataclass(frozen=True)
class Move:
    """The project names the source differently from the ledger: where the table continues."""

    position: Position
    ids: Mapping[str, str]
    note: str
    parked: Mapping[str, Any] = field(default_factory=dict)


class Source(Protocol):
    """Opened at each start of a table; questions to other systems are asked before the table's lock is taken."""

    @property
    def subscription(self) -> Mapping[str, Any]:
        """What is read, as the ledger records it."""

    def start(self) -> Start:
        """Raises Transient while what the project names does not exist."""

    def follow(self, entry: Entry) -> Move | None:
        """None if the ledger's subscription is that of the project."""

    def refuse_lost(self, entry: Entry) -> None:
        """Raises DataLoss if what follows the entry's position can no longer be read."""

    def ids(self, after: Position) -> Mapping[str, str]:
        """Called in every batch; raises DataLoss if a topic or table is no longer the one that was read before."""

    def stream(self, spark: SparkSession) -> DataFrame: ...

    def replay_input(self, spark: SparkSession, request: ReplayRequest) -> ReplayInput:
        """Everything that was read up to a position, at once. Raises Terminal if that can no longer be determined."""

    def size(self, before: Position, after: Position) -> int | None:
        """An upper bound for the rows between two positions; None if only their bytes are known."""

    def remarks(self, before: Position, after: Position) -> Iterable[str]:
        """What a person should know about the range between two positions."""


# What a table reads, in the terms of the ledger: from its plan alone, without Spark and without a broker.


def stream_subscription(inputs: Mapping[str, DeltaSource]) -> dict[str, str]:
    """The tables by the names of the function's arguments. Only the function knows in which order they are read."""
    return {name: source.label for name, source in inputs.items()}


def subscription_of(table: TablePlan) -> dict[str, Any]:
    """The subscription of the next entry; for a table with `stream` without the order."""
    if table.stream is not None:
        return {"streams": stream_subscription(table.stream.inputs)}
    return table.source.subscription(table.name)


def reads_the_same(table: TablePlan, subscription: Mapping[str, Any]) -> bool:
    """Whether the ledger's subscription is that of the project."""
    return {name: value for name, value in subscription.items() if name != "order"} == subscription_of(table)


def describe_subscription(subscription: Mapping[str, Any]) -> str:
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
