"""Rewrites every file that holds a data subject's rows: one commit per table, with its ledger entry. It is the Python
side of Erase.java."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.ledger.checkpoint import checkpoint_folder
from penstock.ledger.commit import append_entry, commit_metadata, must_confirm
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Counts
from penstock.ledger.head import read_head, refuse_foreign_changes
from penstock.ledger.row_counts import FORGOTTEN, REJECTED, add_counts, read_row_counts
from penstock.maintenance.tables import all_maintained_tables
from penstock.maintenance.vacuum import within
from penstock.plan.quarantine import is_landing_table, quarantine_of, subjects_in_quarantine
from penstock.spark.jvm import java_frame, java_session, jvm_of
from penstock.storage.locks import acquire_commit
from penstock.tables.merge.row_exchange import FILE
from penstock.tables.subject_columns import redact, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import TablePlan
    from penstock.plan.subjects import Subjects
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession
    from penstock.tables.subject_columns import SubjectOrders

Find = Callable[[DataFrame], Column | None]
"""Takes rows and returns the condition for those of a wanted subject; None if none can be."""
Redact = Callable[[DataFrame, Column], DataFrame]
"""Rows that meet the condition stay, with their contents redacted."""
_MATCHES, _CHANGE_TYPE = "__hit", "_change_type"


@dataclass(frozen=True)
class SubjectRows:
    """The subject's rows in the files of a version."""

    rows: int = 0
    marked: int = 0
    """Rows that are only marked as deleted and are still in their files."""
    files: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        return not self.files


@dataclass(frozen=True)
class SearchedFiles:
    """What a search found in the files of a version, by file name."""

    names: frozenset[str] = frozenset()
    living: Mapping[str, int] = field(default_factory=dict)
    """Rows of the subject."""
    physical: Mapping[str, int] = field(default_factory=dict)
    """The same including rows that are only marked as deleted, for files that have such rows."""

    @property
    def subject_rows(self) -> SubjectRows:
        marked = sum(count - self.living.get(name, 0) for name, count in self.physical.items())
        return SubjectRows(sum(self.living.values()), marked, tuple(sorted({*self.living, *self.physical})))


class Rewrite:
    """Starts before the table is read, so that files that others remove in between are a conflict. Rows that others
    append meanwhile are not: the subject is not among them, or the next search finds it."""

    def __init__(self, session: SparkSession, uri: str) -> None:
        """The session must have no other user: the settings that its commits carry belong to this rewrite."""
        jvm = jvm_of(session)
        self._session, self._jvm, self.uri = session, jvm, uri
        self._erase: Any = jvm.penstock.delta.Erase.begin(java_session(session), uri)

    @property
    def version(self) -> int:
        return int(self._erase.version())

    @property
    def files(self) -> list[str]:
        """Full, decoded paths of the version's files."""
        return [unquote(name) for name in self._names()]

    def _names(self) -> list[str]:
        return str(self._erase.names()).split()

    def find_subject(self, find: Find, previous: SearchedFiles | None = None) -> SearchedFiles:
        """Reads every file of the version: a subject can be in any of them. Files do not change, so what `previous`
        found in a file still holds."""
        known = previous or SearchedFiles()
        current = self._names()
        new = [name for name in current if name not in known.names]
        living, physical = dict(known.living), dict(known.physical)
        if new:
            names = "\n".join(new)
            living |= _count_by_file(DataFrame(self._erase.rows(names), self._session), find)
            if self._erase.marked():
                physical |= _count_by_file(DataFrame(self._erase.withMarked(names), self._session), find)
        present = set(current)
        return SearchedFiles(
            frozenset(current),
            {name: count for name, count in living.items() if name in present},
            {name: count for name, count in physical.items() if name in present},
        )

    def count_unlisted(self, find: Find, names: Sequence[str]) -> dict[str, int]:
        """Counts the subject's rows in files of the table's folder that are in no version, by relative path."""
        if not names:
            return {}
        counts = _count_by_file(DataFrame(self._erase.others("\n".join(names)), self._session), find)
        return {within(unquote(name), self.uri): count for name, count in counts.items()}

    def commit(self, subject_rows: SubjectRows, find: Find, entry: Entry, redact: Redact | None) -> int:
        """Returns the version of the commit."""
        self._erase.choose("\n".join(subject_rows.files))
        rows = DataFrame(self._erase.chosen(), self._session).drop(FILE)
        condition = find(rows)
        assert condition is not None
        rows = rows.withColumn(_MATCHES, condition)
        remaining = redact(rows, F.col(_MATCHES)) if redact is not None else rows.where(f"NOT {_MATCHES}")
        if self._erase.feeds():  # readers of the change feed lose the row, also where it stays in redacted form
            deleted = rows.where(_MATCHES).withColumn(_CHANGE_TYPE, F.lit("delete"))
            remaining = remaining.withColumn(_CHANGE_TYPE, F.lit(None).cast("string")).unionByName(deleted)
        metrics = self._jvm.java.util.HashMap()
        for name, number in {"numDeletedRows": subject_rows.rows, "numRemovedFiles": len(subject_rows.files)}.items():
            metrics.put(name, number)
        with commit_metadata(self._session, entry, idempotent=False):
            return int(self._erase.commit(java_frame(remaining.drop(_MATCHES)), metrics))


def checkpoint(session: SparkSession, uri: str) -> int:
    """Writes a checkpoint of the table's log at its newest version, and returns that version."""
    jvm = jvm_of(session)
    return int(jvm.penstock.delta.Erase.checkpoint(java_session(session), uri))


def _count_by_file(rows: DataFrame, find: Find) -> dict[str, int]:
    condition = find(rows)
    if condition is None:
        return {}
    return {str(row[0]): int(row[1]) for row in rows.where(condition).groupBy(FILE).count().collect()}


# A subject is erased from a table and from the places beside it (quarantine, tombstones): one commit each, with a
# ledger entry that says so.
#
# All of it happens under the table's commit lock. The table's commit counts its own rows and the quarantine's, so it
# comes first; after a kill in between, the next run finds them already counted. Nothing to erase means no commit.


DELETED, REDACTED, OF_QUARANTINE, QUARANTINE_AT = "deleted", "redacted", "rejected", "quarantine"
"""Keys in an entry's `changed`: rows deleted, rows redacted, rows deleted from the quarantine, and the version that the
quarantine had before."""
PATIENCE = 600.0
"""How many seconds to wait for a batch, a replay or maintenance of a table."""


@contextmanager
def paused_table(work: TableSession) -> Iterator[None]:
    """Holds the table's commit lock: its batches wait."""
    acquire_commit(work.lock, work.table.name, patience=PATIENCE)
    try:
        yield
    finally:
        work.lock.release()


@dataclass(frozen=True)
class Erased:
    place: str
    """The table, or its quarantine."""
    subject_rows: SubjectRows
    version: int | None = None
    """Version of the commit; None if there was nothing to do."""
    redacted: bool = False


def subject_condition(table: TablePlan, subjects: Subjects, matcher: SubjectOrders) -> Find:
    def find(rows: DataFrame) -> Column | None:
        return rows_of(rows, subjects, matcher, table.name, partly=True)

    return find


def redaction(table: TablePlan) -> Redact | None:
    """How a landing table redacts; None for other tables, which delete. A landed record keeps its row and its place in
    the topic, so that it stays provable that all records are there."""
    if not is_landing_table(table):
        return None
    return lambda rows, condition: redact(rows, table.columns, condition)


def places_to_search(table: TablePlan, store: Store, matcher: SubjectOrders) -> dict[MaintainedTable, Subjects]:
    """The places to search: the table and those beside it, with the columns in which each holds names; only those that
    hold a subject of one of the orders."""
    ordered = {order.subject for order in matcher.orders}
    subjects_by_place = {
        place: subjects_in_quarantine(table) if place.kind == "quarantine" else table.subjects
        for place in all_maintained_tables(table, store)
        if place.kind != "files"
    }
    return {place: subjects for place, subjects in subjects_by_place.items() if ordered & set(subjects)}


def created_places(work: TableSession, matcher: SubjectOrders) -> Iterator[tuple[MaintainedTable, Find]]:
    """Those of the places to search that exist, with the condition for the subject's rows."""
    for place, subjects in places_to_search(work.table, work.store, matcher).items():
        if DeltaLog(work.store, place.uri, place.name).versions():
            yield place, subject_condition(work.table, subjects, matcher)


def erase(work: TableSession, matcher: SubjectOrders, note: str) -> list[Erased]:
    """Reads the table before its batches have to wait; under the lock it reads only files that are new since."""
    earlier = {target.place: target.rewrite.find_subject(target.find) for target in _targets(work, matcher)}
    with paused_table(work):
        hits = [
            (target, target.rewrite.find_subject(target.find, earlier.get(target.place)).subject_rows)
            for target in _targets(work, matcher)
        ]
        if all(subject_rows.nothing for _, subject_rows in hits):
            return [
                Erased(target.place, subject_rows, redacted=target.redact is not None) for target, subject_rows in hits
            ]
        return _commit_all(work, hits, note)


@dataclass(frozen=True)
class _Target:
    place: str
    rewrite: Rewrite
    find: Find
    redact: Redact | None
    log: DeltaLog


def _targets(work: TableSession, matcher: SubjectOrders) -> list[_Target]:
    targets = []
    for place, find in created_places(work, matcher):
        rewrite, log = Rewrite(work.spark.newSession(), place.uri), DeltaLog(work.store, place.uri, place.ledger)
        redact = redaction(work.table) if place.kind == "table" else None
        targets.append(_Target(place.name, rewrite, find, redact, log))
    return targets


def _commit_all(work: TableSession, hits: list[tuple[_Target, SubjectRows]], note: str) -> list[Erased]:
    table, head = work.table, _ledger_head(work)
    erased: list[Erased] = []
    by_place = {target.place: (target, subject_rows) for target, subject_rows in hits}
    quarantine_changes: dict[str, int] = {}
    if (quarantine_hit := by_place.get(quarantine_of(table.name, table.uri).table)) is not None:
        target, subject_rows = quarantine_hit
        if subject_rows.rows and not _already_counted(work, head, target):
            quarantine_changes = {OF_QUARANTINE: subject_rows.rows, QUARANTINE_AT: target.rewrite.version}
    if (table_hit := by_place.get(table.name)) is not None:
        target, subject_rows = table_hit
        version = None
        if not subject_rows.nothing:
            changes = {REDACTED if target.redact is not None else DELETED: subject_rows.rows}
            entry = _forget_entry(table, head, note, {**changes, **quarantine_changes})
            version = target.rewrite.commit(subject_rows, target.find, entry, target.redact)
            must_confirm(head, work.log, entry)
            quarantine_changes = {}
        erased.append(Erased(target.place, subject_rows, version, target.redact is not None))
    if quarantine_changes:
        entry = _forget_entry(table, head, note, {DELETED: 0, **quarantine_changes})
        append_entry(work.spark, table.uri, entry)
        must_confirm(head, work.log, entry)
    for target, subject_rows in hits:  # places beside the table
        if target.place == table.name:
            continue
        version = None
        if not subject_rows.nothing:
            target_head = read_head(target.log)
            assert target_head is not None
            counts = replace(target_head.counts, total=target_head.counts.total - subject_rows.rows)
            changes = {DELETED: subject_rows.rows}
            entry = replace(
                target_head.carry_entry, kind="forget", counts=counts, note=note, changed=changes, pending={}
            )
            version = target.rewrite.commit(subject_rows, target.find, entry, None)
            must_confirm(target_head, target.log, entry)
        erased.append(Erased(target.place, subject_rows, version))
    return erased


def _ledger_head(work: TableSession) -> LedgerHead:
    head = read_head(work.log)
    assert head is not None
    refuse_foreign_changes(head, work.log)
    folder = checkpoint_folder(work.table.checkpoints, head.entry)
    return replace(head, row_counts=read_row_counts(work.store, folder, head.entry.batch))


def _already_counted(work: TableSession, head: LedgerHead, target: _Target) -> bool:
    """Whether an earlier erasure that was cut off has already counted the rows still in the quarantine."""
    for commit in work.log.backwards():
        entry = commit.entry
        if entry is None or entry.kind != "forget":
            if entry is not None and entry.generation != head.entry.generation:
                return False
            continue
        erased_at = entry.changed.get(QUARANTINE_AT)
        if entry.generation != head.entry.generation or erased_at is None:
            return False
        return not any(
            later.entry is not None and later.entry.kind == "forget" for later in target.log.since(erased_at)
        )
    return False


def _forget_entry(table: TablePlan, head: LedgerHead, note: str, changed: Mapping[str, int]) -> Entry:
    """Deleted rows no longer count as written or rejected but as forgotten. Merge tables count changes, not rows, and
    those changes were made, so their counts stay."""
    base = head.counts
    deleted = changed.get(DELETED, 0) if table.write.merge is None and table.aggregate is None else 0
    rejected = changed.get(OF_QUARANTINE, 0)
    row_counts = base.row_counts
    if row_counts and (deleted or rejected):
        row_counts = add_counts(row_counts, {FORGOTTEN: deleted + rejected, REJECTED: -rejected})
    counts = Counts(base.rows, base.total - deleted, row_counts)
    return replace(head.carry_entry, kind="forget", counts=counts, note=note, changed=dict(changed))
