"""What a table would be after a replay, as rows that are written nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.forget.function import Forgetting
from penstock.engine.isolation.function import Isolating
from penstock.engine.merge.tombstones import alive
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.function import Function
from penstock.engine.protocol.ledger import Tail
from penstock.engine.replay.began import began_of
from penstock.engine.replay.fill import Work, asked_of, fill_entry
from penstock.engine.replay.kept import kept_rows
from penstock.engine.replay.pending import Replay
from penstock.engine.staged import Staged
from penstock.engine.table_function import table_function
from penstock.plan.model import TablePlan


class Shown:
    """Takes the rows of a table's function and keeps them as what they are: a query."""

    anew, idempotent, lazy = True, False, True

    def __init__(self, uri: str, kept: DataFrame | None) -> None:
        self.uri, self._kept = uri, kept
        self._parts: list[DataFrame] = []

    def there(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._parts.append(rows)

    overwrite = append

    def repin(self, entry: Entry) -> None:
        pass

    def rows(self, schema: StructType, session: SparkSession) -> DataFrame:
        parts = [*self._parts, *([self._kept] if self._kept is not None else [])]
        empty = session.createDataFrame([], schema)
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts, empty)


@dataclass(frozen=True)
class Preview:
    now: DataFrame
    then: DataFrame
    rejected: DataFrame | None
    """With the reasons, where rows can be rejected."""


@contextmanager
def preview(work: Work, tail: Tail, at: int | None, after: tuple[str, ...]) -> Iterator[Preview]:
    """The rows are there as long as the context is open."""
    table, session = work.table, work.spark.newSession()
    replay = Replay(tail.entry.generation, tail.entry.after, at)
    began = began_of(work.log, tail.entry)
    opened = replace(tail, entry=replace(tail.entry, after=after, began=began))
    made = table_function(session, table, work.store, work.source)
    function = made.looking(table, work.store)
    covered = work.source.covered(session, asked_of(table, opened.entry, replay))
    there = session.read.format("delta").load(table.uri)
    kept = kept_rows(table, covered)
    shown = Shown(table.uri, there.where(kept) if kept is not None else None)
    entry = fill_entry(table, opened, replay, function, covered.rows)
    try:
        function.write(covered.rows, entry, shown, files=0)
        now = there if table.write.merge is None else alive(there)
        yield Preview(now, shown.rows(made.schema, session), _rejected(function, covered.rows, entry, table))
    finally:
        function.done()


def _rejected(function: Function, rows: DataFrame, entry: Entry, table: TablePlan) -> DataFrame | None:
    staged = isinstance(function, Staged | Isolating) or (isinstance(function, Forgetting) and function.staged)
    if not table.may_reject or not staged:
        return None
    assert isinstance(function, Staged | Forgetting | Isolating)
    return function.rejected(rows, entry)
