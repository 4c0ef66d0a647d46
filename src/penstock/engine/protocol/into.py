"""Where the rows of a batch go: into the table, as a commit of their own; or, in a replay, into files that become the
table later. A table's function does not know which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.protocol import commit
from penstock.engine.protocol.entry import Entry, Pins


class Into(Protocol):
    @property
    def uri(self) -> str: ...

    @property
    def idempotent(self) -> bool:
        """On stores without our locks: every commit carries Delta's transaction options."""

    @property
    def anew(self) -> bool:
        """The rows are those of the whole table: what it holds now does not count."""

    @property
    def lazy(self) -> bool:
        """Nothing is committed: whoever takes the rows computes them later."""

    def there(self, session: SparkSession) -> DataFrame | None:
        """The rows that stay beside those of the batch; None if there are none."""

    def append(self, rows: DataFrame, entry: Entry) -> None: ...

    def overwrite(self, rows: DataFrame, entry: Entry) -> None: ...

    def repin(self, entry: Entry) -> None:
        """Before its first write a batch has pinned more: records that are set aside."""


@dataclass
class Table:
    uri: str
    idempotent: bool = False
    anew: bool = False
    lazy: bool = False
    store: Callable[[Pins], None] | None = None
    """Keeps the pins beside the offsets of the batch."""
    entry: Entry | None = field(default=None, init=False)
    """As the function has pinned it anew; None if it has not."""

    def there(self, session: SparkSession) -> DataFrame:
        return session.read.format("delta").load(self.uri)

    def append(self, rows: DataFrame, entry: Entry) -> None:
        commit.append(rows, self.uri, entry, idempotent=self.idempotent)

    def overwrite(self, rows: DataFrame, entry: Entry) -> None:
        commit.overwrite(rows, self.uri, entry, idempotent=self.idempotent)

    def repin(self, entry: Entry) -> None:
        if self.store is not None:
            self.store(entry.pins)
        self.entry = entry


def in_files(rows: DataFrame, files: int) -> DataFrame:
    """In so many files; as many as Spark makes if that is 0."""
    return rows.coalesce(files) if files else rows
