"""A stream of events of one kind: valid ones on time, with late, duplicate and malformed ones mixed in."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TypeVar

from penstock.dev.generate.event import (
    DUPLICATE,
    LATE,
    MALFORMED,
    Event,
    EventKind,
    EventSetting,
    populate,
    quoted,
    to_ms,
)
from penstock.dev.generate.kinds import CLICKS, CUSTOMERS, ORDERS, SENSORS, TRANSACTIONS
from penstock.errors import UsageError
from penstock.spec.base_model import FindingsError, did_you_mean, quote_value
from penstock.spec.quantity import instant, seconds

# What goes wrong with records in practice, made from a valid one. Each way has its own label.


def _truncated(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    return event._replace(value=value[: rng.randrange(1, len(value))])


def _wrong_type(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    field = rng.choice(sorted(kind.wrong_types))
    return event._replace(value=_replace_field(value, field, kind.wrong_types[field]))


def _missing_id(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    """The field is absent or null, and so is the key."""
    malformed = _replace_field(value, kind.id_field, None) if rng.getrandbits(1) else _drop_field(value, kind.id_field)
    return event._replace(key=None, value=malformed)


def _invalid_utf8(event: Event, value: bytes, kind: EventKind, rng: Random) -> Event:
    """Inserts bytes that are not UTF-8 at the start of the record's last string: the JSON around them stays intact."""
    string_start = value.rindex(b':"') + 2
    return event._replace(value=value[:string_start] + rng.choice(_NOT_UTF8) + value[string_start:])


FAULTS_BY_NAME: dict[str, Callable[[Event, bytes, EventKind, Random], Event]] = {
    "truncated": _truncated,
    "wrong_type": _wrong_type,
    "missing_id": _missing_id,
    "empty": lambda event, *_: event._replace(value=b""),
    "invalid_utf8": _invalid_utf8,
    "null": lambda event, *_: event._replace(value=None),
}
_NOT_UTF8 = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\x80", b"\xf8\x88\x80\x80\x80")


def make_fault_injector(kind: EventKind, rng: Random) -> Callable[[Event], Event]:
    """A function that makes one event malformed; the faults take turns, so that a few events show them all."""
    faults: Iterator[str] = itertools.cycle(rng.sample(sorted(FAULTS_BY_NAME), len(FAULTS_BY_NAME)))

    def inject_fault(event: Event) -> Event:
        fault = next(faults)
        value = event.value or b""
        return FAULTS_BY_NAME[fault](event, value, kind, rng)._replace(label=f"{MALFORMED}.{fault}")

    return inject_fault


def _replace_field(value: bytes, field: str, content: object) -> bytes:
    """Only this field may differ from a valid record: rendering the whole record again would turn 9.90 into 9.9."""
    text = value.decode()
    members = [f"{quoted(field)}:{json.dumps(content)}" if name == field else member for name, member in _members(text)]
    return f"{{{','.join(members)}}}".encode()


def _drop_field(value: bytes, field: str) -> bytes:
    return f"{{{','.join(member for name, member in _members(value.decode()) if name != field)}}}".encode()


def _members(text: str) -> Iterator[tuple[str, str]]:
    """The name and the text of each field of an object, as our kinds write it (no spaces)."""
    start = 1
    while start < len(text):
        name, colon = _parse_json(text, start)
        _, end = _parse_json(text, colon + 1)
        yield name, text[start:end]
        start = end + 1


_parse_json = json.JSONDecoder().raw_decode


KINDS: dict[str, EventKind] = {kind.name: kind for kind in (ORDERS, CLICKS, TRANSACTIONS, CUSTOMERS, SENSORS)}
PACE = 10.0
"""Default of events per second of event time: ten thousand events cover a quarter of an hour."""
BLOCK = 1000
"""Shares are exact in every block of this many events, not only in the long run."""
REMEMBERED = 10_000
"""A duplicate repeats one of at most this many earlier events."""
LATE_MS = (60_000, 3 * 86_400_000)
"""Delay of a late event: from a minute to three days, short delays more often."""


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
    """`count` events (endless without a count), including the faulty ones.

    The same arguments give the same bytes. Event times begin at `start` and advance at `pace` events per second; a late
    event is a minute to three days before its place, and a duplicate repeats an earlier valid or late event.
    """
    if count is not None and count < 0:
        raise UsageError(f"a count cannot be negative: {count}", hint="write for example 10000")
    if not pace > 0:
        raise UsageError(f"a pace is more than 0 events per second, not {pace:.6g}", hint="write for example 100/s")
    event_kind = find_kind(kind)
    start_ms = to_ms(start)
    setting = EventSetting(rng=Random(f"{seed}/{kind}"), population=populate(seed), start=start_ms, pace=pace)
    fault_rng, clock_rng = Random(f"{seed}/{kind}/faults"), Random(f"{seed}/{kind}/clock")
    return _mix_faults(event_kind, setting, count, faults, fault_rng, clock_rng)


def find_kind(name: str) -> EventKind:
    if name in KINDS:
        return KINDS[name]
    raise UsageError(f"there is no kind of event called {quote_value(name)}", hint=did_you_mean(name, list(KINDS)))


def _mix_faults(
    kind: EventKind, setting: EventSetting, count: int | None, faults: Faults, fault_rng: Random, clock_rng: Random
) -> Iterator[Event]:
    render, inject_fault, jitter = kind.stream(setting), make_fault_injector(kind, fault_rng), clock_rng.random
    start_ms, step_ms = setting.start, 1000 / setting.pace
    earlier: list[Event] = []
    for first in range(0, count, BLOCK) if count is not None else itertools.count(0, BLOCK):
        size = BLOCK if count is None else min(BLOCK, count - first)
        planned_faults = _plan_block(first, size, faults, fault_rng)
        for number in range(first, first + size):
            # Jitter stays within one step: arrivals look irregular, yet the stream never drifts from its pace.
            time_ms = start_ms + int((number + jitter()) * step_ms)
            fault = planned_faults.get(number)
            if fault == DUPLICATE and earlier:
                yield fault_rng.choice(earlier)._replace(label=DUPLICATE)
                continue
            if fault == MALFORMED:
                yield inject_fault(render(time_ms))
                continue
            event = (
                render(time_ms - _random_delay(fault_rng))._replace(label=LATE) if fault == LATE else render(time_ms)
            )
            if faults.duplicates:
                if len(earlier) < REMEMBERED:
                    earlier.append(event)
                else:
                    earlier[number % REMEMBERED] = event
            yield event


def _plan_block(first: int, size: int, faults: Faults, rng: Random) -> dict[int, str]:
    """The faults of the events first..first+size-1. Rounded over the whole stream, so that no share drifts."""
    labels: list[str] = []
    for label, share in ((MALFORMED, faults.malformed), (LATE, faults.late), (DUPLICATE, faults.duplicates)):
        labels += [label] * (round((first + size) * share) - round(first * share))
    numbers_of_faults = rng.sample(range(first, first + size), min(size, len(labels)))
    return dict(zip(numbers_of_faults, labels, strict=False))


def _random_delay(rng: Random) -> int:
    shortest, longest = LATE_MS
    return int(shortest * (longest / shortest) ** rng.random())


# Counts, rates, shares and times as written on a command line. Invalid text raises UsageError.


_NUMBER = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
_PER = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_SHARE_HINT = "write a percentage from 0% to 100%, for example 1% or 0.5%"
_COUNT_HINT = "write a whole number, for example 10000, 50k or 2M"
_RATE_HINT = "write events per time, for example 500/s, 20k/s or 90/min"

T = TypeVar("T")


def share(text: str, option: str) -> float:
    """'1%' -> 0.01."""
    number, percent_sign, rest = text.strip().partition("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    # Without the sign, 1 could mean 1% or all.
    if not percent_sign or rest or not 0 <= percent <= 100:
        raise UsageError(f"{option} {quote_value(text)} is not a share", hint=_SHARE_HINT)
    return percent / 100


def count(text: str, option: str) -> int:
    """'50k' -> 50000."""
    number = _parse_number(text)
    if number is None or number < 1 or number != int(number):
        raise UsageError(f"{option} {quote_value(text)} is not a number of events", hint=_COUNT_HINT)
    return int(number)


def rate(text: str, option: str) -> float:
    """'20k/s' -> 20000.0 events per second; without a unit of time it is per second."""
    amount, slash, per = (part.strip() for part in text.partition("/"))
    number = _parse_number(amount)
    if number is None or number <= 0 or (slash and per.casefold() not in _PER):
        raise UsageError(f"{option} {quote_value(text)} is not a rate", hint=_RATE_HINT)
    return number / (_PER[per.casefold()] if slash else 1)


def duration(text: str, option: str) -> float:
    """'1m' -> 60.0 seconds; always more than zero."""
    length = _read_option(seconds, text, option)
    if length <= 0:
        raise UsageError(
            f"{option} {quote_value(text)}: expected a duration above zero", hint="write for example 30s or 5m"
        )
    return length


def moment(text: str, option: str) -> datetime:
    return _read_option(instant, text, option)


def _parse_number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    return float(re.sub("[_,]", "", match[1])) * _THOUSANDS[match[2].casefold()] if match else None


def _read_option(reader: Callable[[object], T], text: str, option: str) -> T:
    try:
        return reader(text)
    except FindingsError as error:
        finding = error.findings[0]
        raise UsageError(f"{option}: {finding.message}", hint=finding.hint) from None
