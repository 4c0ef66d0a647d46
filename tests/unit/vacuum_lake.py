"""A Delta table whose files and clocks are made up, the readers of it, and what Delta's VACUUM would delete."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.ledger.checkpoint import heal
from penstock.ledger.entry import Entry, Pins, dump
from penstock.ledger.position import Version
from penstock.maintenance.retention import HOUR_MS, Horizon, horizon, hours, needs
from penstock.maintenance.tables import DAY_MS, maintained_tables
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import at
from tests.unit.project_file import HEAD, load

TABLE, ID = "bronze.orders", "table-id"
START_MS = 1_700_000_000_000
PROJECT = (
    HEAD
    + """
tables:
  bronze.orders: {from: {kafka: orders}, write: {change_feed: true}}
  silver.orders: {from: {table: bronze.orders}}
  silver.audit: {from: {changes: bronze.orders}, audit: {keys: [offset]}}
  silver.other: {from: {kafka: other}, lookups: {o: bronze.orders}, sql: SELECT input.* FROM input JOIN o USING (key)}
"""
)


def make_plan(folder: Path, more: str = "") -> Plan:
    return build_plan(load(folder, PROJECT + more))


@dataclass
class Lake:
    """`now` is the only clock. A file is (time of its last change); a removal is (version, time that it names)."""

    plan: Plan
    now: int = START_MS
    files: dict[str, int] = field(default_factory=dict)
    added: dict[str, int] = field(default_factory=dict)
    removed: dict[str, tuple[int, int]] = field(default_factory=dict)
    feed: dict[str, int] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)
    """Of each version: how many files a reader of changes reads."""
    version: int = -1
    batch: int = -1

    def __post_init__(self) -> None:
        self.commit([], entry=self._entry("genesis", self.now))

    @property
    def uri(self) -> str:
        return self._table(TABLE).uri

    def _table(self, name: str) -> Any:
        found = self.plan.table(name)
        assert found is not None
        return found

    def pass_(self, hours: float) -> None:
        self.now += round(hours * HOUR_MS)

    def active(self, version: int | None = None) -> list[str]:
        newest = self.version if version is None else version
        gone = {path for path, (at, _) in self.removed.items() if at <= newest}
        return [path for path, at in self.added.items() if at <= newest and path not in gone]

    def _entry(self, kind: Any, began: int) -> Entry:
        self.batch += 1
        return Entry(kind, TABLE, "5f0c", 1, self.batch, (at(self.batch),), (at(self.batch),), Pins(began, "d"))

    def append(self, took: float = 0.01, *, feeds: bool = False, replaces: int = 0) -> None:
        """A batch that takes so many hours; with `feeds` its changes are in files of the feed too."""
        began = self.now
        actions = [self._new(change=True)]
        if feeds:
            path = f"_change_data/cdc-{self.version + 1}"
            self.files[path], self.feed[path] = self.now, self.version + 1
            actions.append({"cdc": {"path": path, "size": 1, "dataChange": False}})
        for path in self.active()[:replaces]:
            actions.append(self._gone(path, self.now, change=True))
        self.pass_(took)
        self.commit(actions, entry=self._entry("batch", began))

    def optimize(self, took: float = 0.1, *, meanwhile: int = 0) -> None:
        """Its removals name the time of its beginning; batches are committed before it ends."""
        began, small = self.now, self.active()
        for _ in range(meanwhile):
            self.append(took / (meanwhile + 1))
        self.now = max(self.now, began + round(took * HOUR_MS))
        if len(small) > 1:
            self.commit([self._new(change=False), *(self._gone(path, began, change=False) for path in small)])

    def _new(self, *, change: bool) -> dict[str, Any]:
        path = f"part-{len(self.files)}"
        self.files[path], self.added[path] = self.now, self.version + 1
        return {"add": {"path": path, "size": 100, "dataChange": change, "stats": ""}}

    def _gone(self, path: str, at_ms: int, *, change: bool) -> dict[str, Any]:
        self.removed[path] = (self.version + 1, at_ms)
        return {"remove": {"path": path, "dataChange": change, "deletionTimestamp": at_ms}}

    def commit(self, actions: list[dict[str, Any]], *, entry: Entry | None = None) -> None:
        self.version += 1
        fed = sum("cdc" in one for one in actions)
        self.entries[self.version] = fed or sum(
            about.get("dataChange", False) for one in actions for about in one.values()
        )
        info: dict[str, Any] = {"operation": "WRITE" if entry else "OPTIMIZE", "inCommitTimestamp": self.now}
        if entry is not None:
            info["userMetadata"] = dump(entry)
        lines: list[dict[str, Any]] = [{"commitInfo": info}, *actions]
        if self.version == 0:
            lines.append({"metaData": {"id": ID}})
        self._write(self.uri, self.version, lines)

    def _write(self, uri: str, version: int, lines: list[dict[str, Any]]) -> None:
        file = Path(uri) / "_delta_log" / f"{version:020d}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n".join(map(json.dumps, lines)))

    def reads(
        self,
        name: str,
        before: Version,
        after: Version | None = None,
        *,
        batch: int = 3,
        others: tuple[Version, ...] = (),
        subscription: dict[str, Any] | None = None,
        **pins: Any,
    ) -> None:
        """The last entry of a reader; `others` are its positions in other streams."""
        table = self._table(name)
        more = tuple(map(str, others))
        where = (str(before), *more), (str(after or before), *more)
        entry = Entry("batch", name, "led", 1, batch, *where, replace(Pins(self.now, "d"), **pins))
        entry = replace(entry, subscription=subscription or {})
        info = {"operation": "WRITE", "inCommitTimestamp": self.now, "userMetadata": dump(entry)}
        self._write(table.uri, 0, [{"commitInfo": info}])
        heal(LocalStore(), f"{table.checkpoints}/1", entry)

    def horizon(self, retain: float = 0) -> Horizon:
        """`retain` in hours."""
        table = self._table(TABLE)
        found = needs(self.plan, table, maintained_tables(table)[0], LocalStore(), self.now)
        return horizon(TABLE, self.now - round(retain * HOUR_MS), found, self.now - 7 * DAY_MS)

    def deleted(self, found: Horizon, *, late: float = 0.1) -> set[str]:
        """What VACUUM would delete, started so many hours after the look."""
        if found.at_ms is None:
            return set()
        clock = self.now + round(late * HOUR_MS)
        before = clock - hours(self.now, found) * HOUR_MS
        kept = {path for path, (_, at) in self.removed.items() if before <= at and clock - 7 * DAY_MS < at}
        kept |= set(self.active())
        return {path for path, changed in self.files.items() if changed < before and path not in kept}

    def needed(self, position: Version, *, changes: bool) -> set[str]:
        """What a stream from there on, or a rebuilt one, reads: also of versions that come later."""
        begin = first = position.version + 1 if position.snapshot else position.version
        if changes and not position.snapshot and 0 < self.entries.get(first, 0) <= position.index + 1:
            first += 1  # its changes are read to the last of them
        wanted = {path for path, at in self.added.items() if at >= first}
        if position.snapshot:
            wanted |= set(self.active(position.version))
        if changes:
            wanted |= {path for path, at in self.feed.items() if at >= first}
            wanted |= {path for path, (at, _) in self.removed.items() if at >= first}
        for version in range(max(begin, position.read_up_to), self.version + 1):  # aggregates read it as it was
            wanted |= set(self.active(version))
        return wanted


def at_version(version: int, *, index: int = -1, snapshot: bool = False) -> Version:
    return Version(ID, version, index, snapshot)
