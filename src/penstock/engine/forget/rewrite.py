"""The files of a table that hold somebody, written anew without him in one commit: Python's side of Erase.java."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.merge.exchange import FILE
from penstock.engine.protocol.commit import carrying
from penstock.engine.protocol.entry import Entry
from penstock.engine.upkeep.vacuuming import within

Find = Callable[[DataFrame], Column | None]
"""Of rows: which are of somebody who is looked for; None if none can be."""
Redact = Callable[[DataFrame, Column], DataFrame]
"""Those that meet the condition stay as rows, and say nothing any more."""
_HIT, _CHANGE = "__hit", "_change_type"


@dataclass(frozen=True)
class Held:
    """What the files of a version hold of somebody."""

    rows: int = 0
    marked: int = 0
    """Rows that are only marked as deleted, and still in their files."""
    files: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.files


class Rewrite:
    """Begun before the table is read, so that files that others take away in between are a conflict. Rows that others
    append meanwhile are not: whoever is to be forgotten is not among them, or another look finds him."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        """The session is used by nobody else: what goes with its commits is of this one."""
        jvm = session.sparkContext._jvm
        assert jvm is not None
        self._session, self._jvm, self.uri = session, jvm, uri
        self._inner: Any = jvm.penstock.delta.Erase.begin(session._jsparkSession, uri)

    @property
    def version(self) -> int:
        return int(self._inner.version())

    @property
    def files(self) -> list[str]:
        """Of the version, in full and decoded."""
        return [unquote(str(name)) for name in self._inner.names()]

    def held(self, find: Find) -> Held:
        """Every file of the version is read: a person can be in any of them."""
        found = _by_file(DataFrame(self._inner.rows(), self._session), find)
        rows, marked = sum(found.values()), 0
        if self._inner.marked():
            all_of_them = _by_file(DataFrame(self._inner.withMarked(), self._session), find)
            marked = sum(count - found.get(name, 0) for name, count in all_of_them.items())
            found |= all_of_them
        return Held(rows, marked, tuple(sorted(found)))

    def held_beside(self, find: Find, names: Sequence[str]) -> dict[str, int]:
        """Of files in the folder of the table that are in no version, by their names from there on."""
        if not names:
            return {}
        found = _by_file(DataFrame(self._inner.others(_listed(self._jvm, names)), self._session), find)
        return {within(unquote(name), self.uri): count for name, count in found.items()}

    def commit(self, held: Held, find: Find, entry: Entry, redact: Redact | None) -> int:
        """The version."""
        self._inner.choose(_listed(self._jvm, held.files))
        rows = DataFrame(self._inner.chosen(), self._session).drop(FILE)
        condition = find(rows)
        assert condition is not None
        rows = rows.withColumn(_HIT, condition)
        come = redact(rows, F.col(_HIT)) if redact is not None else rows.where(f"NOT {_HIT}")
        if self._inner.feeds():  # whoever follows the changes loses the row, also where it stays and says nothing
            gone = rows.where(_HIT).withColumn(_CHANGE, F.lit("delete"))
            come = come.withColumn(_CHANGE, F.lit(None).cast("string")).unionByName(gone)
        told = self._jvm.java.util.HashMap()
        for name, number in {"numDeletedRows": held.rows, "numRemovedFiles": len(held.files)}.items():
            told.put(name, number)
        with carrying(self._session, entry, idempotent=False):
            return int(self._inner.commit(come.drop(_HIT)._jdf, told))


def checkpoint(session: SparkSession, uri: str) -> int:
    """Of the table's log, at its newest version, which is given."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    return int(jvm.penstock.delta.Erase.checkpoint(session._jsparkSession, uri))


def _by_file(rows: DataFrame, find: Find) -> dict[str, int]:
    condition = find(rows)
    if condition is None:
        return {}
    return {str(row[0]): int(row[1]) for row in rows.where(condition).groupBy(FILE).count().collect()}


def _listed(jvm: Any, names: Sequence[str]) -> Any:
    made = jvm.java.util.ArrayList()
    for name in names:
        made.add(name)
    return made
