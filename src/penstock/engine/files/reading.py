"""How a batch reads its files: with which schema, and without which of them. Decided once, before its first write, so
that a batch that runs again after a crash gives the same rows.

It is kept in the lake by generation and batch, not beside the offsets: a checkpoint that is rebuilt would lose it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import StructType

from penstock.engine.files.format import Look
from penstock.engine.protocol.beside import KEPT
from penstock.engine.protocol.entry import Entry
from penstock.engine.store import Store


@dataclass(frozen=True)
class Reading:
    look: Look
    given_up: Mapping[str, str] = field(default_factory=dict)
    """File -> why it cannot be read: it goes to quarantine by its name."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """File -> how often it was away so far."""


def store_reading(store: Store, folder: str, entry: Entry, reading: Reading) -> None:
    document = {
        "before": list(entry.before),
        "after": list(entry.after),
        "schema": reading.look.schema.jsonValue(),
        "left_out": list(reading.look.left_out),
        "watchful": reading.look.watchful,
        "given_up": dict(reading.given_up),
        "tries": dict(reading.tries),
    }
    store.write(_place(folder, entry.generation, entry.batch), json.dumps(document, ensure_ascii=False))
    if entry.batch > KEPT:
        store.delete(_place(folder, entry.generation, entry.batch - KEPT))


def read_reading(store: Store, folder: str, entry: Entry) -> Reading | None:
    """None if the batch was never begun, or planned anew over other files."""
    document: Any = json.loads(store.read(_place(folder, entry.generation, entry.batch)) or "null")
    if not isinstance(document, dict) or (document["before"], document["after"]) != (
        list(entry.before),
        list(entry.after),
    ):
        return None
    look = Look(StructType.fromJson(document["schema"]), tuple(document["left_out"]), document["watchful"])
    return Reading(look, document["given_up"], document["tries"])


def _place(folder: str, generation: int, batch: int) -> str:
    return f"{folder}/{generation}/{batch}.json"
