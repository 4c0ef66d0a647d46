"""What lies in a quarantine, counted by reason and by what the reason is about: a field, an expectation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.engine.arrow_times import Time, micros_of
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.fates import BATCHES, READ, read_fates
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.store import Store
from penstock.errors import PenstockError, UsageError
from penstock.ops.dlq.filter import Filter
from penstock.ops.dlq.quarantine import DETAIL, REASON, ROWS, WHEN, Quarantine, open_quarantine
from penstock.ops.dlq.rows import Row, iso, read_rows
from penstock.ops.dlq.rows import document as row_document
from penstock.ops.quoting import literal
from penstock.ops.recent import RecentLog
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of

MOST_KINDS = 100
"""So many are told apart; of a quarantine with more, the rest is counted together."""
_QUOTES = ("malformed_csv", "not_an_object", "refused")
"""Reasons whose detail is a piece of the record, or somebody else's words: each would be a kind of its own."""
_ERROR = r"^((?:from|merge)\.\w+: )?(\[[\w.]+\]|[\w.]+)[\s\S]*$"
"""What an expression raised: its name, and where in the definition, if that stands before it."""
_RAISED = r": \[[\w.]+\][\s\S]*$"
_KIND = (
    rf"CASE WHEN {REASON} = 'expectation' THEN regexp_replace({DETAIL}, '{_RAISED}', '') "
    rf"WHEN {REASON} = 'transform_failed' THEN regexp_replace({DETAIL}, '{_ERROR}', '\1\2') "
    f"WHEN {REASON} IN ({', '.join(map(literal, _QUOTES))}) THEN '' "
    rf"ELSE regexp_replace(left(split_part(split_part({DETAIL}, ':', 1), ';', 1), 80), '([\[ ])[0-9]+', '\1…', 'g') END"
)
"""The detail without what is of one record alone: `amount`, and not that it was "twelve"."""
_BY_REASON = (
    f"SELECT coalesce({REASON}, '') AS reason, count(*) AS rows, min({WHEN}) AS first, max({WHEN}) AS last "
    f"FROM {ROWS} GROUP BY 1 ORDER BY 2 DESC, 1"
)
_NEWEST = "max(generation * 4294967296 + batch)"
"""Generation and batch as one number, as Delta's transactions count them."""


@dataclass(frozen=True)
class Kind:
    reason: str
    about: str
    """`amount`, `has_id`; empty where the reason says it all."""
    rows: int
    first: Time | None
    last: Time | None
    sample: Row | None = None
    """One of its newest rows, its payload shortened."""


@dataclass(frozen=True)
class Counted:
    table: str
    quarantine: str
    made: bool = True
    """False: there is none yet, so no row was ever rejected."""
    rows: int = 0
    read: int | None = None
    """Rows that the table has read, as its ledger counts them; None if it does not."""
    first: Time | None = None
    last: Time | None = None
    reasons: Mapping[str, int] = field(default_factory=dict)
    kinds: tuple[Kind, ...] = ()
    ahead: int = 0
    """Rows of batches that are not in the table: a replay is being made, or the table was put back."""
    problem: str | None = None
    hint: str | None = None

    @property
    def share(self) -> float | None:
        return self.rows / self.read if self.read and self.rows <= self.read else None

    @property
    def untold(self) -> int:
        """Rows of kinds that are too many to tell apart."""
        return self.rows - sum(kind.rows for kind in self.kinds)


def count_all(tables: Sequence[TablePlan], store: Store) -> list[Counted]:
    """One per table, in their order. What cannot be read is said in its place; raised is only UsageError."""
    found = []
    for table in tables:
        try:
            found.append(count_kinds(table, store))
        except UsageError:
            raise
        except PenstockError as error:
            name = quarantine_of(table.name, table.uri).table
            found.append(Counted(table.name, name, problem=error.message, hint=error.hint))
    return found


def count_kinds(table: TablePlan, store: Store) -> Counted:
    """Of the version that is the newest now."""
    quarantine = open_quarantine(table, store)
    name = quarantine_of(table.name, table.uri).table
    last, read = _ledger(table, store)
    if quarantine is None:
        return Counted(table.name, name, made=False, read=read)
    by_reason = list(quarantine.ask(_BY_REASON))
    times = [at for one in by_reason for at in (one["first"], one["last"]) if at is not None]
    return Counted(
        table.name,
        name,
        rows=sum(int(one["rows"]) for one in by_reason),
        read=read,
        first=min(times, key=micros_of, default=None),
        last=max(times, key=micros_of, default=None),
        reasons={one["reason"]: int(one["rows"]) for one in by_reason},
        kinds=tuple(_kinds(quarantine)),
        ahead=_ahead(quarantine, last) if last is not None else 0,
    )


def _kinds(quarantine: Quarantine) -> list[Kind]:
    sql = (
        f"SELECT coalesce({REASON}, '') AS reason, coalesce({_KIND}, '') AS about, count(*) AS rows, "
        f"min({WHEN}) AS first, max({WHEN}) AS last, {_NEWEST} AS newest "
        f"FROM {ROWS} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT {MOST_KINDS}"
    )
    return [
        Kind(one["reason"], one["about"], int(one["rows"]), one["first"], one["last"], _sample(quarantine, one))
        for one in quarantine.ask(sql)
    ]


def _sample(quarantine: Quarantine, kind: Mapping[str, Any]) -> Row | None:
    """Of the newest batch that has such a row: the files of others are not opened."""
    if kind["newest"] is None:
        return None
    batch = Filter(generation=kind["newest"] >> 32, batch=kind["newest"] & 0xFFFFFFFF)
    same = f"coalesce({REASON}, '') = {literal(kind['reason'])} AND coalesce({_KIND}, '') = {literal(kind['about'])}"
    return next(read_rows(quarantine, batch, 1, whole=False, also=same), None)


def _ledger(table: TablePlan, store: Store) -> tuple[Entry | None, int | None]:
    """The table's last entry, and how many rows it has read; None where nobody can tell, or not of all batches."""
    try:
        tail = read_tail(RecentLog(store, table.uri, table.name))
    except (PenstockError, ValueError, KeyError, OSError):
        return None, None
    if tail is None:
        return None, None
    fates = read_fates(store, folder_of(table.checkpoints, tail.entry), tail.entry.batch)
    counted, entry = replace(tail, fates=fates).counts.fates, tail.entry
    lost = entry.kind == "batch" and not fates  # the checkpoint was made anew: the batch is counted when it runs again
    lost |= entry.generation == 1 and counted.get(BATCHES, 0) < entry.batch
    return entry, None if lost else counted.get(READ)


def _ahead(quarantine: Quarantine, last: Entry) -> int:
    later = f"generation > {last.generation} OR (generation = {last.generation} AND batch > {last.batch})"
    return sum(int(one["rows"]) for one in quarantine.ask(f"SELECT count(*) AS rows FROM {ROWS} WHERE {later}"))


def document(found: Counted) -> dict[str, Any]:
    return {
        "table": found.table,
        "quarantine": found.quarantine,
        "rows": found.rows,
        "read": found.read,
        "share": None if found.share is None else round(found.share, 6),
        "first": iso(found.first),
        "last": iso(found.last),
        "reasons": dict(found.reasons),
        "kinds": [
            {
                "reason": kind.reason,
                "about": kind.about,
                "rows": kind.rows,
                "first": iso(kind.first),
                "last": iso(kind.last),
                "sample": row_document(kind.sample) if kind.sample is not None else None,
            }
            for kind in found.kinds
        ],
        "rows_of_other_kinds": found.untold,
        "ahead": found.ahead,
        "problem": found.problem,
        "hint": found.hint,
    }
