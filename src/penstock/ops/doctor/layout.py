"""How a table lies on its store: files and bytes, its properties, its log since Delta's last checkpoint.

Delta notes the number and the size of the files beside every commit (`N.crc`), so that a few small files tell all of
it; `deltalake` rebuilds the table's state only where a writer left no such note.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.engine.store import Store

_NOTES_TRIED = 3
_MOST_SIZED = 1_000
"""Commits since a checkpoint whose sizes are added up."""
_INTERVAL = re.compile(r"(\d+)\s+(second|minute|hour|day|week)s?", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True)
class Layout:
    files: int
    bytes: int
    properties: Mapping[str, str] = field(default_factory=dict)
    since_checkpoint: int = 0
    """Commits after Delta's last checkpoint; all of them if there was none."""
    log_bytes: int | None = None
    """Of those commits; None if there are too many to look, or the store does not tell."""


def layout(store: Store, uri: str, version: int) -> Layout:
    """Of a table's newest version. Raises what `deltalake` raises if nothing else tells."""
    found = _noted(store, uri, version) or _rebuilt(uri)
    since = version - _last_checkpoint(store, uri)
    return Layout(found.files, found.bytes, found.properties, since, _log_bytes(uri, version, since))


def bytes_at(store: Store, uri: str, version: int) -> int | None:
    """The size of a table at an earlier version, if that was noted."""
    found = _noted(store, uri, version)
    return found.bytes if found is not None else None


def kept_for(properties: Mapping[str, str], name: str, usually: str) -> float | None:
    """Seconds of a property that is an interval; None if it cannot be read."""
    text = properties.get(name, usually)
    found = _INTERVAL.findall(text)
    left = re.sub(r"interval|\s", "", _INTERVAL.sub("", text), flags=re.IGNORECASE)
    return None if not found or left else float(sum(int(number) * _SECONDS[unit.lower()] for number, unit in found))


def _noted(store: Store, uri: str, version: int) -> Layout | None:
    for one in range(version, max(-1, version - _NOTES_TRIED), -1):
        note = _document(store.read(f"{uri}/_delta_log/{one:020d}.crc"))
        try:
            properties = note["metadata"]["configuration"]
            return Layout(int(note["numFiles"]), int(note["tableSizeBytes"]), dict(properties))
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _rebuilt(uri: str) -> Layout:
    from penstock.ops.verify.rows import open_table

    table = open_table(uri)
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return Layout(len(sizes), sum(int(one) for one in sizes), dict(table.metadata().configuration))


def _last_checkpoint(store: Store, uri: str) -> int:
    try:
        return int(_document(store.read(f"{uri}/_delta_log/_last_checkpoint"))["version"])
    except (KeyError, TypeError, ValueError):
        return -1


def _log_bytes(uri: str, version: int, since: int) -> int | None:
    if "://" in uri or since > _MOST_SIZED:
        return None
    log = Path(uri) / "_delta_log"
    total = 0
    for one in range(version - since + 1, version + 1):
        try:
            total += (log / f"{one:020d}.json").stat().st_size
        except FileNotFoundError:
            continue
    return total


def _document(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
