"""A checkpoint on disk, read as Spark writes it, and compared with the ledger before a start.

Spark 4.0 checks little of this itself: it takes a checkpoint without `metadata` for a new query, silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.store import Store
from penstock.errors import TableChanged

MARKER = "penstock.json"


@dataclass(frozen=True)
class Planned:
    """One `offsets/N` file: what batch N reads up to, and its time."""

    time_ms: int
    after: tuple[str, ...]


@dataclass(frozen=True)
class Checkpoint:
    offsets: Mapping[int, Planned | None]
    """By batch; None where the file is there and cannot be read."""
    commits: Mapping[int, bool]
    """By batch; False where the file is there and cannot be read."""
    metadata: bool
    marker: Mapping[str, Any] | None
    strangers: tuple[str, ...] = field(default=())
    """Sources beyond ours, or state: a checkpoint of another kind of query."""


def folder_of(checkpoints: str, entry: Entry) -> str:
    return f"{checkpoints}/{entry.generation}"


def read_planned(store: Store, folder: str, batch: int) -> Planned | None:
    text = store.read(f"{folder}/offsets/{batch}")
    return None if text is None else parse_planned(text)


def parse_planned(text: str) -> Planned | None:
    lines = text.split("\n")
    if len(lines) < 3 or lines[0] != "v1":
        return None
    try:
        time_ms = int(json.loads(lines[1])["batchTimestampMs"])
        after = tuple(line for line in lines[2:] if line)
        for source in after:
            position.parse(source)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Planned(time_ms, after)


def read_checkpoint(store: Store, folder: str) -> Checkpoint | None:
    """None if the folder is missing or empty. Reads the two newest batches, which are all that Spark looks at."""
    if not store.names(folder):
        return None
    offsets = _batches(store, f"{folder}/offsets")
    commits = _batches(store, f"{folder}/commits")
    try:
        marker = json.loads(store.read(f"{folder}/{MARKER}") or "null")
        metadata = bool(json.loads(store.read(f"{folder}/metadata") or "{}").get("id"))
    except (ValueError, AttributeError, RecursionError):
        marker, metadata = None, False
    return Checkpoint(
        offsets={batch: read_planned(store, folder, batch) for batch in offsets[-2:]},
        commits={batch: _commit_is_whole(store.read(f"{folder}/commits/{batch}")) for batch in commits[-2:]},
        metadata=metadata,
        marker=marker if isinstance(marker, dict) else None,
        strangers=tuple(name for name in store.names(folder) if name == "state"),
    )


def why_rebuild(found: Checkpoint | None, entry: Entry, *, stateful: bool = False) -> str | None:
    """None if the checkpoint is whole and in step with the table's last entry, else what is wrong with it. `stateful`
    if it may hold Spark's state, and nothing can be read again without that.

    Raises TableChanged if the checkpoint is this table's own and ahead of it: then it is the table that went back.
    """
    if found is None:
        return "it is missing or empty"
    if found.marker is None:
        return "its marker file is missing"
    if found.marker.get("ledger") != entry.ledger or found.marker.get("generation") != entry.generation:
        return f"it belongs to {found.marker.get('table')}, generation {found.marker.get('generation')}"
    if not found.metadata:
        return "its metadata file is missing or empty"
    if not found.offsets or not found.commits:
        return "its offsets or commits are missing"
    if None in found.offsets.values() or not all(found.commits.values()):
        return "a file in offsets or commits is cut short"
    if found.strangers and not stateful:
        return "it holds state of another query"
    planned, committed = max(found.offsets), max(found.commits)
    if committed > entry.batch or planned > entry.batch + 1:
        ahead = found.offsets[planned]
        assert ahead is not None
        raise TableChanged(
            f"the checkpoint has seen batch {max(committed, planned - 1)}, the table ends with batch {entry.batch}: "
            f"the table was put back to an older state. Not in the table: "
            f"{'; '.join(position.difference(a, b) for a, b in zip(entry.after, ahead.after, strict=False))}",
            where=entry.table,
            hint=f"`penstock checkpoints reset {entry.table} --to "
            + ("starting` empties the table and begins anew" if stateful else "ledger` reads those records again"),
        )
    return _why_out_of_step(found, entry, planned, committed)


def _why_out_of_step(found: Checkpoint, entry: Entry, planned: int, committed: int) -> str | None:
    if planned < entry.batch:
        return f"it is older than the ledger (batch {planned}, the ledger has {entry.batch})"
    if committed < planned - 1 or committed > planned:
        return f"commits end at batch {committed}, offsets at {planned}"
    if committed not in (entry.batch - 1, entry.batch):
        return f"commits end at batch {committed}, the ledger at {entry.batch}"
    pairs = [(entry.batch, entry.after)]
    if planned == entry.batch and entry.batch > 0:  # Spark reads the two newest offsets files, and dies of either
        pairs.append((entry.batch - 1, tuple(map(position.filled, entry.before, entry.after))))
    for batch, expected in pairs:
        at = found.offsets.get(batch)
        if at is None or len(at.after) != len(expected):
            return f"offsets/{batch} is missing"
        # To run a batch again, Spark has to be told where its new partitions began: it would ask the broker otherwise,
        # and refuse if retention has taken their head since. For a batch that is done with, it does not matter.
        says = at.after if committed < entry.batch else tuple(map(position.filled, at.after, entry.after))
        if not all(map(position.same, says, expected)):
            return f"offsets/{batch} says {', '.join(at.after)}, the ledger {', '.join(expected)}"
    if planned == entry.batch + 1:
        ahead = found.offsets[planned]
        if ahead is None or len(ahead.after) != len(entry.after):
            return f"offsets/{planned} does not fit the sources"
        if not all(_reaches(a, b) for a, b in zip(entry.after, ahead.after, strict=True)):
            return f"offsets/{planned} lies before the ledger"
    return None


def _reaches(before: str, after: str) -> bool:
    """Every partition of `before` is in `after`, at the same offset or a later one."""
    later = position.parse(after)
    return all(
        later.get(topic, {}).get(partition, -1) >= offset
        for topic, partitions in position.parse(before).items()
        for partition, offset in partitions.items()
    )


def _batches(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())


def _commit_is_whole(text: str | None) -> bool:
    lines = (text or "").split("\n")
    try:
        return lines[0] == "v1" and isinstance(json.loads(lines[1]), dict)
    except (IndexError, ValueError, RecursionError):
        return False
