"""`history`: the commits of a table, newest first; and the columns inferred from its records or files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import OUTSIDE_BATCHES
from penstock.ledger.position import ranges
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.position import Range
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# The columns inferred from a table's files or records, as kept in the lake: read without Spark.


@dataclass(frozen=True)
class InferredSchema:
    document: Mapping[str, Any]

    @property
    def describe(self) -> list[str]:
        """Lines for display: the columns, where they come from, and what is unusual about them."""
        lines = [str(self.document["columns"])]
        if stats := self.document.get("inferred"):
            records = "" if stats["records"] is None else f", {stats['records']:,} records"
            lines.append(
                f"from {stats['files']:,} files, the first {stats['first']}{records}, {stats['bytes']:,} bytes"
            )
            lines += [f"{name}: JSON text of {kinds}" for name, kinds in stats["mixed"].items()]
            lines += stats["remarks"]
        if left_out := self.document.get("left_out"):
            lines.append(f"fields that are no columns: {', '.join(left_out)}")
        return lines


def inferred_schemas(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, InferredSchema]:
    """By table, without tables that have none; empty if the lake cannot be read now."""
    try:
        store = open_store(plan.lake)
        texts = {table.name: store.read(table.added_columns_path) for table in tables}
    except (PenstockError, OSError):
        return {}
    return {name: InferredSchema(json.loads(text)) for name, text in texts.items() if text}


@dataclass(frozen=True)
class HistoryLine:
    version: int
    timestamp_ms: int
    operation: str
    origin: str
    """ledger, maintenance, foreign append or foreign change."""
    kind: str | None
    """For a ledger entry: genesis, batch, open or carry. For maintenance: optimize, purge, vacuum, remember."""
    generation: int | None
    batch: int | None
    rows: int
    bytes: int
    files_added: int
    files_removed: int
    read: tuple[Range, ...]
    """What a batch read, or how an opened generation moved the position."""
    position: tuple[str, ...]
    """After the commit, as Spark writes it."""
    note: str | None
    changed: Mapping[str, int] = field(default_factory=dict)
    """For a merge: counts of its changes, and of the table's files that it read."""


def history(table: TablePlan, store: Store, limit: int | None = None) -> list[HistoryLine]:
    """[] if the table was never created. Goes back as far as the log does."""
    log = RecentLog(store, table.uri, table.name)
    return [_line(commit) for commit in islice(log.backwards(), limit)]


def _line(commit: Commit) -> HistoryLine:
    entry = commit.entry
    pairs = (
        zip(entry.before, entry.after, strict=False) if entry is not None and entry.kind not in OUTSIDE_BATCHES else ()
    )
    note = entry.note if entry is not None else None
    if commit.restored_to is not None:
        note = f"back to version {commit.restored_to}"
    if commit.maintenance is not None:
        note = commit.maintenance.description
    return HistoryLine(
        version=commit.version,
        timestamp_ms=commit.timestamp_ms,
        operation=commit.operation,
        origin=commit.origin.value,
        kind=entry.kind if entry else commit.maintenance.work if commit.maintenance else None,
        generation=entry.generation if entry else None,
        batch=entry.batch if entry else None,
        rows=commit.rows,
        bytes=commit.bytes,
        files_added=commit.files_added,
        files_removed=commit.files_removed,
        read=tuple(offset_range for before, after in pairs for offset_range in ranges(before, after)),
        position=entry.after if entry else (),
        note=note,
        changed=entry.changed if entry else {},
    )


def document(line: HistoryLine) -> dict[str, Any]:
    return asdict(line)
