"""Rows of a table exchanged for others in one commit: Python's side of jar_data/java/penstock/delta."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.spark.jvm import java_frame, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE, PLACE = "__file", "__place"
"""Where a row lies: its file, and its number in it."""
_METRICS = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsCopied",
    "operationNumSourceRows",
)
"""Delta wants each of them from a commit that is called MERGE."""


class Exchange:
    """Begun before the table is read, so that a commit by others in between is a conflict."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        jvm = jvm_of(session)
        self._session, self._jvm = session, jvm
        self._inner: Any = jvm.penstock.delta.Exchange.begin(java_session(session), uri)

    @property
    def files(self) -> int:
        """How many files the table has."""
        return int(self._inner.files())

    @property
    def done(self) -> bool:
        """Delta's own record says that what this session names is in the table; only where it names something."""
        return bool(self._inner.done())

    @property
    def scanned(self) -> int:
        """How many files the last look has left."""
        return int(self._inner.candidates())

    def look_at_nothing(self) -> None:
        self._inner.lookAtNothing()

    @property
    def feeds(self) -> bool:
        """The table keeps a change feed. That was decided when it was made, whatever the project says now: without one
        Delta would take the rows of a feed for rows of the table."""
        return bool(self._inner.feeds())

    def setting(self, name: str) -> str | None:
        found = self._inner.property(name)
        return None if found is None else str(found)

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._inner.schema()))

    def look(self, ranges: Any | None) -> int:
        """How many files can hold a row within the ranges: a row of the JVM with an array of first and last values for
        each column that has bounds. None: all of them."""
        return int(self._inner.look(ranges))

    def look_closer(self, ranges: Any) -> int:
        """The same with ranges besides those of the last look."""
        return int(self._inner.lookCloser(ranges))

    @property
    def goes(self) -> bool:
        """Whether `find` has found a row that goes."""
        return bool(self._inner.goes())

    def rows(self) -> DataFrame:
        """The rows of these files within the ranges, with their places."""
        return DataFrame(self._inner.rows(), self._session)

    def content(self) -> DataFrame:
        """The same rows without their places: of a table without deletion vectors."""
        return DataFrame(self._inner.content(), self._session)

    def find(self, turned: DataFrame, counts: Sequence[str]) -> dict[str, int]:
        """`turned` has for each file the places of the rows that go, and the counts, which are added up."""
        found = self._inner.find(java_frame(turned))
        return {name: int(found[index]) for index, name in enumerate(counts)}

    def commit(self, come: DataFrame | None, told: Mapping[str, int], *, seen: bool = True) -> int:
        """The version. `told` goes into the table's history, by Delta's names. `seen`: whether those who follow the
        table are to see what goes."""
        numbers = self._jvm.java.util.HashMap()
        for name, number in {**dict.fromkeys(_METRICS, 0), **told}.items():
            numbers.put(name, number)
        return int(self._inner.commit(java_frame(come) if come is not None else None, numbers, seen))


class Blank(Exchange):
    """Of a table that is made anew: whatever it holds, nothing is there."""

    @property
    def files(self) -> int:
        return 0

    @property
    def feeds(self) -> bool:
        return False

    def look(self, ranges: Any | None) -> int:
        self.look_at_nothing()
        return 0
