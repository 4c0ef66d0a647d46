"""Events of a kind as a stream: good ones in time, with late, duplicate and malformed ones mixed in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count as numbers
from itertools import cycle
from random import Random
from typing import TypeVar

from penstock.dev.generate.event import DUPLICATE, LATE, MALFORMED, Event, EventKind, EventSetting, to_ms
from penstock.dev.generate.kinds import CLICKS, CUSTOMERS, ORDERS, SENSORS, TRANSACTIONS
from penstock.dev.generate.population import populate, quoted
from penstock.errors import UsageError
from penstock.spec.base_model import Wrong, did_you_mean, shown
from penstock.spec.quantity import instant, seconds

# What goes wrong with records in practice, made from a good one. Each way has its own label.


def _truncated(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    return event._replace(value=value[: rng.randrange(1, len(value))])


def _wrong_type(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    field = rng.choice(sorted(kind.wrong_types))
    return event._replace(value=_rewritten(value, field, kind.wrong_types[field]))


def _missing_id(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    """The field is absent or null, and so is the key."""
    spoilt = _rewritten(value, kind.id_field, None) if rng.getrandbits(1) else _without(value, kind.id_field)
    return event._replace(key=None, value=spoilt)


def _empty(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    return event._replace(value=b"")


def _invalid_utf8(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    """Bytes that no UTF-8 text has, put where the record's last string begins: the JSON around them stays whole."""
    place = value.rindex(b':"') + 2
    return event._replace(value=value[:place] + rng.choice(_NOT_UTF8) + value[place:])


def _null(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    return event._replace(value=None)


WAYS: dict[str, Callable[[Event, bytes, EventKind, Random], Event]] = {
    "truncated": _truncated,
    "wrong_type": _wrong_type,
    "missing_id": _missing_id,
    "empty": _empty,
    "invalid_utf8": _invalid_utf8,
    "null": _null,
}
_NOT_UTF8 = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x80", b"\xf8\x88\x80\x80\x80")


def spoiler(kind: EventKind, rng: Random) -> Callable[[Event], Event]:
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
        name, colon = _parsed(text, at)
        _, end = _parsed(text, colon + 1)
        yield name, text[at:end]
        at = end + 1


_parsed = json.JSONDecoder().raw_decode


# Events of a kind as a stream: the good ones in time, with late, duplicate and malformed ones mixed in.


KINDS: dict[str, EventKind] = {kind.name: kind for kind in (ORDERS, CLICKS, TRANSACTIONS, CUSTOMERS, SENSORS)}
PACE = 10.0
"""Events per second of event time where nobody says otherwise: ten thousand events cover a quarter of an hour."""
BLOCK = 1000
"""Shares are exact in every so many events, not only in the long run."""
REMEMBERED = 10_000
"""A duplicate repeats one of so many events before it."""
LATE_MS = (60_000, 3 * 86_400_000)
"""How late a late event is: from a minute to three days, short delays more often."""


@dataclass(frozen=True)
class Faults:
    """Shares, 0 to 1, of the events that are malformed, late, or copies of earlier ones."""

    malformed: float = 0.0
    late: float = 0.0
    duplicates: float = 0.0

    def __post_init__(self) -> None:
        for name, share in (("malformed", self.malformed), ("late", self.late), ("duplicates", self.duplicates)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name} is a share from 0% to 100%, not {share:.6g}", hint="write for example 1%")
        if self.total > 1:
            raise UsageError(
                f"malformed, late and duplicate events together are {self.total:.0%} of all",
                hint="keep the sum at 100% or less",
            )

    @property
    def total(self) -> float:
        return self.malformed + self.late + self.duplicates


def events(
    kind: str,
    count: int | None = None,
    *,
    seed: int = 42,
    start: datetime,
    pace: float = PACE,
    faults: Faults = Faults(),  # noqa: B008 - frozen
) -> Iterator[Event]:
    """`count` events (for ever without one), the faulty ones included.

    The same arguments give the same bytes. Event times begin at `start` and go `pace` events per second; a late event
    lies a minute to three days before its place, and a duplicate repeats a valid or late event that came before it.
    """
    if count is not None and count < 0:
        raise UsageError(f"a count cannot be negative: {count}", hint="write for example 10000")
    if not pace > 0:
        raise UsageError(f"a pace is more than 0 events per second, not {pace:.6g}", hint="write for example 100/s")
    chosen = find_kind(kind)
    begin = to_ms(start)
    setting = EventSetting(rng=Random(f"{seed}/{kind}"), people=populate(seed), start=begin, pace=pace)
    faulty, clock = Random(f"{seed}/{kind}/faults"), Random(f"{seed}/{kind}/clock")
    return _mixed(chosen, setting, count, faults, faulty, clock)


def find_kind(name: str) -> EventKind:
    if name in KINDS:
        return KINDS[name]
    raise UsageError(f"there is no kind of event called {shown(name)}", hint=did_you_mean(name, list(KINDS)))


def _mixed(
    kind: EventKind, setting: EventSetting, count: int | None, faults: Faults, faulty: Random, clock: Random
) -> Iterator[Event]:
    render, spoil, jitter = kind.stream(setting), spoiler(kind, faulty), clock.random
    begin, step = setting.start, 1000 / setting.pace
    earlier: list[Event] = []
    for first in range(0, count, BLOCK) if count is not None else numbers(0, BLOCK):
        size = BLOCK if count is None else min(BLOCK, count - first)
        planned = _plan_block(first, size, faults, faulty)
        for number in range(first, first + size):
            # Within its own step: arrivals look irregular, and yet the stream never drifts from its pace.
            at = begin + int((number + jitter()) * step)
            fault = planned.get(number)
            if fault == DUPLICATE and earlier:
                yield faulty.choice(earlier)._replace(label=DUPLICATE)
                continue
            if fault == MALFORMED:
                yield spoil(render(at))
                continue
            event = render(at - _delay(faulty))._replace(label=LATE) if fault == LATE else render(at)
            if faults.duplicates:
                if len(earlier) < REMEMBERED:
                    earlier.append(event)
                else:
                    earlier[number % REMEMBERED] = event
            yield event


def _plan_block(first: int, size: int, faults: Faults, rng: Random) -> dict[int, str]:
    """Which of the events first..first+size-1 are faulty. Rounded over the whole stream, so that no share drifts."""
    wanted: list[str] = []
    for label, share in ((MALFORMED, faults.malformed), (LATE, faults.late), (DUPLICATE, faults.duplicates)):
        wanted += [label] * (round((first + size) * share) - round(first * share))
    places = rng.sample(range(first, first + size), min(size, len(wanted)))
    return dict(zip(places, wanted, strict=False))


def _delay(rng: Random) -> int:
    shortest, longest = LATE_MS
    return int(shortest * (longest / shortest) ** rng.random())


# How much, how fast and how faulty, as people write it on a command line. Wrong text is a UsageError.


_NUMBER = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
_PER = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_SHARES = "write a percentage from 0% to 100%, for example 1% or 0.5%"
_COUNTS = "write a whole number, for example 10000, 50k or 2M"
_RATES = "write events per time, for example 500/s, 20k/s or 90/min"

T = TypeVar("T")


def share(text: str, option: str) -> float:
    """'1%' -> 0.01."""
    number, sign, rest = text.strip().partition("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    # Without the sign it could be 1% or all of them.
    if not sign or rest or not 0 <= percent <= 100:
        raise UsageError(f"{option} {shown(text)} is not a share", hint=_SHARES)
    return percent / 100


def count(text: str, option: str) -> int:
    """'50k' -> 50000."""
    number = _number(text)
    if number is None or number < 1 or number != int(number):
        raise UsageError(f"{option} {shown(text)} is not a number of events", hint=_COUNTS)
    return int(number)


def rate(text: str, option: str) -> float:
    """'20k/s' -> 20000.0 events per second; without a unit of time it is per second."""
    amount, slash, per = (part.strip() for part in text.partition("/"))
    number = _number(amount)
    if number is None or number <= 0 or (slash and per.casefold() not in _PER):
        raise UsageError(f"{option} {shown(text)} is not a rate", hint=_RATES)
    return number / (_PER[per.casefold()] if slash else 1)


def duration(text: str, option: str) -> float:
    """'1m' -> 60.0 seconds, more than none."""
    span = _read_option(seconds, text, option)
    if span <= 0:
        raise UsageError(f"{option} {shown(text)} is no time at all", hint="write for example 30s or 5m")
    return span


def moment(text: str, option: str) -> datetime:
    return _read_option(instant, text, option)


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    return float(re.sub("[_,]", "", match[1])) * _THOUSANDS[match[2].casefold()] if match else None


def _read_option(reader: Callable[[object], T], text: str, option: str) -> T:
    try:
        return reader(text)
    except Wrong as error:
        finding = error.findings[0]
        raise UsageError(f"{option}: {finding.message}", hint=finding.hint) from None
