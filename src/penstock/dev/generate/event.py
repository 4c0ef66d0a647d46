"""One event as it is sent to Kafka, the definition of a kind of event, and fast ISO timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from penstock.dev.generate.population import Population

# ISO timestamps from lookup tables: formatting a datetime would cost more than the rest of an event.


DAY_MS = 86_400_000

_MINUTES = tuple(f"T{minute // 60:02d}:{minute % 60:02d}:" for minute in range(1440))
_SECONDS = tuple(f"{second:02d}." for second in range(60))
_MILLIS = tuple(f"{milli:03d}Z" for milli in range(1000))
_days: dict[int, str] = {}


def iso(time_ms: int) -> str:
    """Milliseconds since the epoch as 2026-01-31T12:34:56.789Z."""
    day, remaining = divmod(time_ms, DAY_MS)
    date = _days.get(day)
    if date is None:
        date = _days[day] = datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
    minute, remaining = divmod(remaining, 60_000)
    second, milli = divmod(remaining, 1000)
    return date + _MINUTES[minute] + _SECONDS[second] + _MILLIS[milli]


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch; a moment without a zone is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


# One event as it is sent to Kafka, and the definition of a kind of event.


VALID, LATE, DUPLICATE, MALFORMED = "valid", "late", "duplicate", "malformed"

Headers = tuple[tuple[str, bytes], ...]


class Event(NamedTuple):
    """A record to send. `label` is valid, late, duplicate, or malformed.<how>; it is not sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    event_time: int
    """Milliseconds since the epoch. Inside the value it is an ISO timestamp in UTC."""
    label: str = VALID


Render = Callable[[int], Event]
"""Creates the next event of a stream at the given time. It holds the state of the stream: sessions, ids, rows."""


@dataclass(frozen=True)
class EventSetting:
    """The input from which a kind builds its stream. The same setting gives the same bytes."""

    rng: Random
    population: Population
    start: int
    """The start of the stream, in milliseconds since the epoch."""
    pace: float
    """Events per second of event time."""


@dataclass(frozen=True)
class EventKind:
    name: str
    description: str
    id_field: str
    """The field without which a record is useless: a malformed record may lack it."""
    wrong_types: Mapping[str, object]
    """For some fields, a value of a type that no reader of this kind accepts."""
    stream: Callable[[EventSetting], Render]


def headers_of(kind: str) -> Headers:
    return (("content-type", b"application/json"), ("schema", f"{kind}.v1".encode()))
