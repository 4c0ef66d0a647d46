"""Reading a table's Delta log commit by commit, without a JVM: the ledger and everything that is not in it.

Only `_delta_log/N.json` files are read: a batch reads the few that are new since its own last one, a start walks back
from the newest to the last entry. No snapshot is built."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.ledger.entry import parse as parse_entry
from penstock.ledger.entry import parse_maintenance

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry, MaintenanceNote
    from penstock.storage.stores import Store


class Origin(Enum):
    """Who made a commit, and whether it changed rows."""

    LEDGER = "ledger"
    MAINTENANCE = "maintenance"
    """No row changed: compaction, properties, vacuum."""
    FOREIGN_APPEND = "foreign append"
    """Rows were added by another writer."""
    FOREIGN_CHANGE = "foreign change"
    """Rows were removed, restored or replaced by another writer."""


@dataclass(frozen=True)
class Commit:
    version: int
    timestamp_ms: int
    operation: str
    origin: Origin
    entry: Entry | None
    rows: int
    """Rows written, from Delta's own metrics or the files' statistics; for a sink those that it sent, for a merge the
    changes that it applied."""
    bytes: int
    files_added: int
    files_removed: int
    table_id: str | None
    """Set where the commit carries the table's metadata."""
    changes: bool = False
    """Existing rows were removed or replaced."""
    restored_to: int | None = None
    """The version that a RESTORE went back to."""
    removed_ms: int | None = None
    """The earliest time at which one of the files that it removes counts as removed: vacuum uses that, not the time of
    the commit. None if it removes none."""
    has_change_feed: bool = False
    """It has files of a change feed."""
    feed_files: int = 0
    """Files that a reader of its changes reads: those of the change feed, else the added and removed ones."""
    maintenance: MaintenanceNote | None = None
    """Set if this is a maintenance commit of Penstock."""


class DeltaLog:
    def __init__(self, store: Store, uri: str, table: str) -> None:
        self.store = store
        self._folder = f"{uri}/_delta_log"
        self.table = table

    def commit(self, version: int) -> Commit | None:
        path = self._path(version)
        text = self.store.read(path)
        try:
            return None if text is None else read_commit(version, text, self.table)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Terminal(
                f"version {version} of its log cannot be read: {error}",
                where=self.table,
                hint=f"{path} is damaged: put it back from a copy; nothing is written until then",
            ) from error

    def since(self, version: int) -> list[Commit]:
        """The commits after `version`, oldest first."""
        commits = []
        while (commit := self.commit(version + 1)) is not None:
            commits.append(commit)
            version += 1
        return commits

    def versions(self) -> list[int]:
        """The versions whose commit file still exists, oldest first; [] means there is no table."""
        stems = (name[:-5] for name in self.store.names(self._folder) if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit())

    def backwards(self) -> Iterator[Commit]:
        """From the newest commit back as far as the log still reaches."""
        for version in reversed(self.versions()):
            commit = self.commit(version)
            if commit is not None:
                yield commit

    def _path(self, version: int) -> str:
        return f"{self._folder}/{version:020d}.json"


def read_commit(version: int, text: str, table: str) -> Commit:
    info: dict[str, Any] = {}
    table_id = None
    removed_ms: int | None = None
    feed_files = 0
    added = removed = data_added = data_removed = size = rows = 0
    for line in text.split("\n"):  # not splitlines: JSON leaves U+2028 and U+0085 in a value as they are
        if not line:
            continue
        action = json.loads(line)
        if "add" in action:
            add = action["add"]
            added += 1
            size += add["size"]
            data_added += bool(add["dataChange"])
            if '"numRecords"' in (add.get("stats") or ""):
                rows += json.loads(add["stats"])["numRecords"]
        elif "remove" in action:
            removed += 1
            data_removed += bool(action["remove"]["dataChange"])
            deleted_ms = int(action["remove"].get("deletionTimestamp") or 0)
            removed_ms = deleted_ms if removed_ms is None else min(removed_ms, deleted_ms)
        elif "cdc" in action:
            feed_files += 1
        elif "commitInfo" in action:
            info = action["commitInfo"]
        elif "metaData" in action:
            table_id = action["metaData"]["id"]
    operation = str(info.get("operation", "UNKNOWN"))
    entry = parse_entry(info.get("userMetadata"))
    if entry is not None and (entry.table != table or operation == "OPTIMIZE"):
        entry = None  # auto-compaction may repeat the entry of the commit that it follows
    output_rows = (info.get("operationMetrics") or {}).get("numOutputRows")
    return Commit(
        version=version,
        timestamp_ms=int(info.get("inCommitTimestamp") or info.get("timestamp") or 0),
        operation=operation,
        origin=_origin(entry, operation, data_added, data_removed),
        entry=entry,
        rows=_row_count(entry, output_rows, rows),
        bytes=size,
        files_added=added,
        files_removed=removed,
        table_id=table_id,
        changes=bool(data_removed) or operation == "RESTORE",
        restored_to=_restored_to(info) if operation == "RESTORE" else None,
        removed_ms=removed_ms,
        has_change_feed=feed_files > 0,
        feed_files=feed_files or data_added + data_removed,
        maintenance=parse_maintenance(info.get("userMetadata")) if entry is None else None,
    )


def _row_count(entry: Entry | None, output_rows: Any, file_rows: int) -> int:
    if entry is not None and entry.applied is not None:
        return entry.applied
    return int(output_rows) if output_rows is not None else file_rows


def _restored_to(info: dict[str, Any]) -> int | None:
    version = (info.get("operationParameters") or {}).get("version")
    return int(version) if version is not None and str(version).isdigit() else None


def _origin(entry: Entry | None, operation: str, data_added: int, data_removed: int) -> Origin:
    if entry is not None and (operation != "RESTORE" or entry.kind == "rewind"):
        return Origin.LEDGER
    if operation == "RESTORE" or data_removed:
        return Origin.FOREIGN_CHANGE
    return Origin.FOREIGN_APPEND if data_added else Origin.MAINTENANCE


# The end of a table's log, found without listing it: a log of 30 days at a commit every 30 seconds is 86,000 files.


def _is_quiet(commit: Commit) -> bool:
    return commit.origin is Origin.MAINTENANCE or not (commit.files_added or commit.changes)


class RecentLog(DeltaLog):
    """A log that is read once, from its end backwards. What was read is cached: the log is taken as unchanging."""

    def __init__(self, store: Store, uri: str, table: str) -> None:
        super().__init__(store, uri, table)
        self._newest: int | None = None
        self._read: dict[int, Commit | None] = {}

    def commit(self, version: int) -> Commit | None:
        if version not in self._read:
            self._read[version] = super().commit(version)
        return self._read[version]

    def newest(self) -> int:
        """The newest version; -1 if there is no table."""
        if self._newest is None:
            self._newest = self._find_newest()
        return self._newest

    def backwards(self) -> Iterator[Commit]:
        for version in range(self.newest(), -1, -1):
            commit = self.commit(version)
            if commit is None:
                return
            yield commit

    def readable_end(self, position: int) -> int | None:
        """The version after the newest one that has something to read for a reader at `position`; None if there is no
        table. Commits that neither add nor remove rows put no reader behind: a stream does not step over them."""
        newest = self.newest()
        while newest >= max(0, position) and (commit := self.commit(newest)) is not None and _is_quiet(commit):
            newest -= 1
        return newest + 1 if self.newest() >= 0 else None

    def _find_newest(self) -> int:
        """-1 if there is no table. Delta notes its last checkpoint; the commits after that have no gaps."""
        existing = self._last_checkpoint()
        if existing is None or not self._exists(existing):
            return max(self.versions(), default=-1)
        step = 1
        while self._exists(existing + step):
            existing, step = existing + step, step * 2
        missing = existing + step
        while missing - existing > 1:
            middle = (existing + missing) // 2
            if self._exists(middle):
                existing = middle
            else:
                missing = middle
        return existing

    def _exists(self, version: int) -> bool:
        return self.store.read(self._path(version)) is not None

    def _last_checkpoint(self) -> int | None:
        try:
            return int(json.loads(self.store.read(f"{self._folder}/_last_checkpoint") or "{}")["version"])
        except (ValueError, KeyError, TypeError):
            return None
