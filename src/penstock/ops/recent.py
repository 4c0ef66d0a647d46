"""The end of a table's log, found without listing it: a log of 30 days at a commit every 30 seconds is 86,000 files."""

from __future__ import annotations

import json
from collections.abc import Iterator

from penstock.engine.protocol.log import Commit, DeltaLog, Origin
from penstock.engine.store import Store


def _is_quiet(commit: Commit) -> bool:
    return commit.origin is Origin.MAINTENANCE or not (commit.files_added or commit.changes)


class RecentLog(DeltaLog):
    """A log for one look from its end backwards. What was read is kept: the log does not change under it."""

    def __init__(self, store: Store, uri: str, table: str) -> None:
        super().__init__(store, uri, table)
        self._files = store
        self._log_folder = f"{uri}/_delta_log"
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

    def end(self, position: int) -> int | None:
        """The version after the newest one that has something to read for a reader at `position`; None if there is no
        table. Commits in which no row comes or goes leave nobody behind: a stream does not step over them."""
        newest = self.newest()
        while newest >= max(0, position) and (commit := self.commit(newest)) is not None and _is_quiet(commit):
            newest -= 1
        return newest + 1 if self.newest() >= 0 else None

    def _find_newest(self) -> int:
        """-1 if there is no table. Delta notes its last checkpoint; the commits after that have no holes."""
        known = self._last_checkpoint()
        if known is None or not self._exists(known):
            return max(self.versions(), default=-1)
        step = 1
        while self._exists(known + step):
            known, step = known + step, step * 2
        missing = known + step
        while missing - known > 1:
            middle = (known + missing) // 2
            if self._exists(middle):
                known = middle
            else:
                missing = middle
        return known

    def _exists(self, version: int) -> bool:
        return self._files.read(f"{self._log_folder}/{version:020d}.json") is not None

    def _last_checkpoint(self) -> int | None:
        try:
            return int(json.loads(self._files.read(f"{self._log_folder}/_last_checkpoint") or "{}")["version"])
        except (ValueError, KeyError, TypeError):
            return None
