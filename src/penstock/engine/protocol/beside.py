"""Small documents of a batch, beside Spark's own files in the checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.engine.store import Store

KEPT = 100
"""As many batches as Spark keeps of its own files."""


def write_beside(store: Store, folder: str, kind: str, batch: int, document: Mapping[str, Any]) -> None:
    store.write(f"{folder}/{kind}/{batch}", json.dumps(document, separators=(",", ":")))
    if batch > KEPT:
        store.delete(f"{folder}/{kind}/{batch - KEPT}")


def read_beside(store: Store, folder: str, kind: str, batch: int) -> dict[str, Any] | None:
    """None if it is not there, or not whole."""
    try:
        document = json.loads(store.read(f"{folder}/{kind}/{batch}") or "null")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
