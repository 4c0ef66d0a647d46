"""What goes wrong with records in practice, made from a good one. Each way has its own label."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

from penstock.dev.generate.event import MALFORMED, Event, Kind


def _truncated(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    return event._replace(value=value[: rng.randrange(1, len(value))])


def _wrong_type(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    field = rng.choice(sorted(kind.wrong_types))
    return event._replace(value=_rewritten(value, {field: kind.wrong_types[field]}))


def _missing_id(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    """The field is absent or null, and so is the key."""
    changes: dict[str, object] = {kind.id_field: None if rng.getrandbits(1) else _ABSENT}
    return event._replace(key=None, value=_rewritten(value, changes))


def _empty(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    return event._replace(value=b"")


def _invalid_utf8(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    """Bytes that no UTF-8 text has, put where the record's last string begins: the JSON around them stays whole."""
    place = value.rindex(b':"') + 2
    return event._replace(value=value[:place] + rng.choice(_NOT_UTF8) + value[place:])


def _null(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    return event._replace(value=None)


WAYS: dict[str, Callable[[Event, bytes, Kind, Random], Event]] = {
    "truncated": _truncated,
    "wrong_type": _wrong_type,
    "missing_id": _missing_id,
    "empty": _empty,
    "invalid_utf8": _invalid_utf8,
    "null": _null,
}
_ABSENT = object()
_NOT_UTF8 = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x80", b"\xf8\x88\x80\x80\x80")


def spoiler(kind: Kind, rng: Random) -> Callable[[Event], Event]:
    """A function that spoils one event; the ways take turns, so that a handful of events shows each."""
    ways: Iterator[str] = cycle(rng.sample(sorted(WAYS), len(WAYS)))

    def spoil(event: Event) -> Event:
        way = next(ways)
        value = event.value or b""
        return WAYS[way](event, value, kind, rng)._replace(label=f"{MALFORMED}.{way}")

    return spoil


def _rewritten(value: bytes, changes: dict[str, object]) -> bytes:
    # Decimals stay as they were written (9.90, not 9.9): only the changed field may differ from a good record.
    record = json.loads(value, parse_float=_Decimal) | changes
    kept = {name: content for name, content in record.items() if content is not _ABSENT}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


class _Decimal(float):
    """A number that is written as it was read."""

    def __new__(cls, text: str) -> _Decimal:
        return super().__new__(cls, text)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text
