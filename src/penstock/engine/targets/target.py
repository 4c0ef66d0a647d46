"""What a sink that follows changes asks of the system that it sends them to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry

AWAY = "is it running, and is `to` of the sink right? Nothing is lost: the sink goes on where it is"


@dataclass(frozen=True)
class Refused:
    """A row that the target does not take, whatever is tried."""

    key: str
    """As `Shape.key` gives it."""
    reason: str
    detail: str


@dataclass(frozen=True)
class Sent:
    changes: int
    aside: int | None
    """Rows that were not even tried, because of their key; None: nobody counted them."""
    refused: Sequence[Refused] = ()


class Target(Protocol):
    def ready(self, last: Entry) -> None:
        """At a start: raises Transient while it is away, Terminal where it does not fit the sink or its ledger, which
        ends with `last`."""

    def send(self, changes: DataFrame, entry: Entry) -> Sent:
        """Returns when the target has all of them. The rows are those of `net`. A batch that was sent before may be
        sent again, the same or longer; then nothing of it is there twice."""
