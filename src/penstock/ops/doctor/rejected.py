"""What a table could not take: rows in quarantine by reason, and fields that its schema does not name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.engine.store import Store
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import count, listed, span

MANY, MOST = 0.01, 0.5
"""Shares of the rows that were read."""
_COLUMN = "_rescued"
_LONGEST = 40
_OF_A_FIELD = ("wrong_type", "out_of_range", "missing_field", "decode_failed")


@dataclass(frozen=True)
class Rejected:
    """Over the last day, or since the table was made."""

    seconds: float
    rows: int
    read: int | None = None
    """None: not counted."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """`wrong_type amount` -> rows: the reason, and the field or the check where one is named."""
    before: int | None = None
    """Rows of the time before that, as long, if the log goes back so far."""


@dataclass(frozen=True)
class Rescued:
    """Over the last batches, from the statistics of their files."""

    rows: int
    """With fields that the schema does not name."""
    of: int
    batches: int


def quarantine(table: str, rejected: Rejected) -> Check:
    about = About("quarantine.share", table)
    lately = f"in the last {span(rejected.seconds)}"
    if not rejected.rows:
        return about.ok(f"no row was rejected {lately}")
    reasons = sorted(rejected.reasons.items(), key=lambda pair: -pair[1])
    named = f": {listed((f'{number:,} {reason}' for reason, number in reasons), 4)}" if reasons else ""
    share = rejected.rows / rejected.read if rejected.read else None
    part = f" ({share:.1%} of {rejected.read:,} read)" if share is not None else ""
    was = f"; {rejected.before:,} in the time before" if rejected.before is not None else ""
    said = f"{count(rejected.rows, 'row')} to quarantine {lately}{part}{named}{was}"
    fix = f"`penstock dlq show {table}` shows them; correct the schema or the expectation, then `penstock dlq redrive "
    fix += f"{table}` lands what passes; or correct whoever writes the records"
    if share is not None and share >= MOST:
        return about.red(said, fix)
    if share is None or share >= MANY:
        return about.warn(said, fix)
    return about.note(said, fix)


def rescued(table: str, found: Rescued) -> Check:
    about = About("schema.rescued", table)
    said = f"{found.rows:,} of {found.of:,} rows of the last {count(found.batches, 'batch', 'batches')}"
    if not found.rows:
        return about.ok(f"{said} have fields that the schema does not name")
    fix = f"the fields are in the column {_COLUMN} of {table}: name those that matter in its schema"
    if found.rows >= MOST * found.of:
        return about.warn(f"{said} have fields that the schema does not name", fix)
    return about.note(f"{said} have fields that the schema does not name", fix)


def reason_said(reason: str | None, detail: str | None) -> str:
    """The reason and the field it is about. What the record held stays out: it may be anybody's."""
    name = (detail or "").partition(":")[0].strip() if reason in _OF_A_FIELD else ""
    if reason == "expectation":
        name = (detail or "").strip()
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)[:_LONGEST]
    return f"{reason} {shown}".strip() if reason else "without a reason"


def read_rescued(store: Store, uri: str, versions: list[int]) -> Rescued | None:
    """None if the files have no statistics of that column."""
    rows = of = batches = 0
    for version in versions:
        counted = _counted(store.read(f"{uri}/_delta_log/{version:020d}.json") or "")
        if counted is None:
            return None
        rows, of, batches = rows + counted[0], of + counted[1], batches + 1
    return Rescued(rows, of, batches)


def _counted(commit: str) -> tuple[int, int] | None:
    rows = of = 0
    for line in commit.split("\n"):
        add = json.loads(line).get("add") if line else None
        if add is None:
            continue
        stats = json.loads(add.get("stats") or "{}")
        without = (stats.get("nullCount") or {}).get(_COLUMN)
        if without is None or "numRecords" not in stats:
            return None
        rows, of = rows + stats["numRecords"] - without, of + stats["numRecords"]
    return rows, of
