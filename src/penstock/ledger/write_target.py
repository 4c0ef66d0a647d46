"""Where the rows of a batch go: into the table as a commit of their own, or, in a replay, into files that one
commit swaps in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from penstock.ledger import commit
from penstock.ledger.commit import carrying
from penstock.spark.jvm import java_frame, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.ledger.entry import Entry, Pins

# Where the rows of a batch go: into the table, as a commit of their own; or, in a replay, into files that become the
# table later. A table's function does not know which.


class WriteTarget(Protocol):
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
class DeltaTableTarget:
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


# The rows of a table that is made anew: written first, and put in the place of all that it holds by one commit,
# later.
#
# Python's side of jar_data/java/penstock/delta/Refill.java.


class StagedOverwrite:
    anew, lazy = True, False

    def __init__(self, session: SparkSession, uri: str, *, idempotent: bool, kept: DataFrame | None = None) -> None:
        """`kept`: rows of the table that stay as they are. The session is used by nobody else: what goes with its
        commits is of this one."""
        self.uri, self.idempotent = uri, idempotent
        self._session, self._kept = session, kept
        self._schema: StructType | None = None
        self._begun: Any = None
        self.entry: Entry | None = None
        """As the function gave it: a merge adds to it what it counted."""

    @property
    def _inner(self) -> Any:
        """Begun with the first rows: until then a table of files may still get columns that its files bring."""
        if self._begun is None:
            jvm = jvm_of(self._session)
            self._begun = jvm.penstock.delta.Refill.begin(java_session(self._session), self.uri)
            if self._schema is not None:
                self._begun.columns(self._schema.json())
        return self._begun

    def there(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._inner.write(java_frame(rows))
        self.entry = entry

    overwrite = append

    def repin(self, entry: Entry) -> None:
        self.entry = entry

    @property
    def rows(self) -> int:
        """Written so far."""
        return int(self._inner.rows())

    def columns(self, schema: StructType) -> None:
        """Those that the table shall have; before anything is written."""
        self._schema = schema

    def keep(self) -> int:
        """Writes the rows that stay; how many those are."""
        if self._kept is None:
            return 0
        before = self.rows
        self._inner.write(java_frame(self._kept))
        return self.rows - before

    def commit(self, entry: Entry) -> None:
        with carrying(self._session, entry, idempotent=self.idempotent):
            self._inner.commit()
