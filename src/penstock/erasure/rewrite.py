"""Rewriting every file that holds a data subject's rows: one commit per table, with its ledger entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.ledger.checkpoint import folder_of
from penstock.ledger.commit import append_nothing, carrying, must_confirm
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Counts
from penstock.ledger.head import read_head, refuse_foreign_changes
from penstock.ledger.row_counts import FORGOTTEN, REJECTED, add_counts, read_row_counts
from penstock.maintenance.tables import all_places
from penstock.maintenance.vacuum import within
from penstock.plan.quarantine import in_quarantine, lands, quarantine_of
from penstock.spark.jvm import java_frame, java_session, jvm_of
from penstock.storage.locks import acquire_commit
from penstock.tables.merge.row_exchange import FILE
from penstock.tables.subject_columns import redacted, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import TablePlan
    from penstock.plan.subjects import Subjects
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession
    from penstock.tables.subject_columns import SubjectMatch

# The files of a table that hold somebody, written anew without him in one commit: Python's side of Erase.java.


Find = Callable[[DataFrame], Column | None]
"""Of rows: which are of somebody who is looked for; None if none can be."""
Redact = Callable[[DataFrame, Column], DataFrame]
"""Those that meet the condition stay as rows, and say nothing any more."""
_HIT, _CHANGE = "__hit", "_change_type"


@dataclass(frozen=True)
class SubjectRows:
    """What the files of a version hold of somebody."""

    rows: int = 0
    marked: int = 0
    """Rows that are only marked as deleted, and still in their files."""
    files: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.files


@dataclass(frozen=True)
class SearchedFiles:
    """What was found in the files of a version, by their names."""

    seen: frozenset[str] = frozenset()
    living: Mapping[str, int] = field(default_factory=dict)
    """Rows of somebody."""
    physical: Mapping[str, int] = field(default_factory=dict)
    """The same with those that are only marked as deleted, of files that have such."""

    @property
    def held(self) -> SubjectRows:
        marked = sum(count - self.living.get(name, 0) for name, count in self.physical.items())
        return SubjectRows(sum(self.living.values()), marked, tuple(sorted({*self.living, *self.physical})))


class Rewrite:
    """Begun before the table is read, so that files that others take away in between are a conflict. Rows that others
    append meanwhile are not: whoever is to be forgotten is not among them, or another look finds him."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        """The session is used by nobody else: what goes with its commits is of this one."""
        jvm = jvm_of(session)
        self._session, self._jvm, self.uri = session, jvm, uri
        self._inner: Any = jvm.penstock.delta.Erase.begin(java_session(session), uri)

    @property
    def version(self) -> int:
        return int(self._inner.version())

    @property
    def files(self) -> list[str]:
        """Of the version, in full and decoded."""
        return [unquote(name) for name in self._names()]

    def _names(self) -> list[str]:
        return str(self._inner.names()).split()

    def look(self, find: Find, before: SearchedFiles | None = None) -> SearchedFiles:
        """Every file of the version is read: a person can be in any of them. Files do not change: what was seen in one
        `before` is still so."""
        known = before or SearchedFiles()
        now = self._names()
        new = [name for name in now if name not in known.seen]
        living, physical = dict(known.living), dict(known.physical)
        if new:
            names = "\n".join(new)
            living |= _by_file(DataFrame(self._inner.rows(names), self._session), find)
            if self._inner.marked():
                physical |= _by_file(DataFrame(self._inner.withMarked(names), self._session), find)
        there = set(now)
        return SearchedFiles(
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

    def commit(self, held: SubjectRows, find: Find, entry: Entry, redact: Redact | None) -> int:
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
            return int(self._inner.commit(java_frame(come.drop(_HIT)), told))


def checkpoint(session: SparkSession, uri: str) -> int:
    """Of the table's log, at its newest version, which is given."""
    jvm = jvm_of(session)
    return int(jvm.penstock.delta.Erase.checkpoint(java_session(session), uri))


def _by_file(rows: DataFrame, find: Find) -> dict[str, int]:
    condition = find(rows)
    if condition is None:
        return {}
    return {str(row[0]): int(row[1]) for row in rows.where(condition).groupBy(FILE).count().collect()}


# Somebody erased from a table and what lies beside it: each in one commit, with an entry in the ledger that says so.
#
# All under the table's commit lock. The table's commit counts what goes from both, so it comes first; killed in
# between, the next one finds that it is counted already. Nothing to erase, nothing committed.


DELETED, REDACTED, OF_QUARANTINE, QUARANTINE_AT = "deleted", "redacted", "rejected", "quarantine"
"""In an entry's `changed`: rows that went, rows that stayed and say nothing any more, rows that went from quarantine,
and the version that it had then."""
_PATIENCE = 600.0


@dataclass(frozen=True)
class Erased:
    place: str
    """The table, or its quarantine."""
    uri: str
    held: SubjectRows
    version: int | None = None
    """Of the commit; None if there was nothing to do."""
    redacted: bool = False


def finding(table: TablePlan, subjects: Subjects, wanted: SubjectMatch) -> Find:
    def find(rows: DataFrame) -> Column | None:
        return rows_of(rows, subjects, wanted, table.name, partly=True)

    return find


def redaction(table: TablePlan) -> Redact | None:
    """Records as they came keep their place in the topic, so that it stays provable that all of them are there."""
    if not lands(table):
        return None
    return lambda rows, condition: redacted(rows, table.columns, condition)


def sought(table: TablePlan, store: Store, wanted: SubjectMatch) -> dict[MaintainedTable, Subjects]:
    """What is to be searched: the table and what lies beside it, with where each holds names; only where an order is
    about one of these."""
    asked = {order.subject for order in wanted.orders}
    known = {
        place: in_quarantine(table) if place.kind == "quarantine" else table.subjects
        for place in all_places(table, store)
        if place.kind != "files"
    }
    return {place: subjects for place, subjects in known.items() if asked & set(subjects)}


def erase(work: TableSession, wanted: SubjectMatch, note: str) -> list[Erased]:
    """The table is read before its batches have to wait; then only what is new since."""
    before = {one.place: one.rewrite.look(one.find) for one in _begun(work, wanted)}
    acquire_commit(work.lock, work.table.name, patience=_PATIENCE)
    try:
        found = [(one, one.rewrite.look(one.find, before.get(one.place)).held) for one in _begun(work, wanted)]
        if all(held.nothing for _, held in found):
            return [Erased(one.place, one.uri, held, redacted=one.redact is not None) for one, held in found]
        return _commit(work, found, note)
    finally:
        work.lock.release()


@dataclass(frozen=True)
class _Begun:
    place: str
    uri: str
    rewrite: Rewrite
    find: Find
    redact: Redact | None
    log: DeltaLog


def _begun(work: TableSession, wanted: SubjectMatch) -> list[_Begun]:
    made = []
    table = work.table
    for place, subjects in sought(table, work.store, wanted).items():
        log = DeltaLog(work.store, place.uri, place.ledger)
        if log.versions():
            rewrite = Rewrite(work.spark.newSession(), place.uri)
            find, redact = finding(table, subjects, wanted), redaction(table) if place.kind == "table" else None
            made.append(_Begun(place.name, place.uri, rewrite, find, redact, log))
    return made


def _commit(work: TableSession, found: list[tuple[_Begun, SubjectRows]], note: str) -> list[Erased]:
    table, tail = work.table, _tail(work)
    done: list[Erased] = []
    quarantine = quarantine_of(table.name, table.uri).table
    aside = next(((one, held) for one, held in found if one.place == quarantine), None)
    own = next(((one, held) for one, held in found if one.place == table.name), None)
    rejected = aside[1].rows if aside is not None else 0
    told: dict[str, int] = {}
    if aside is not None and rejected and not _counted(work, tail, aside[0]):
        told = {OF_QUARANTINE: rejected, QUARANTINE_AT: aside[0].rewrite.version}
    if own is not None:
        begun, held = own
        version = None
        if not held.nothing:
            changes = {REDACTED if begun.redact is not None else DELETED: held.rows}
            entry = _entry(table, tail, note, {**changes, **told})
            version = begun.rewrite.commit(held, begun.find, entry, begun.redact)
            must_confirm(tail, work.log, entry)
            told = {}
        done.append(Erased(begun.place, begun.uri, held, version, begun.redact is not None))
    if told:
        entry = _entry(table, tail, note, {DELETED: 0, **told})
        append_nothing(work.spark, table.uri, entry)
        must_confirm(tail, work.log, entry)
    for begun, held in found:  # what lies beside the table
        if begun.place == table.name:
            continue
        version = None
        if not held.nothing:
            last = read_head(begun.log)
            assert last is not None
            counts = replace(last.counts, total=last.counts.total - held.rows)
            entry = replace(last.carried, kind="forget", counts=counts, note=note, changed={DELETED: held.rows})
            entry = replace(entry, pending={})
            version = begun.rewrite.commit(held, begun.find, entry, None)
            must_confirm(last, begun.log, entry)
        done.append(Erased(begun.place, begun.uri, held, version))
    return done


def _tail(work: TableSession) -> LedgerHead:
    tail = read_head(work.log)
    assert tail is not None
    refuse_foreign_changes(tail, work.log)
    folder = folder_of(work.table.checkpoints, tail.entry)
    return replace(tail, row_counts=read_row_counts(work.store, folder, tail.entry.batch))


def _counted(work: TableSession, tail: LedgerHead, aside: _Begun) -> bool:
    """Whether one that was cut off has counted the rows of the quarantine that are still there."""
    for commit in work.log.backwards():
        entry = commit.entry
        if entry is None or entry.kind != "forget":
            if entry is not None and entry.generation != tail.entry.generation:
                return False
            continue
        at = entry.changed.get(QUARANTINE_AT)
        if entry.generation != tail.entry.generation or at is None:
            return False
        return not any(one.entry is not None and one.entry.kind == "forget" for one in aside.log.since(at))
    return False


def _entry(table: TablePlan, tail: LedgerHead, note: str, changed: Mapping[str, int]) -> Entry:
    """Rows that went are no longer written, or rejected: they are forgotten. Of a merge its changes are counted, and
    those were made."""
    base = tail.counts
    deleted = changed.get(DELETED, 0) if table.write.merge is None and table.aggregate is None else 0
    rejected = changed.get(OF_QUARANTINE, 0)
    row_counts = base.row_counts
    if row_counts and (deleted or rejected):
        row_counts = add_counts(row_counts, {FORGOTTEN: deleted + rejected, REJECTED: -rejected})
    counts = Counts(base.rows, base.total - deleted, row_counts)
    return replace(tail.carried, kind="forget", counts=counts, note=note, changed=dict(changed))
