"""What goes wrong with records in practice, made from a good one. Each way has its own label."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import cycle
from random import Random

from penstock.dev.generate.event import MALFORMED, Event, Kind
from penstock.dev.generate.population import quoted


def _truncated(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    return event._replace(value=value[: rng.randrange(1, len(value))])


def _wrong_type(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    field = rng.choice(sorted(kind.wrong_types))
    return event._replace(value=_rewritten(value, field, kind.wrong_types[field]))


def _missing_id(event: Event, value: bytes, kind: Kind, rng: Random) -> Event:
    """The field is absent or null, and so is the key."""
    spoilt = _rewritten(value, kind.id_field, None) if rng.getrandbits(1) else _without(value, kind.id_field)
    return event._replace(key=None, value=spoilt)


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
_NOT_UTF8 = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x80", b"\xf8\x88\x80\x80\x80")


def spoiler(kind: Kind, rng: Random) -> Callable[[Event], Event]:
    """A function that spoils one event; the ways take turns, so that a handful of events shows each."""
    ways: Iterator[str] = cycle(rng.sample(sorted(WAYS), len(WAYS)))

    def spoil(event: Event) -> Event:
        way = next(ways)
        value = event.value or b""
        return WAYS[way](event, value, kind, rng)._replace(label=f"{MALFORMED}.{way}")

    return spoil


def _rewritten(value: bytes, field: str, content: object) -> bytes:
    """Only the field may differ from a good record: rendering the whole anew would turn 9.90 into 9.9."""
    text = value.decode()
    members = [f"{quoted(field)}:{json.dumps(content)}" if name == field else member for name, member in _members(text)]
    return f"{{{','.join(members)}}}".encode()


def _without(value: bytes, field: str) -> bytes:
    return f"{{{','.join(member for name, member in _members(value.decode()) if name != field)}}}".encode()


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The fields of an object as our kinds write it (no spaces), each with its own text."""
    at = 1
    while at < len(text):
        name, colon = _read(text, at)
        _, end = _read(text, colon + 1)
        yield name, text[at:end]
        at = end + 1


_read = json.JSONDecoder().raw_decode
