"""For how long a table remembers which files were removed from it. A vacuum cannot keep what it does not remember."""

from __future__ import annotations

import re
from collections.abc import Mapping

REMOVED, LOG = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
SINCE = "penstock.removed.since"
"""Set where Penstock made a table remember for longer: what was forgotten before does not come back."""
DAY_MS = 86_400_000
_DEFAULT_MS = {REMOVED: 7 * DAY_MS, LOG: 30 * DAY_MS}
_UNITS = {"week": 7 * DAY_MS, "day": DAY_MS, "hour": 3_600_000, "minute": 60_000, "second": 1000, "millisecond": 1}
_PART = re.compile(r"(\d+)\s+(week|day|hour|minute|second|millisecond)s?")


def retention_ms(configuration: Mapping[str, str], name: str = REMOVED) -> int:
    """0 for what is not understood: then nothing is taken to be remembered."""
    text = configuration.get(name)
    if text is None:
        return _DEFAULT_MS[name]
    text = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(text)
    return sum(int(n) * _UNITS[unit] for n, unit in parts) if parts and not _PART.sub("", text).strip() else 0


def known_since_ms(configuration: Mapping[str, str], now_ms: int) -> int:
    """Removals before that are forgotten."""
    since = configuration.get(SINCE, "")
    return max(now_ms - retention_ms(configuration), int(since) if since.isdecimal() else 0)
