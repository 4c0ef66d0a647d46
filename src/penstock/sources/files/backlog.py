"""How many of the listed files are not in the table yet: from the log of the manifest alone, without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.ledger.position import parse_version

if TYPE_CHECKING:
    from penstock.storage.stores import Store

MOST_COMMITS = 2_000
"""With more of them to look at, the number is not worth the time."""


def unread(store: Store, uri: str, position: str) -> int | None:
    """None if it cannot be told from the log."""
    at = parse_version(position)
    if at.snapshot:
        return None
    count, version = 0, at.version
    while (text := store.read(f"{uri}/_delta_log/{version:020d}.json")) is not None:
        if version - at.version > MOST_COMMITS:
            return None
        listed = _listed(text)
        count += sum(listed[at.index + 1 :] if version == at.version else listed)
        version += 1
    return count


def _listed(commit: str) -> list[int]:
    """Files that each data file of a commit names. Compaction names none anew."""
    found = []
    for line in commit.split("\n"):
        add = json.loads(line).get("add") if line else None
        if add is not None and add["dataChange"]:
            found.append(int(json.loads(add.get("stats") or "{}").get("numRecords", 0)))
    return found
