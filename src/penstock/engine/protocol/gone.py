"""The files that a commit takes out of a table, by their names: who reads older versions still reads them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_LENGTH = 20


def files_gone(commit: str, *, feed: bool = True) -> Iterator[str]:
    """Of the text of a commit: removed files, the marks of deleted rows that went with them, and with `feed` the files
    of its change feed, which belong to no version. Files that lie elsewhere are left out."""
    kinds = ("remove", "cdc") if feed else ("remove",)
    for line in commit.split("\n"):
        if not any(f'"{kind}"' in line for kind in kinds):
            continue
        action = json.loads(line)
        for kind in kinds:
            about = action.get(kind)
            if about is not None:
                path = unquote(about["path"])
                if not path.startswith("/") and "://" not in path and not path.startswith("file:"):
                    yield path
                if about.get("deletionVector"):
                    yield from _vector(about["deletionVector"])


def _vector(about: dict[str, Any]) -> Iterator[str]:
    """Delta writes the UUID that names the file in 20 digits of base 85, after a folder."""
    if about.get("storageType") != "u":
        return
    text = about["pathOrInlineDv"]
    folder, digits = text[:-_LENGTH], text[-_LENGTH:]
    number = bytes(byte for at in range(0, _LENGTH, 5) for byte in _decoded(digits[at : at + 5]))
    name = f"deletion_vector_{uuid.UUID(bytes=number)}.bin"
    yield f"{folder}/{name}" if folder else name


def _decoded(five: str) -> bytes:
    value = 0
    for digit in five:
        value = value * 85 + _DIGITS.index(digit)
    return value.to_bytes(4, "big")
