"""`history`: the commits of a table, newest first; and the columns that its records or files brought."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import BESIDE
from penstock.ledger.position import ranges
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.position import Range
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# The columns that a table's files or records brought, as they are kept in the lake: read without Spark.


@dataclass(frozen=True)
class InferredSchema:
    document: Mapping[str, Any]

    @property
    def said(self) -> list[str]:
        """For a person: the columns, where they come from, and what is odd about them."""
        lines = [str(self.document["columns"])]
        if made := self.document.get("inferred"):
            records = "" if made["records"] is None else f", {made['records']:,} records"
            lines.append(f"from {made['files']:,} files, the first {made['first']}{records}, {made['bytes']:,} bytes")
            lines += [f"{name}: JSON text of {kinds}" for name, kinds in made["mixed"].items()]
            lines += made["remarks"]
        if left_out := self.document.get("left_out"):
            lines.append(f"fields that are no columns: {', '.join(left_out)}")
        return lines


def inferred_schemas(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, InferredSchema]:
    """By table; without those that have none, or whose lake cannot be read now."""
    try:
        store = open_store(plan.lake)
        texts = {table.name: store.read(table.grown) for table in tables}
    except (PenstockError, OSError):
        return {}
    return {name: InferredSchema(json.loads(text)) for name, text in texts.items() if text}


# `history`: the commits of a table, newest first, with what their ledger entries say.


@dataclass(frozen=True)
class Line:
    version: int
    timestamp_ms: int
    operation: str
    origin: str
    """ledger, maintenance, foreign append or foreign change."""
    kind: str | None
    """Of the ledger entry: genesis, batch, open or carry. Of Penstock's upkeep: optimize, purge, vacuum, remember."""
    generation: int | None
    batch: int | None
    rows: int
    bytes: int
    files_added: int
    files_removed: int
    read: tuple[Range, ...]
    """What a batch read; how an opened generation moved the position."""
    position: tuple[str, ...]
    """After the commit, as Spark writes it."""
    note: str | None
    changed: Mapping[str, int] = field(default_factory=dict)
    """Of a merge: what its changes did, and how many of the table's files it read."""


def history(table: TablePlan, store: Store, limit: int | None = None) -> list[Line]:
    """[] if the table was never made. Goes back as far as the log does."""
    log = RecentLog(store, table.uri, table.name)
    return [_line(commit) for commit in islice(log.backwards(), limit)]


def _line(commit: Commit) -> Line:
    entry = commit.entry
    pairs = zip(entry.before, entry.after, strict=False) if entry is not None and entry.kind not in BESIDE else ()
    note = entry.note if entry is not None else None
    if commit.restored_to is not None:
        note = f"back to version {commit.restored_to}"
    if commit.upkeep is not None:
        note = commit.upkeep.said
    return Line(
        version=commit.version,
        timestamp_ms=commit.timestamp_ms,
        operation=commit.operation,
        origin=commit.origin.value,
        kind=entry.kind if entry else commit.upkeep.work if commit.upkeep else None,
        generation=entry.generation if entry else None,
        batch=entry.batch if entry else None,
        rows=commit.rows,
        bytes=commit.bytes,
        files_added=commit.files_added,
        files_removed=commit.files_removed,
        read=tuple(one for before, after in pairs for one in ranges(before, after)),
        position=entry.after if entry else (),
        note=note,
        changed=entry.changed if entry else {},
    )


def document(line: Line) -> dict[str, Any]:
    return asdict(line)
