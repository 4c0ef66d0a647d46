"""What is written to disk, or printed for programs, and must stay as it is: ledger entries, definition hashes, files
of checkpoints, the keys of `plan --json`.

    PENSTOCK_GOLDEN=write pytest tests/unit/test_golden.py

writes the files of this folder anew. A change in one of them is a change that users and their lakes notice.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def golden(name: str, found: Any) -> None:
    """Compare with the file of that name."""
    file = HERE / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("PENSTOCK_GOLDEN") == "write":
        file.write_text(text)
    assert json.loads(text) == json.loads(file.read_text())


def keys(document: Any) -> Any:
    """The keys of a document, at every depth. Of a list: those of all its items together."""
    if isinstance(document, dict):
        return {key: keys(value) for key, value in document.items()}
    if isinstance(document, list):
        merged: Any = None
        for item in document:
            merged = _both(merged, keys(item))
        return [] if merged is None else [merged]
    return "value"


def _both(one: Any, other: Any) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: _both(one.get(key), other.get(key)) for key in {**one, **other}}
    if isinstance(one, list) and isinstance(other, list):
        both = [*one, *other]
        return both if len(both) < 2 else [_both(both[0], both[1])]
    if one is None or one == "value":
        return other if other is not None else one
    return one
