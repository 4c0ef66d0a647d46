"""ISO timestamps by table: formatting a datetime would cost more than the rest of an event together."""

from __future__ import annotations

from datetime import UTC, datetime

DAY_MS = 86_400_000

_MINUTES = tuple(f"T{minute // 60:02d}:{minute % 60:02d}:" for minute in range(1440))
_SECONDS = tuple(f"{second:02d}." for second in range(60))
_MILLIS = tuple(f"{milli:03d}Z" for milli in range(1000))
_days: dict[int, str] = {}


def iso(at: int) -> str:
    """Milliseconds since the epoch as 2026-01-31T12:34:56.789Z."""
    day, rest = divmod(at, DAY_MS)
    date = _days.get(day)
    if date is None:
        date = _days[day] = datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
    minute, rest = divmod(rest, 60_000)
    second, milli = divmod(rest, 1000)
    return date + _MINUTES[minute] + _SECONDS[second] + _MILLIS[milli]


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch; a moment without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
