"""What Spark keeps in a checkpoint for its streaming operators: groups, joins, keys that it has seen."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from penstock.engine.store import Size, Store, size_of

_FILE = re.compile(r"(\d+)(?:_.*)?\.(?:delta|snapshot|zip|changelog)")
_KINDS = {
    "stateStoreSave": "groups",
    "sessionWindowStateStoreSaveExec": "session windows",
    "symmetricHashJoin": "join of two streams",
    "dedupe": "keys seen",
    "dedupeWithinWatermark": "keys seen within the watermark",
    "globalLimit": "limit",
    "flatMapGroupsWithState": "state of a function",
    "applyInPandasWithState": "state of a function",
    "transformWithStateInPandasExec": "state of a function",
    "transformWithStateExec": "state of a function",
}


@dataclass(frozen=True)
class Operator:
    number: int
    name: str | None
    """As Spark calls it."""
    partitions: int
    versions: tuple[int, int] | None
    """The oldest and the newest that a partition holds; a batch N leaves version N+1."""
    behind: int
    """Partitions whose newest version is older than that of others: their batch was cut off."""
    size: Size

    @property
    def said(self) -> str:
        return _KINDS.get(self.name or "", "") or self.name or "unknown"


def operators(store: Store, folder: str) -> list[Operator]:
    state = f"{folder}/state"
    return [_operator(store, f"{state}/{number}", number) for number in _numbers(store, state)]


def _operator(store: Store, folder: str, number: int) -> Operator:
    partitions = _numbers(store, folder)
    held = [_versions(store, f"{folder}/{partition}") for partition in partitions]
    newest = [max(one) for one in held if one]
    versions = (min(min(one) for one in held if one), max(newest)) if newest else None
    behind = sum(one < max(newest) for one in newest)
    return Operator(number, _name(store, folder), len(partitions), versions, behind, size_of(store, folder))


def _versions(store: Store, folder: str) -> set[int]:
    """A join keeps several stores in a partition, each in a folder of its own."""
    names = store.names(folder)
    found = {int(match[1]) for match in map(_FILE.fullmatch, names) if match}
    for name in names:
        if "." not in name and not name.startswith("_"):
            found |= {int(match[1]) for match in map(_FILE.fullmatch, store.names(f"{folder}/{name}")) if match}
    return found


def _name(store: Store, folder: str) -> str | None:
    """From the note that Spark makes of an operator."""
    lines = (store.read(f"{folder}/_metadata/metadata") or "").split("\n")
    try:
        return str(json.loads(lines[1])["operatorInfo"]["operatorName"])
    except (IndexError, ValueError, KeyError, TypeError):
        return None


def _numbers(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())
