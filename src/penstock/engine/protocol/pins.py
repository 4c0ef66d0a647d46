"""What a batch has pinned, stored beside `offsets/N` before its first write."""

from __future__ import annotations

import json

from penstock.engine.protocol.entry import Pins
from penstock.engine.store import Store

KEPT = 100
"""As many batches as Spark keeps of its own files."""


def store_pins(store: Store, folder: str, batch: int, pins: Pins) -> None:
    document = {"time": pins.time_ms, "definition": pins.definition, "lookups": dict(pins.lookups)}
    store.write(f"{folder}/pins/{batch}", json.dumps(document, separators=(",", ":")))
    if batch > KEPT:
        store.delete(f"{folder}/pins/{batch - KEPT}")


def read_pins(store: Store, folder: str, batch: int) -> Pins | None:
    """The pins of a batch that was begun before; None if it never came to its first write."""
    text = store.read(f"{folder}/pins/{batch}")
    try:
        document = json.loads(text or "null")
        return Pins(document["time"], document["definition"], document["lookups"])
    except (ValueError, TypeError, KeyError):
        return None
