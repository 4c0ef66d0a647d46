"""What was done to the files of a table, and when: a small file beside its state. Lost, it is done once more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.store import Store


@dataclass(frozen=True)
class Memory:
    """Times are in milliseconds since 1970."""

    done: Mapping[str, int] = field(default_factory=dict)
    """Work -> when it was last finished, also if there was nothing to do."""
    began_ms: int | None = None
    """Of an optimize that has not ended: its files lie in the table, and no commit names them yet."""
    ordered: Mapping[tuple[str | None, ...], int] = field(default_factory=dict)
    """When the rows of a partition were last put in order; files that are newer are not."""
    ordered_by: tuple[str, ...] = ()


def _path(system: str, table: str) -> str:
    return f"{system}/upkeep/{table}.json"


def read_memory(store: Store, system: str, table: str) -> Memory:
    try:
        document: Any = json.loads(store.read(_path(system, table)) or "{}")
        ordered = document.get("ordered") or {}
        return Memory(
            {str(work): int(at) for work, at in (document.get("done") or {}).items()},
            document.get("began"),
            {tuple(partition): int(at) for partition, at in ordered.get("at") or ()},
            tuple(ordered.get("by") or ()),
        )
    except (ValueError, TypeError, AttributeError):
        return Memory()


def write_memory(store: Store, system: str, table: str, memory: Memory) -> None:
    document: dict[str, Any] = {"done": dict(memory.done)}
    if memory.began_ms is not None:
        document["began"] = memory.began_ms
    if memory.ordered:
        at = [[list(partition), at] for partition, at in memory.ordered.items()]
        document["ordered"] = {"at": at, "by": list(memory.ordered_by)}
    store.write(_path(system, table), json.dumps(document))


def under_way(store: Store, system: str, table: str) -> int | None:
    """When an optimize began that has not ended, or was killed: only the next one can tell these two apart."""
    return read_memory(store, system, table).began_ms
