"""Entries and Delta logs written by hand, without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Counts, Entry, Kind, Pins, dump
from penstock.storage.stores import LocalStore

TABLE = "bronze.orders"
LEDGER = "5f0c"


def at(*offsets: int, topic: str = "orders") -> str:
    """A position as Spark writes it: at(5, 9) is orders-0 at 5 and orders-1 at 9."""
    return json.dumps({topic: {str(p): o for p, o in enumerate(offsets)}}, separators=(",", ":"))


def entry(batch: int, before: str, after: str, *, generation: int = 1, kind: Kind = "batch", **other: Any) -> Entry:
    return Entry(
        kind=kind,
        table=other.get("table", TABLE),
        ledger=other.get("ledger", LEDGER),
        generation=generation,
        batch=batch,
        before=(before,),
        after=(after,),
        pins=Pins(1_700_000_000_000 + batch, "definition"),
        topics={"orders": "id-1"},
        subscription={"topics": ["orders"]},
        counts=Counts(other.get("rows", 0), other.get("total", 0)),
        seen=other.get("seen"),
    )


def genesis(after: str) -> Entry:
    return entry(0, after, after, kind="genesis")


class HandLog:
    """A table's `_delta_log`, commit by commit."""

    def __init__(self, folder: Path, table: str = TABLE) -> None:
        self.uri = str(folder)
        self._folder = folder / "_delta_log"
        self._folder.mkdir(parents=True)
        self._next = 0
        self.log = DeltaLog(LocalStore(), self.uri, table)

    def path(self, version: int) -> Path:
        return self._folder / f"{version:020d}.json"

    def commit(
        self,
        operation: str,
        *,
        note: Entry | str | None = None,
        adds: int = 0,
        removes: int = 0,
        rows: int = 10,
        change: bool = True,
        parameters: dict[str, Any] | None = None,
        metrics: dict[str, str] | None = None,
        time_ms: int | None = None,
    ) -> int:
        """`rows` is the number of rows in each added file."""
        info: dict[str, Any] = {"timestamp": 1_700_000_000_000, "operation": operation}
        info["inCommitTimestamp"] = 1_700_000_000_000 + self._next if time_ms is None else time_ms
        if note is not None:
            info["userMetadata"] = dump(note) if isinstance(note, Entry) else note
        if parameters is not None:
            info["operationParameters"] = parameters
        if metrics is not None:
            info["operationMetrics"] = metrics
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        if operation.startswith("CREATE"):
            actions.append({"metaData": {"id": "table-id"}})
        stats = json.dumps({"numRecords": rows})
        actions += [{"add": {"path": f"a{n}", "size": 100, "dataChange": change, "stats": stats}} for n in range(adds)]
        actions += [{"remove": {"path": f"r{n}", "dataChange": change}} for n in range(removes)]
        self.path(self._next).write_text("\n".join(json.dumps(action, ensure_ascii=False) for action in actions))
        self._next += 1
        return self._next - 1

    def begin(self, after: str) -> Entry:
        first = genesis(after)
        self.commit("CREATE TABLE AS SELECT", note=first)
        return first

    def batch(self, written: Entry) -> int:
        return self.commit("WRITE", note=written, adds=1)
