"""The hash of what decides the rows of a table: tells a batch that was begun under another definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def hashed(decides: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
