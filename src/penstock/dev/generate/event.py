"""One event as it goes to Kafka, and the kinds of event there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from penstock.dev.generate.population import Population

VALID, LATE, DUPLICATE, MALFORMED = "valid", "late", "duplicate", "malformed"

Headers = tuple[tuple[str, bytes], ...]


class Event(NamedTuple):
    """A record to send. `label` says what it is: valid, late, duplicate, or malformed.<how>; it is not sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    event_time: int
    """Milliseconds since the epoch. Inside the value it is an ISO timestamp in UTC."""
    label: str = VALID


Render = Callable[[int], Event]
"""Makes the next event of a stream, at this time. It keeps what the stream must remember: sessions, ids, states."""


@dataclass(frozen=True)
class Setting:
    """What a kind builds its stream from. The same setting gives the same bytes."""

    rng: Random
    people: Population
    start: int
    """Milliseconds since the epoch: when the stream begins."""
    pace: float
    """Events per second of event time."""


@dataclass(frozen=True)
class Kind:
    name: str
    about: str
    id_field: str
    """The field without which a record means nothing: what a malformed one may lack."""
    wrong_types: Mapping[str, object]
    """For some fields a value of a type that no reader of this kind can take."""
    stream: Callable[[Setting], Render]


def headers_of(kind: str) -> Headers:
    return (("content-type", b"application/json"), ("schema", f"{kind}.v1".encode()))
