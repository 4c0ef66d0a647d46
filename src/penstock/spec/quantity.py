"""Durations, sizes and times as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import BeforeValidator

from penstock.spec.base_model import nearest, quote_value, wrong

_SECONDS = {
    unit: factor
    for factor, units in (
        (0.001, "ms millisecond milliseconds"),
        (1, "s sec secs second seconds"),
        (60, "m min mins minute minutes"),
        (3600, "h hr hrs hour hours"),
        (86400, "d day days"),
        (604800, "w week weeks"),
    )
    for unit in units.split()
}
_BYTES = {"b": 1, "byte": 1, "bytes": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _BYTES[f"{_letter}b"] = 1000**_power
    _BYTES[f"{_letter}ib"] = 1024**_power

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_DURATIONS = "write a number and a unit: 500ms, 30s, 5 minutes, 1h30m or 1 day"
_SIZES = "write a number and a unit: 64MB, 1 GiB or 512 kB (MB is 1,000,000 bytes, MiB is 1,048,576)"
_TIMES = "write an ISO time: 2026-01-01T00:00:00Z (without a zone it is UTC)"


def seconds(value: object) -> float:
    """'1h30m' -> 5400.0. Raises FindingsError; a bare number is refused, for its unit is unknown."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return sum(number * _unit(unit, _SECONDS, value, "duration", _DURATIONS) for number, unit in _parts(value))


def size(value: object) -> int:
    """'64MB' -> 64000000; a bare whole number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    parts = _parts(value, quantity="size", hint=_SIZES)
    if len(parts) != 1:
        raise wrong(f"{quote_value(value)} is not a size", _SIZES)
    number, unit = parts[0]
    return round(number * _unit(unit, _BYTES, value, "size", _SIZES))


def instant(value: object) -> datetime:
    """An ISO date or time, or milliseconds since 1970. Without a zone it is UTC."""
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 100_000_000_000:  # in milliseconds, less is before 1973: surely seconds were meant
            raise wrong(f"{value} is not a time in milliseconds since 1970", _TIMES)
        return datetime.fromtimestamp(value / 1000, tz=UTC)
    if not isinstance(value, str):
        raise wrong(f"{quote_value(value)} is not a time", _TIMES)
    try:
        parsed = datetime.fromisoformat(value.strip())
    except ValueError:
        raise wrong(f"{quote_value(value)} is not a time", _TIMES) from None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


Duration = Annotated[float, BeforeValidator(seconds)]
ByteCount = Annotated[int, BeforeValidator(size)]
Instant = Annotated[datetime, BeforeValidator(instant)]


def duration_text(span: float) -> str:
    """5400 -> '1h30m': the shortest form."""
    if span < 1:
        return f"{span * 1000:g}ms"
    text, rest = "", round(span, 3)
    for letter, unit in (("d", 86400), ("h", 3600), ("m", 60)):
        count, rest = divmod(rest, unit)
        text += f"{int(count)}{letter}" if count else ""
    return text + (f"{rest:g}s" if rest or not text else "")


def time_text(timestamp_ms: int) -> str:
    """'2026-05-14 09:00:00' in UTC; the number itself if no calendar has that time, as a foreign commit may claim."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def iso_time(timestamp_ms: int) -> str:
    """'2026-05-14T09:00:00Z'"""
    return time_text(timestamp_ms).replace(" ", "T") + "Z"


def now_ms() -> int:
    """The time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def counted(count: int, noun: str) -> str:
    """'1 file', '1,200 files'."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _parts(value: object, quantity: str = "duration", hint: str = _DURATIONS) -> list[tuple[float, str]]:
    if not isinstance(value, str):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise wrong(f"{value} of what? a {quantity} needs a unit", hint)
        raise wrong(f"{quote_value(value)} is not a {quantity}", hint)
    parts, position = [], 0
    while position < len(value) and (match := _PART.match(value, position)):
        parts.append((float(match[1]), match[2]))
        position = match.end()
    if not parts or position < len(value):
        raise wrong(f"{quote_value(value)} is not a {quantity}", hint)
    return parts


def _unit(unit: str, units: dict[str, float] | dict[str, int], value: object, quantity: str, hint: str) -> float:
    if not unit:
        raise wrong(f"{quote_value(value)} of what? a {quantity} needs a unit", hint)
    if unit.casefold() not in units:
        suggestion = nearest(unit, units)
        raise wrong(
            f"{quote_value(value)} is not a {quantity}", f"did you mean '{suggestion}'? {hint}" if suggestion else hint
        )
    return units[unit.casefold()]
