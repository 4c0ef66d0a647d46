"""Counts listed files that are not in the table yet, from the manifest's log alone, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.ledger.position import parse_version

if TYPE_CHECKING:
    from penstock.storage.stores import Store

MOST_COMMITS = 2_000
"""With more commits to read, the number is not worth the time."""


def unread(store: Store, uri: str, position: str) -> int | None:
    """None if the log does not tell."""
    start = parse_version(position)
    if start.snapshot:
        return None
    count, version = 0, start.version
    while (text := store.read(f"{uri}/_delta_log/{version:020d}.json")) is not None:
        if version - start.version > MOST_COMMITS:
            return None
        file_counts = _file_counts(text)
        count += sum(file_counts[start.index + 1 :] if version == start.version else file_counts)
        version += 1
    return count


def _file_counts(commit: str) -> list[int]:
    """The number of files that each data file of a commit lists. Compaction adds none."""
    counts = []
    for line in commit.split("\n"):
        add = json.loads(line).get("add") if line else None
        if add is not None and add["dataChange"]:
            counts.append(int(json.loads(add.get("stats") or "{}").get("numRecords", 0)))
    return counts
