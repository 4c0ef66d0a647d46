"""Card transactions, keyed by the customer, with what a fraud rule looks for planted in known shares.

An ordinary amount stays under OVER_AVERAGE times the customer's average. About one in 140 goes over it, customers with
a risk above 0.8 pay like everybody else, and young accounts now and then pay more than 1,000.
"""

from __future__ import annotations

from random import Random

from penstock.dev.generate.event import Event, Kind, Render, Setting, headers_of
from penstock.dev.generate.population import DRAW_BITS, quoted
from penstock.dev.generate.timestamps import DAY_MS, iso

OVER_AVERAGE = 5
YOUNG_DAYS, YOUNG_LIMIT_CENTS = 30, 100_000
_FACTOR_BITS = 12
_MERCHANTS = tuple(
    f'"merchant":{quoted(name)},"merchant_category":"{category}","channel":"{channel}",'
    for name, category, channel in (
        ("Corner Grocery", "grocery", "pos"),
        ("Harbour Fuel", "fuel", "pos"),
        ("Bücher & Mehr", "books", "online"),
        ("Night Owl Café", "restaurant", "pos"),
        ("Blue Line Rail", "travel", "online"),
        ("Northwind Air", "travel", "online"),
        ("Pixel Depot", "electronics", "online"),
        ("Old Town Pharmacy", "health", "pos"),
        ("Gold & Sons", "jewellery", "pos"),
        ("Cash Point 17", "cash", "atm"),
        ("Lucky Clover", "gambling", "online"),
        ("Stream Box", "subscription", "online"),
        ("Green Thumb", "garden", "pos"),
        ("Sprint Sports", "sports", "pos"),
        ("Casa Verde", "restaurant", "pos"),
        ("Parcel Direct", "services", "online"),
    )
)


def _stream(setting: Setting) -> Render:
    rng, people = setting.rng, setting.people
    draw, by_popularity, headers = rng.getrandbits, people.by_popularity, headers_of("transactions")
    factors = _factors(rng)
    payers = [
        (
            f'"customer_id":{someone.customer_id},',
            f'"currency":"{someone.currency}","country":"{someone.country}","risk_score":{someone.risk_score:.2f},'
            '"account_age_days":',
            someone.account_age_days,
            someone.average_cents,
            b"%d" % someone.customer_id,
        )
        for someone in people.customers
    ]
    start, number = setting.start, 0

    def render(at: int) -> Event:
        nonlocal number
        number += 1
        payer, rest, age_at_start, average, key = payers[by_popularity[draw(DRAW_BITS)]]
        age = max(0, age_at_start + (at - start) // DAY_MS)
        bits = draw(_FACTOR_BITS + 8)
        cents = int(average * factors[bits >> 8]) + 1
        if age < YOUNG_DAYS and not bits & 0xF0:
            cents = YOUNG_LIMIT_CENTS + 1 + draw(16)
        value = (
            f'{{"transaction_id":"T{number:010d}",{payer}"amount":{cents / 100:.2f},{rest}{age},'
            f'{_MERCHANTS[bits & 15]}"transaction_ts":"{iso(at)}"}}'
        )
        return Event(key, value.encode(), headers, at)

    return render


def _factors(rng: Random) -> tuple[float, ...]:
    """Multiples of the customer's average: most near one, one in 140 far over the limit."""
    far = tuple(rng.uniform(OVER_AVERAGE + 0.5, 20) for _ in range((1 << _FACTOR_BITS) // 140))
    near = tuple(
        min(OVER_AVERAGE - 0.5, rng.lognormvariate(-0.15, 0.55)) for _ in range((1 << _FACTOR_BITS) - len(far))
    )
    return far + near


TRANSACTIONS = Kind(
    name="transactions",
    about="card transactions with risk scores and account ages, some suspicious",
    id_field="transaction_id",
    wrong_types={"amount": "a lot", "risk_score": "high", "account_age_days": [], "transaction_ts": "noon"},
    stream=_stream,
)
