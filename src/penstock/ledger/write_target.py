"""Where the rows of a batch go: into the table as a commit of their own, or, in a replay, into files that one commit
swaps in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.ledger import commit
from penstock.ledger.commit import commit_metadata
from penstock.spark.jvm import java_frame, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.ledger.entry import Entry, Pins


class WriteTarget(Protocol):
    """A table, or files that become the table later: the batch processor does not know which."""

    @property
    def uri(self) -> str: ...

    @property
    def idempotent(self) -> bool:
        """On stores without our locks: every commit carries Delta's transaction options."""

    @property
    def replaces_all(self) -> bool:
        """The rows are those of the whole table: its current rows do not count."""

    @property
    def lazy(self) -> bool:
        """Nothing is committed: the receiver of the rows computes them later."""

    @property
    def entry(self) -> Entry | None:
        """The entry as the processor has changed it while it wrote; None if it has not."""

    @property
    def columns(self) -> Callable[[StructType], None] | None:
        """Sets the columns that the table will have, before anything is written; None if the table itself has them."""

    def existing_rows(self, session: SparkSession) -> DataFrame | None:
        """The existing rows that stay, next to those of the batch; None if there are none."""

    def append(self, rows: DataFrame, entry: Entry) -> None: ...

    def overwrite(self, rows: DataFrame, entry: Entry) -> None: ...

    def repin(self, entry: Entry) -> None:
        """Called when a batch has pinned more before its first write: records that are set aside."""


@dataclass
class DeltaTableTarget:
    uri: str
    idempotent: bool = False
    replaces_all: bool = False
    lazy: bool = False
    store: Callable[[Pins], None] | None = None
    """Stores the pins next to the offsets of the batch."""
    columns: None = field(default=None, init=False)
    entry: Entry | None = field(default=None, init=False)
    """The entry as the processor has pinned it again; None if it has not."""

    def existing_rows(self, session: SparkSession) -> DataFrame:
        return session.read.format("delta").load(self.uri)

    def append(self, rows: DataFrame, entry: Entry) -> None:
        commit.append(rows, self.uri, entry, idempotent=self.idempotent)

    def overwrite(self, rows: DataFrame, entry: Entry) -> None:
        commit.overwrite(rows, self.uri, entry, idempotent=self.idempotent)

    def repin(self, entry: Entry) -> None:
        if self.store is not None:
            self.store(entry.pins)
        self.entry = entry


def coalesce_files(rows: DataFrame, files: int) -> DataFrame:
    """The rows in that many files; 0 leaves the number to Spark."""
    return rows.coalesce(files) if files else rows


# The rows of a table that is rebuilt: written first, and swapped in for all its rows by one commit later.
#
# Python's side of jar_data/java/penstock/delta/Refill.java.


class StagedOverwrite:
    replaces_all, lazy = True, False

    def __init__(self, session: SparkSession, uri: str, *, idempotent: bool, kept: DataFrame | None = None) -> None:
        """`kept`: rows of the table that stay as they are. Nobody else uses the session: its commits carry the metadata
        set on it."""
        self.uri, self.idempotent = uri, idempotent
        self._session, self._kept = session, kept
        self._schema: StructType | None = None
        self._started_refill: Any = None
        self.entry: Entry | None = None
        """As the processor gave it: a merge adds to it what it counted."""

    @property
    def _refill(self) -> Any:
        """Started with the first rows: until then a table of files may still get columns that its files bring."""
        if self._started_refill is None:
            jvm = jvm_of(self._session)
            self._started_refill = jvm.penstock.delta.Refill.begin(java_session(self._session), self.uri)
            if self._schema is not None:
                self._started_refill.columns(self._schema.json())
        return self._started_refill

    def existing_rows(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._refill.write(java_frame(rows))
        self.entry = entry

    overwrite = append

    def repin(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def rows(self) -> int:
        """Number of rows written so far."""
        return int(self._refill.rows())

    def columns(self, schema: StructType) -> None:
        """The columns that the table will have; to be called before anything is written."""
        self._schema = schema

    def write_kept_rows(self) -> int:
        """Writes the rows that stay, and returns how many there are."""
        if self._kept is None:
            return 0
        before = self.rows
        self._refill.write(java_frame(self._kept))
        return self.rows - before

    def commit(self, entry: Entry) -> None:
        with commit_metadata(self._session, entry, idempotent=self.idempotent):
            self._refill.commit()
