"""What events are made of: the customers and products behind every kind, ISO timestamps, the event, its kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate
from random import Random
from typing import NamedTuple

# The customers and products behind every kind of event.
#
# One seed gives one population for all kinds: the customers of a transaction are those of the customer changes, so that
# joins find their rows. Some customers occur far more often than others, as in reality.


CUSTOMERS = 5_000
DRAW_BITS = 16
"""A draw from a skewed table is one getrandbits: a weighted choice per event would halve the rate."""

_FIRST = (
    "Amélie", "Ben", "Chloé", "Darius", "Elif", "Femke", "Gustavo", "Hana", "Imran", "Jürgen", "Kwame", "Łucja",
    "María", "Nadia", "Olu", "Priya", "Quentin", "Rosa", "Søren", "Tomás", "Uma", "Víctor", "Wen", "Ximena",
    "Yusuf", "Zoë",
)  # fmt: skip
_LAST = (
    "Abe", "Bianchi", "Chen", "Dubois", "Eriksen", "Fernández", "García", "Haddad", "Ivanova", "Jansen",
    "Kowalska", "Lindqvist", "Müller", "Nguyen", "O'Brien", "Okafor", "Patel", "Rossi", "Silva", "Tanaka",
    "Usman", "Vargas", "Weber", "Yılmaz", "Zając",
)  # fmt: skip
_PLACES = (
    ("DE", "Central", "EUR"),
    ("FR", "West", "EUR"),
    ("GB", "West", "GBP"),
    ("NL", "West", "EUR"),
    ("PL", "East", "PLN"),
    ("SE", "North", "SEK"),
    ("ES", "South", "EUR"),
    ("IT", "South", "EUR"),
)
_CATEGORIES = {
    "Books": (6, 60, ("Field guide", "Cookbook", "Atlas", 'Poems, "collected"', "Grammar")),
    "Electronics": (15, 1600, ("Headphones", '27" monitor', "Keyboard", "Phone", "Router")),
    "Garden": (4, 320, ("Spade", "Seed mix", "Hose", "Bench", "Planter")),
    "Grocery": (1, 45, ("Olive oil", "Coffee beans", "Crème fraîche", "Pasta", "Tea")),
    "Home": (5, 450, ("Lamp", "Blanket", "Shelf", "Mirror", "Kettle")),
    "Sports": (8, 700, ("Running shoes", "Tent", "Yoga mat", "Bicycle pump", "Skis")),
    "Toys": (3, 120, ("Puzzle", "Building blocks", "Kite", "Plush bear", "Train set")),
}
PRODUCTS_PER_NAME = 6


@dataclass(frozen=True)
class Customer:
    customer_id: int
    name: str
    country: str
    region: str
    currency: str
    risk_score: float
    """0 to 1 with two digits; above 0.8 for about one customer in seventy."""
    account_age_days: int
    """On the first day of the stream; under 30 for about one in twelve."""
    average_cents: int
    """What this customer usually pays in a card transaction."""


@dataclass(frozen=True)
class Product:
    product_id: str
    name: str
    category: str
    cents: int


@dataclass(frozen=True)
class Population:
    customers: tuple[Customer, ...]
    products: tuple[Product, ...]
    by_popularity: tuple[int, ...]
    """2**DRAW_BITS positions in `customers`, to be indexed with getrandbits(DRAW_BITS)."""
    by_sales: tuple[int, ...]
    """The same for `products`."""


@lru_cache(maxsize=4)
def populate(seed: int) -> Population:
    rng = Random(f"{seed}/population")
    customers = tuple(_customer(rng, number) for number in range(CUSTOMERS))
    products = tuple(_products(rng))
    return Population(customers, products, _skewed(rng, CUSTOMERS, 0.9), _skewed(rng, len(products), 0.7))


def quoted(text: str) -> str:
    """A JSON string, for the templates of the kinds."""
    return json.dumps(text, ensure_ascii=False)


def _customer(rng: Random, number: int) -> Customer:
    first, last = rng.choice(_FIRST), rng.choice(_LAST)
    country, region, currency = rng.choice(_PLACES)
    risk = 0.81 + 0.18 * rng.random() if rng.random() < 1 / 70 else min(0.79, rng.betavariate(2, 9))
    age = rng.randrange(30) if rng.random() < 1 / 12 else rng.randrange(30, 3000)
    return Customer(
        customer_id=100_001 + number,
        name=f"{first} {last}",
        country=country,
        region=region,
        currency=currency,
        risk_score=round(risk, 2),
        account_age_days=age,
        average_cents=round(100 * min(900.0, rng.lognormvariate(4.0, 0.7))),
    )


def _products(rng: Random) -> list[Product]:
    products: list[Product] = []
    for category, (low, high, names) in _CATEGORIES.items():
        for name in names:
            for model in range(1, PRODUCTS_PER_NAME + 1):
                price = low * (high / low) ** rng.random()
                products.append(Product(f"P-{len(products) + 1:04d}", f"{name} {model}", category, round(price * 100)))
    return products


def _skewed(rng: Random, size: int, exponent: float) -> tuple[int, ...]:
    """Rank r is drawn about 1/r**exponent as often as the first; the ranks are assigned at random."""
    ranked = list(range(size))
    rng.shuffle(ranked)
    shares = list(accumulate(1 / rank**exponent for rank in range(1, size + 1)))
    slots = 1 << DRAW_BITS
    table: list[int] = []
    for member, share in zip(ranked, shares, strict=True):
        table += [member] * (round(slots * share / shares[-1]) - len(table))
    return tuple(table)


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
