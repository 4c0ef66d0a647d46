"""The time of a batch in the user's SQL: a batch that runs again must judge its rows by the same clock.

If it did not, a row that was rejected as lying in the future could pass the second time, when the rows that passed are
in the table already: it would be in neither.
"""

from __future__ import annotations

import re

_LEFT_ALONE = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/"
_WORDS = r"(?<![\w.])(current_timestamp|localtimestamp|current_date)\b(?:\s*\(\s*\))?"
_CALLS = r"(?<![\w.])(now|curdate|unix_timestamp)\s*\(\s*\)"
_FOUND = re.compile(f"({_LEFT_ALONE})|{_WORDS}|{_CALLS}", re.IGNORECASE | re.DOTALL)


def with_batch_time(sql: str, time_ms: int) -> str:
    """Every function that asks for the time gives that of the batch."""
    now = f"timestamp_millis({time_ms}L)"
    instead = {
        "current_timestamp": now,
        "now": now,
        "localtimestamp": f"CAST({now} AS TIMESTAMP_NTZ)",
        "current_date": f"CAST({now} AS DATE)",
        "curdate": f"CAST({now} AS DATE)",
        "unix_timestamp": f"{time_ms // 1000}L",
    }

    def replace(match: re.Match[str]) -> str:
        word = match[2] or match[3]
        return match[0] if word is None else instead[word.lower()]

    return _FOUND.sub(replace, sql)
