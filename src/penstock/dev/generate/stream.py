"""Events of a kind as a stream: the good ones in time, with late, duplicate and malformed ones mixed in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import count as numbers
from random import Random

from penstock.dev.generate.clicks import CLICKS
from penstock.dev.generate.customers import CUSTOMERS
from penstock.dev.generate.event import DUPLICATE, LATE, MALFORMED, Event, Kind, Setting
from penstock.dev.generate.malformed import spoiler
from penstock.dev.generate.orders import ORDERS
from penstock.dev.generate.population import populate
from penstock.dev.generate.sensors import SENSORS
from penstock.dev.generate.timestamps import to_ms
from penstock.dev.generate.transactions import TRANSACTIONS
from penstock.errors import UsageError
from penstock.spec.finding import did_you_mean, shown

KINDS: dict[str, Kind] = {kind.name: kind for kind in (ORDERS, CLICKS, TRANSACTIONS, CUSTOMERS, SENSORS)}
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
    setting = Setting(rng=Random(f"{seed}/{kind}"), people=populate(seed), start=begin, pace=pace)
    faulty, clock = Random(f"{seed}/{kind}/faults"), Random(f"{seed}/{kind}/clock")
    return _mixed(chosen, setting, count, faults, faulty, clock)


def find_kind(name: str) -> Kind:
    if name in KINDS:
        return KINDS[name]
    raise UsageError(f"there is no kind of event called {shown(name)}", hint=did_you_mean(name, list(KINDS)))


def _mixed(
    kind: Kind, setting: Setting, count: int | None, faults: Faults, faulty: Random, clock: Random
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
