"""The files of a table that hold somebody, written anew without him in one commit: Python's side of Erase.java."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Looked:
    """What was found in the files of a version, by their names."""

    seen: frozenset[str] = frozenset()
    living: Mapping[str, int] = field(default_factory=dict)
    """Rows of somebody."""
    physical: Mapping[str, int] = field(default_factory=dict)
    """The same with those that are only marked as deleted, of files that have such."""

    @property
    def held(self) -> Held:
        marked = sum(count - self.living.get(name, 0) for name, count in self.physical.items())
        return Held(sum(self.living.values()), marked, tuple(sorted({*self.living, *self.physical})))


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
        return [unquote(name) for name in self._names()]

    def _names(self) -> list[str]:
        return str(self._inner.names()).split()

    def look(self, find: Find, before: Looked | None = None) -> Looked:
        """Every file of the version is read: a person can be in any of them. Files do not change: what was seen in one
        `before` is still so."""
        known = before or Looked()
        now = self._names()
        new = [name for name in now if name not in known.seen]
        living, physical = dict(known.living), dict(known.physical)
        if new:
            names = "\n".join(new)
            living |= _by_file(DataFrame(self._inner.rows(names), self._session), find)
            if self._inner.marked():
                physical |= _by_file(DataFrame(self._inner.withMarked(names), self._session), find)
        there = set(now)
        return Looked(
            frozenset(now),
            {name: count for name, count in living.items() if name in there},
            {name: count for name, count in physical.items() if name in there},
        )

    def held_beside(self, find: Find, names: Sequence[str]) -> dict[str, int]:
        """Of files in the folder of the table that are in no version, by their names from there on."""
        if not names:
            return {}
        found = _by_file(DataFrame(self._inner.others("\n".join(names)), self._session), find)
        return {within(unquote(name), self.uri): count for name, count in found.items()}

    def commit(self, held: Held, find: Find, entry: Entry, redact: Redact | None) -> int:
        """The version."""
        self._inner.choose("\n".join(held.files))
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
