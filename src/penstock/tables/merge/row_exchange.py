"""Replaces rows of a table by others in one commit: the Python side of jar_data/java/penstock/delta."""

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
"""Where a row is stored: its file, and its number in that file."""
_METRICS = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsCopied",
    "operationNumSourceRows",
)
"""Delta expects all of these from a commit called MERGE."""


class Exchange:
    """An exchange of rows, begun before the table is read, so that a concurrent commit is a conflict."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        jvm = jvm_of(session)
        self._session, self._jvm = session, jvm
        self._inner: Any = jvm.penstock.delta.Exchange.begin(java_session(session), uri)

    @property
    def files(self) -> int:
        """The number of files in the table."""
        return int(self._inner.files())

    @property
    def already_committed(self) -> bool:
        """Whether Delta's transaction record has the write that this session names; false if it names none."""
        return bool(self._inner.done())

    @property
    def scanned(self) -> int:
        """The number of files that `select_files` and `narrow_files` left."""
        return int(self._inner.candidates())

    def select_no_files(self) -> None:
        self._inner.lookAtNothing()

    @property
    def keeps_change_feed(self) -> bool:
        """Whether the table keeps a change feed. That is the table's own setting, whatever the project says now:
        without a feed, Delta would store the feed's rows as rows of the table."""
        return bool(self._inner.feeds())

    def setting(self, name: str) -> str | None:
        value = self._inner.property(name)
        return None if value is None else str(value)

    @property
    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._inner.schema()))

    def select_files(self, ranges: Any | None) -> int:
        """Selects the files that can hold a row within the ranges, and returns their number. `ranges` is a JVM row with
        an array of first and last values for each column that has bounds; None selects all files."""
        return int(self._inner.look(ranges))

    def narrow_files(self, ranges: Any) -> int:
        """Narrows the last `select_files` by further ranges, and returns the number of files left."""
        return int(self._inner.lookCloser(ranges))

    @property
    def removes_rows(self) -> bool:
        """Whether `mark_removed` was given a row to remove."""
        return bool(self._inner.goes())

    def rows(self) -> DataFrame:
        """The rows of the selected files within the ranges, with their places."""
        return DataFrame(self._inner.rows(), self._session)

    def content(self) -> DataFrame:
        """The same rows without their places, for a table without deletion vectors."""
        return DataFrame(self._inner.content(), self._session)

    def mark_removed(self, per_file: DataFrame, counts: Sequence[str]) -> dict[str, int]:
        """Records the rows to remove and returns the summed counts. `per_file` has for each file the places of its rows
        to remove, and its counts."""
        totals = self._inner.find(java_frame(per_file))
        return {name: int(totals[index]) for index, name in enumerate(counts)}

    def commit(self, new_rows: DataFrame | None, metrics: Mapping[str, int], *, seen: bool = True) -> int:
        """Commits and returns the version. `metrics` go into the table's history, under Delta's names. `seen`: whether
        readers that follow the table see the removed rows."""
        java_metrics = self._jvm.java.util.HashMap()
        for name, value in {**dict.fromkeys(_METRICS, 0), **metrics}.items():
            java_metrics.put(name, value)
        return int(self._inner.commit(java_frame(new_rows) if new_rows is not None else None, java_metrics, seen))


class EmptyExchange(Exchange):
    """The exchange of a table that is rebuilt: whatever it holds counts as empty."""

    @property
    def files(self) -> int:
        return 0

    @property
    def keeps_change_feed(self) -> bool:
        return False

    def select_files(self, ranges: Any | None) -> int:
        self.select_no_files()
        return 0
