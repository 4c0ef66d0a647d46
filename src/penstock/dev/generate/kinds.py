"""The kinds of events: orders, clicks, changes of customers, sensor readings, card transactions."""

from __future__ import annotations

from itertools import count, cycle
from random import Random

from penstock.dev.generate.event import (
    DAY_MS,
    DRAW_BITS,
    Customer,
    Event,
    EventKind,
    EventSetting,
    Render,
    headers_of,
    iso,
    quoted,
)

# Orders of a shop: one product each, two-digit amounts, keyed by the order.


_STATUSES = ("placed",) * 5 + ("paid",) * 8 + ("shipped",) * 2 + ("cancelled",)
_QUANTITIES = (1,) * 10 + (2,) * 3 + (3, 4, 6)
FIRST_ORDER = 1_000_000


def _orders(setting: EventSetting) -> Render:
    people, draw = setting.population, setting.rng.getrandbits
    buyers = [
        f'"customer_id":{customer.customer_id},"country":"{customer.country}","region":"{customer.region}",'
        for customer in people.customers
    ]
    product_parts = [
        (
            f'"product_id":"{product.product_id}","product_name":{quoted(product.name)},'
            f'"product_category":"{product.category}",',
            f'"unit_price":{product.cents / 100:.2f},"amount":',
            product.cents,
        )
        for product in people.products
    ]
    by_popularity, by_sales, headers = people.by_popularity, people.by_sales, headers_of("orders")
    order_ids = count(FIRST_ORDER + 1)

    def render(time_ms: int) -> Event:
        order_id = next(order_ids)
        buyer = buyers[by_popularity[draw(DRAW_BITS)]]
        product, price, cents = product_parts[by_sales[draw(DRAW_BITS)]]
        bits = draw(8)
        quantity = _QUANTITIES[bits & 15]
        value = (
            f'{{"order_id":{order_id},{buyer}{product}"quantity":{quantity},{price}{cents * quantity / 100:.2f},'
            f'"currency":"EUR","status":"{_STATUSES[bits >> 4]}","order_ts":"{iso(time_ms)}"}}'
        )
        return Event(b"%d" % order_id, value.encode(), headers, time_ms)

    return render


ORDERS = EventKind(
    name="orders",
    description="orders of a shop: product, category, quantity, amount",
    id_field="order_id",
    wrong_types={"amount": "twelve", "order_id": {"id": 1}, "quantity": [], "order_ts": "yesterday"},
    stream=_orders,
)


# Clicks on a web shop: visitors view several pages, some buy; keyed by the visitor.


_REFERRERS = ("search", "direct", "direct", "newsletter", "social", "search", "partner", "search")
_DEVICES = ("mobile", "mobile", "mobile", "desktop", "desktop", "tablet", "mobile", "desktop")
_HOME = '"event_type":"view","page":"/","product_id":null,"product_category":null,'
_VIEW = '"event_type":"view",'
_CART = '"event_type":"add_to_cart","page":"/cart",'
_PURCHASE = '"event_type":"purchase","page":"/checkout",'
_BUYING = [_PURCHASE, _CART]
SECONDS_BETWEEN_CLICKS = 15
"""About how long a visitor stays on a page; with the pace it gives the number of sessions at the same time."""
FEWEST_SESSIONS, MOST_SESSIONS = 8, 2_000


class _Session:
    """One visit: its constant fields, the product viewed last, and the steps that are left."""

    __slots__ = ("head", "key", "product", "steps", "tail")

    def __init__(self, key: bytes, head: str, tail: str, steps: list[str]) -> None:
        self.key, self.head, self.tail = key, head, tail
        self.steps = steps
        """The steps that are left, last first."""
        self.product = 0


def _clicks(setting: EventSetting) -> Render:
    rng, people = setting.rng, setting.population
    draw, by_popularity, by_sales = rng.getrandbits, people.by_popularity, people.by_sales
    headers = headers_of("clicks")
    product_parts = [
        f'"product_id":"{product.product_id}","product_category":"{product.category}",' for product in people.products
    ]
    page_parts = [
        f'"page":"/product/{product.product_id}",{product_fields}'
        for product, product_fields in zip(people.products, product_parts, strict=True)
    ]
    prices = [f"{product.cents / 100:.2f}" for product in people.products]
    session_count = round(min(MOST_SESSIONS, max(FEWEST_SESSIONS, setting.pace * SECONDS_BETWEEN_CLICKS)))
    session_numbers, click_numbers = count(1), count(1)

    def arrive() -> _Session:
        visitor = people.customers[by_popularity[draw(DRAW_BITS)]]
        bits = draw(6)
        return _Session(
            key=b"%d" % visitor.customer_id,
            head=f'"session_id":"S{next(session_numbers):09d}","user_id":{visitor.customer_id},',
            tail=f'"referrer":"{_REFERRERS[bits & 7]}","device":"{_DEVICES[bits >> 3]}","country":"{visitor.country}",',
            steps=_BUYING * (draw(3) == 0) + [_VIEW] * int(1 + rng.expovariate(1 / 4)) + [_HOME],
        )

    sessions = [arrive() for _ in range(session_count)]

    def render(time_ms: int) -> Event:
        session_index = int(rng.random() * session_count)
        session = sessions[session_index]
        step = session.steps.pop()
        if not session.steps:
            sessions[session_index] = arrive()
        revenue = "0.00"
        if step == _VIEW:
            session.product = by_sales[draw(DRAW_BITS)]
            step += page_parts[session.product]
        elif step != _HOME:
            step += product_parts[session.product]
            if step.startswith(_PURCHASE):
                revenue = prices[session.product]
        value = (
            f'{{"event_id":"E{next(click_numbers):010d}",{session.head}{step}{session.tail}'
            f'"revenue":{revenue},"event_timestamp":"{iso(time_ms)}"}}'
        )
        return Event(session.key, value.encode(), headers, time_ms)

    return render


CLICKS = EventKind(
    name="clicks",
    description="page views and purchases of a web shop, in sessions",
    id_field="user_id",
    wrong_types={"user_id": "anonymous", "revenue": "free", "event_timestamp": "just now"},
    stream=_clicks,
)


# Changes of a customer table as change data capture sends them: op, before, after, keyed by the customer.
#
# A customer's first change is a create; updates and deletes follow, and a deleted customer may be created again. Within
# a customer `updated_at` strictly increases from change to change and `before` is the last `after`; this is also true
# of late changes.


_TIERS = ("bronze", "bronze", "silver", "gold")
CREATES, DELETES = 128, 12
"""Out of 256 changes: creates, while there are customers left to create, and deletes. The rest are updates."""


class _CustomerRow:
    """A row of the customer table: `image` is its JSON, None once it is deleted."""

    __slots__ = ("changed_at", "fixed", "image", "key")

    def __init__(self, customer: Customer) -> None:
        self.key = b"%d" % customer.customer_id
        self.fixed = (
            f'{{"customer_id":{customer.customer_id},"name":{quoted(customer.name)},'
            f'"country":"{customer.country}","region":"{customer.region}","risk_score":{customer.risk_score:.2f},'
            f'"account_age_days":{customer.account_age_days},'
            f'"avg_transaction_amount":{customer.average_cents / 100:.2f},'
        )
        self.image: str | None = None
        self.changed_at = -1


def _customers(setting: EventSetting) -> Render:
    draw, by_popularity, headers = setting.rng.getrandbits, setting.population.by_popularity, headers_of("customers")
    not_created = [_CustomerRow(customer) for customer in reversed(setting.population.customers)]
    rows: list[_CustomerRow] = []
    sequences = count(1)

    def choose(time_ms: int, roll: int) -> _CustomerRow:
        """A row that may change at this time: a new one, or one whose last change is earlier."""
        if rows and (roll >= CREATES or not not_created):
            row = rows[by_popularity[draw(DRAW_BITS)] % len(rows)]
            if row.changed_at < time_ms or not not_created:
                return row
        rows.append(not_created.pop())
        return rows[-1]

    def render(time_ms: int) -> Event:
        roll = draw(8)
        row = choose(time_ms, roll)
        row.changed_at = time_ms = max(time_ms, row.changed_at + 1)
        before = row.image
        stamp = iso(time_ms)
        if before is not None and roll >= 256 - DELETES:
            row.image = None
        else:
            bits = draw(12)
            row.image = (
                f'{row.fixed}"email":"customer{row.key.decode()}+{bits & 255}@example.com",'
                f'"tier":"{_TIERS[bits >> 10]}","newsletter":{"true" if bits & 256 else "false"},'
                f'"updated_at":"{stamp}"}}'
            )
        op = "c" if before is None else "d" if row.image is None else "u"
        value = (
            f'{{"op":"{op}","customer_id":{row.key.decode()},"before":{before or "null"},"after":{row.image or "null"},'
            f'"sequence":{next(sequences)},"updated_at":"{stamp}"}}'
        )
        return Event(row.key, value.encode(), headers, time_ms)

    return render


CUSTOMERS = EventKind(
    name="customers",
    description="changes of a customer table: op c, u or d, with before and after",
    id_field="customer_id",
    wrong_types={"customer_id": "unknown", "after": "gone", "sequence": "next", "updated_at": "last week"},
    stream=_customers,
)


# Readings of sensors on several sites, keyed by the sensor. One site has a newer firmware, with an extra field.


_SITES = ("Aalborg", "Brno", "Cádiz", "Dijon", "Enschede")
_FIRMWARE = {"Enschede": '"firmware":"2.4.1",'}
SENSOR_BITS = 9


def _readings(setting: EventSetting) -> Render:
    rng, headers = setting.rng, headers_of("sensors")
    draw, chance = rng.getrandbits, rng.random
    sensors = [
        (f'{{"sensor_id":"sensor-{number:04d}","site":"{site}",{_FIRMWARE.get(site, "")}', b"sensor-%04d" % number)
        for number, site in zip(range(1 << SENSOR_BITS), cycle(_SITES), strict=False)
    ]
    temperature = [rng.uniform(12, 28) for _ in sensors]
    humidity = [rng.uniform(30, 70) for _ in sensors]
    battery = [rng.uniform(20, 100) for _ in sensors]
    reading_ids = count(1)

    def render(time_ms: int) -> Event:
        reading_id = next(reading_ids)
        sensor = draw(SENSOR_BITS)
        head, key = sensors[sensor]
        # Pulled towards a middle, so that a long run stays within realistic values.
        temperature[sensor] += (chance() - 0.5) + (20 - temperature[sensor]) * 0.02
        humidity[sensor] += (chance() - 0.5) * 2 + (50 - humidity[sensor]) * 0.02
        battery[sensor] = battery[sensor] - 0.01 if battery[sensor] > 1 else 100.0
        value = (
            f'{head}"reading_id":{reading_id},"temperature_c":{temperature[sensor]:.2f},'
            f'"humidity_pct":{humidity[sensor]:.1f},"battery_pct":{battery[sensor]:.1f},"reading_ts":"{iso(time_ms)}"}}'
        )
        return Event(key, value.encode(), headers, time_ms)

    return render


SENSORS = EventKind(
    name="sensors",
    description="temperature, humidity and battery of sensors on several sites",
    id_field="sensor_id",
    wrong_types={"temperature_c": "hot", "humidity_pct": {}, "battery_pct": [], "reading_ts": "noon"},
    stream=_readings,
)


# Card transactions, keyed by the customer; the patterns that fraud rules look for are planted in known shares.
#
# An ordinary amount stays under OVER_AVERAGE times the customer's average. About one in 140 exceeds it, customers with
# a risk above 0.8 pay like everybody else, and young accounts sometimes pay more than 1,000.


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


def _transactions(setting: EventSetting) -> Render:
    rng, people = setting.rng, setting.population
    draw, by_popularity, headers = rng.getrandbits, people.by_popularity, headers_of("transactions")
    factors = _factors(rng)
    payers = [
        (
            f'"customer_id":{customer.customer_id},',
            f'"currency":"{customer.currency}","country":"{customer.country}","risk_score":{customer.risk_score:.2f},'
            '"account_age_days":',
            customer.account_age_days,
            customer.average_cents,
            b"%d" % customer.customer_id,
        )
        for customer in people.customers
    ]
    start, numbers = setting.start, count(1)

    def render(time_ms: int) -> Event:
        payer, account, age_at_start, average, key = payers[by_popularity[draw(DRAW_BITS)]]
        age = max(0, age_at_start + (time_ms - start) // DAY_MS)
        bits = draw(_FACTOR_BITS + 8)
        cents = int(average * factors[bits >> 8]) + 1
        if age < YOUNG_DAYS and not bits & 0xF0:
            cents = YOUNG_LIMIT_CENTS + 1 + draw(16)
        value = (
            f'{{"transaction_id":"T{next(numbers):010d}",{payer}"amount":{cents / 100:.2f},{account}{age},'
            f'{_MERCHANTS[bits & 15]}"transaction_ts":"{iso(time_ms)}"}}'
        )
        return Event(key, value.encode(), headers, time_ms)

    return render


def _factors(rng: Random) -> tuple[float, ...]:
    """Multiples of the customer's average: most near one, one in 140 far over the limit."""
    far = tuple(rng.uniform(OVER_AVERAGE + 0.5, 20) for _ in range((1 << _FACTOR_BITS) // 140))
    near = tuple(
        min(OVER_AVERAGE - 0.5, rng.lognormvariate(-0.15, 0.55)) for _ in range((1 << _FACTOR_BITS) - len(far))
    )
    return far + near


TRANSACTIONS = EventKind(
    name="transactions",
    description="card transactions with risk scores and account ages, some suspicious",
    id_field="transaction_id",
    wrong_types={"amount": "a lot", "risk_score": "high", "account_age_days": [], "transaction_ts": "noon"},
    stream=_transactions,
)
