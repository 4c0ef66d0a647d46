"""The hash of what decides the rows of a table, so that a batch knows whether it was begun under the same definition."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def hashed(decides: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
