"""Somebody erased from a table and what lies beside it: each in one commit, with an entry in the ledger that says so.

All under the table's commit lock. The table's commit counts what goes from both, so it comes first; killed in between,
the next one finds that it is counted already. Nothing to erase, nothing committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame

from penstock.engine.forget.matching import Wanted, redacted, rows_of
from penstock.engine.forget.rewrite import Find, Held, Redact, Rewrite
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.commit import append_nothing, must_confirm
from penstock.engine.protocol.entry import Counts, Entry
from penstock.engine.protocol.fates import FORGOTTEN, REJECTED, added, read_fates
from penstock.engine.protocol.ledger import Tail, read_tail, refuse_foreign_changes
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.fill import Work
from penstock.engine.store import Store
from penstock.engine.upkeep.places import Place, all_places
from penstock.plan.holding import in_quarantine, lands
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of
from penstock.plan.subjects import Subjects

DELETED, REDACTED, OF_QUARANTINE, QUARANTINE_AT = "deleted", "redacted", "rejected", "quarantine"
"""In an entry's `changed`: rows that went, rows that stayed and say nothing any more, rows that went from quarantine,
and the version that it had then."""
_PATIENCE = 600.0


@dataclass(frozen=True)
class Erased:
    place: str
    """The table, or its quarantine."""
    uri: str
    held: Held
    version: int | None = None
    """Of the commit; None if there was nothing to do."""
    redacted: bool = False


def finding(table: TablePlan, subjects: Subjects, wanted: Wanted) -> Find:
    def find(rows: DataFrame) -> Column | None:
        return rows_of(rows, subjects, wanted, table.name, partly=True)

    return find


def redaction(table: TablePlan) -> Redact | None:
    """Records as they came keep their place in the topic, so that it stays provable that all of them are there."""
    if not lands(table):
        return None
    return lambda rows, condition: redacted(rows, table.columns, condition)


def sought(table: TablePlan, store: Store, wanted: Wanted) -> dict[Place, Subjects]:
    """What is to be searched: the table and what lies beside it, with where each holds names; only where an order is
    about one of these."""
    asked = {order.subject for order in wanted.orders}
    known = {
        place: in_quarantine(table) if place.kind == "quarantine" else table.subjects
        for place in all_places(table, store)
        if place.kind != "files"
    }
    return {place: subjects for place, subjects in known.items() if asked & set(subjects)}


def look(work: Work, wanted: Wanted) -> list[Erased]:
    """What would be erased; nothing is changed."""
    return [
        Erased(one.place, one.uri, one.rewrite.look(one.find).held, redacted=one.redact is not None)
        for one in _begun(work, wanted)
    ]


def erase(work: Work, wanted: Wanted, note: str) -> list[Erased]:
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


def _begun(work: Work, wanted: Wanted) -> list[_Begun]:
    made = []
    table = work.table
    for place, subjects in sought(table, work.store, wanted).items():
        log = DeltaLog(work.store, place.uri, place.ledger)
        if log.versions():
            rewrite = Rewrite(work.spark.newSession(), place.uri)
            find, redact = finding(table, subjects, wanted), redaction(table) if place.kind == "table" else None
            made.append(_Begun(place.name, place.uri, rewrite, find, redact, log))
    return made


def _commit(work: Work, found: list[tuple[_Begun, Held]], note: str) -> list[Erased]:
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
            last = read_tail(begun.log)
            assert last is not None
            counts = replace(last.counts, total=last.counts.total - held.rows)
            entry = replace(last.carried, kind="forget", counts=counts, note=note, changed={DELETED: held.rows})
            entry = replace(entry, pending={})
            version = begun.rewrite.commit(held, begun.find, entry, None)
            must_confirm(last, begun.log, entry)
        done.append(Erased(begun.place, begun.uri, held, version))
    return done


def _tail(work: Work) -> Tail:
    tail = read_tail(work.log)
    assert tail is not None
    refuse_foreign_changes(tail, work.log)
    folder = folder_of(work.table.checkpoints, tail.entry)
    return replace(tail, fates=read_fates(work.store, folder, tail.entry.batch))


def _counted(work: Work, tail: Tail, aside: _Begun) -> bool:
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


def _entry(table: TablePlan, tail: Tail, note: str, changed: Mapping[str, int]) -> Entry:
    """Rows that went are no longer written, or rejected: they are forgotten. Of a merge its changes are counted, and
    those were made."""
    base = tail.counts
    deleted = changed.get(DELETED, 0) if table.write.merge is None and table.aggregate is None else 0
    rejected = changed.get(OF_QUARANTINE, 0)
    fates = base.fates
    if fates and (deleted or rejected):
        fates = added(fates, {FORGOTTEN: deleted + rejected, REJECTED: -rejected})
    counts = Counts(base.rows, base.total - deleted, fates)
    return replace(tail.carried, kind="forget", counts=counts, note=note, changed=dict(changed))
