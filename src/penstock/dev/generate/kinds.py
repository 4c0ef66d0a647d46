"""The kinds of events: orders, clicks, changes of customers, sensor readings, card transactions."""

from __future__ import annotations

from itertools import cycle
from random import Random

from penstock.dev.generate.event import DAY_MS, Event, EventKind, EventSetting, Render, headers_of, iso
from penstock.dev.generate.population import DRAW_BITS, Customer, quoted

# Orders of a shop: one product each, two-digit amounts, keyed by the order.


_STATUSES = ("placed",) * 5 + ("paid",) * 8 + ("shipped",) * 2 + ("cancelled",)
_QUANTITIES = (1,) * 10 + (2,) * 3 + (3, 4, 6)
FIRST_ORDER = 1_000_000


def _orders(setting: EventSetting) -> Render:
    people, draw = setting.people, setting.rng.getrandbits
    buyers = [
        f'"customer_id":{someone.customer_id},"country":"{someone.country}","region":"{someone.region}",'
        for someone in people.customers
    ]
    goods = [
        (
            f'"product_id":"{product.product_id}","product_name":{quoted(product.name)},'
            f'"product_category":"{product.category}",',
            f'"unit_price":{product.cents / 100:.2f},"amount":',
            product.cents,
        )
        for product in people.products
    ]
    by_popularity, by_sales, headers = people.by_popularity, people.by_sales, headers_of("orders")
    order_id = FIRST_ORDER

    def render(at: int) -> Event:
        nonlocal order_id
        order_id += 1
        buyer = buyers[by_popularity[draw(DRAW_BITS)]]
        product, price, cents = goods[by_sales[draw(DRAW_BITS)]]
        bits = draw(8)
        quantity = _QUANTITIES[bits & 15]
        value = (
            f'{{"order_id":{order_id},{buyer}{product}"quantity":{quantity},{price}{cents * quantity / 100:.2f},'
            f'"currency":"EUR","status":"{_STATUSES[bits >> 4]}","order_ts":"{iso(at)}"}}'
        )
        return Event(b"%d" % order_id, value.encode(), headers, at)

    return render


ORDERS = EventKind(
    name="orders",
    about="orders of a shop: product, category, quantity, amount",
    id_field="order_id",
    wrong_types={"amount": "twelve", "order_id": {"id": 1}, "quantity": [], "order_ts": "yesterday"},
    stream=_orders,
)


# Clicks on a web shop: visitors come, look at several pages, some buy; keyed by the visitor.


_REFERRERS = ("search", "direct", "direct", "newsletter", "social", "search", "partner", "search")
_DEVICES = ("mobile", "mobile", "mobile", "desktop", "desktop", "tablet", "mobile", "desktop")
_HOME = '"event_type":"view","page":"/","product_id":null,"product_category":null,'
_VIEW = '"event_type":"view",'
_CART = '"event_type":"add_to_cart","page":"/cart",'
_PURCHASE = '"event_type":"purchase","page":"/checkout",'
_BUYING = [_PURCHASE, _CART]
SECONDS_BETWEEN_CLICKS = 15
"""About how long a visitor stays on a page: with the pace it says how many sessions go on at once."""
FEWEST_SESSIONS, MOST_SESSIONS = 8, 2_000


class _Session:
    """One visit: what stays the same in it, what was looked at last, and what is still to come."""

    __slots__ = ("head", "key", "product", "steps", "tail")

    def __init__(self, key: bytes, head: str, tail: str, steps: list[str]) -> None:
        self.key, self.head, self.tail = key, head, tail
        self.steps = steps
        """What is still to come, last first."""
        self.product = 0


def _clicks(setting: EventSetting) -> Render:
    rng, people = setting.rng, setting.people
    draw, by_popularity, by_sales = rng.getrandbits, people.by_popularity, people.by_sales
    headers = headers_of("clicks")
    goods = [
        f'"product_id":"{product.product_id}","product_category":"{product.category}",' for product in people.products
    ]
    pages = [
        f'"page":"/product/{product.product_id}",{about}' for product, about in zip(people.products, goods, strict=True)
    ]
    prices = [f"{product.cents / 100:.2f}" for product in people.products]
    at_once = round(min(MOST_SESSIONS, max(FEWEST_SESSIONS, setting.pace * SECONDS_BETWEEN_CLICKS)))
    started = clicked = 0

    def arrive() -> _Session:
        nonlocal started
        started += 1
        visitor = people.customers[by_popularity[draw(DRAW_BITS)]]
        bits = draw(6)
        return _Session(
            key=b"%d" % visitor.customer_id,
            head=f'"session_id":"S{started:09d}","user_id":{visitor.customer_id},',
            tail=f'"referrer":"{_REFERRERS[bits & 7]}","device":"{_DEVICES[bits >> 3]}","country":"{visitor.country}",',
            steps=_BUYING * (draw(3) == 0) + [_VIEW] * int(1 + rng.expovariate(1 / 4)) + [_HOME],
        )

    sessions = [arrive() for _ in range(at_once)]

    def render(at: int) -> Event:
        nonlocal clicked
        clicked += 1
        place = int(rng.random() * at_once)
        session = sessions[place]
        step = session.steps.pop()
        if not session.steps:
            sessions[place] = arrive()
        revenue = "0.00"
        if step == _VIEW:
            session.product = by_sales[draw(DRAW_BITS)]
            step += pages[session.product]
        elif step != _HOME:
            step += goods[session.product]
            if step.startswith(_PURCHASE):
                revenue = prices[session.product]
        value = (
            f'{{"event_id":"E{clicked:010d}",{session.head}{step}{session.tail}'
            f'"revenue":{revenue},"event_timestamp":"{iso(at)}"}}'
        )
        return Event(session.key, value.encode(), headers, at)

    return render


CLICKS = EventKind(
    name="clicks",
    about="page views and purchases of a web shop, in sessions",
    id_field="user_id",
    wrong_types={"user_id": "anonymous", "revenue": "free", "event_timestamp": "just now"},
    stream=_clicks,
)


# Changes of a customer table as change data capture sends them: op, before, after, keyed by the customer.
#
# A customer's first change is a create; updates and deletes follow, and a deleted one may come back. Within a
# customer `updated_at` rises strictly from change to change and `before` is the last `after`; late changes hold to
# that as well.


_TIERS = ("bronze", "bronze", "silver", "gold")
CREATES, DELETES = 128, 12
"""Of 256 changes: creates while there are customers left to create, and deletes. The rest are updates."""


class _CustomerRow:
    """A customer as the table holds it: `image` is its JSON, None once deleted."""

    __slots__ = ("changed_at", "fixed", "image", "key")

    def __init__(self, someone: Customer) -> None:
        self.key = b"%d" % someone.customer_id
        self.fixed = (
            f'{{"customer_id":{someone.customer_id},"name":{quoted(someone.name)},'
            f'"country":"{someone.country}","region":"{someone.region}","risk_score":{someone.risk_score:.2f},'
            f'"account_age_days":{someone.account_age_days},'
            f'"avg_transaction_amount":{someone.average_cents / 100:.2f},'
        )
        self.image: str | None = None
        self.changed_at = -1


def _customers(setting: EventSetting) -> Render:
    draw, by_popularity, headers = setting.rng.getrandbits, setting.people.by_popularity, headers_of("customers")
    waiting = [_CustomerRow(someone) for someone in reversed(setting.people.customers)]
    rows: list[_CustomerRow] = []
    sequence = 0

    def choose(at: int, dice: int) -> _CustomerRow:
        """A row that may change at this time: a new one, or one whose last change lies before."""
        if rows and (dice >= CREATES or not waiting):
            row = rows[by_popularity[draw(DRAW_BITS)] % len(rows)]
            if row.changed_at < at or not waiting:
                return row
        rows.append(waiting.pop())
        return rows[-1]

    def render(at: int) -> Event:
        nonlocal sequence
        sequence += 1
        dice = draw(8)
        row = choose(at, dice)
        row.changed_at = at = max(at, row.changed_at + 1)
        before = row.image
        stamp = iso(at)
        if before is not None and dice >= 256 - DELETES:
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
            f'"sequence":{sequence},"updated_at":"{stamp}"}}'
        )
        return Event(row.key, value.encode(), headers, at)

    return render


CUSTOMERS = EventKind(
    name="customers",
    about="changes of a customer table: op c, u or d, with before and after",
    id_field="customer_id",
    wrong_types={"customer_id": "unknown", "after": "gone", "sequence": "next", "updated_at": "last week"},
    stream=_customers,
)


# Readings of sensors on several sites, keyed by the sensor. One site has a newer firmware, with a field more.


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
    reading = 0

    def render(at: int) -> Event:
        nonlocal reading
        reading += 1
        which = draw(SENSOR_BITS)
        head, key = sensors[which]
        # Drawn to a middle, so that a long run stays within what a thermometer shows.
        temperature[which] += (chance() - 0.5) + (20 - temperature[which]) * 0.02
        humidity[which] += (chance() - 0.5) * 2 + (50 - humidity[which]) * 0.02
        battery[which] = battery[which] - 0.01 if battery[which] > 1 else 100.0
        value = (
            f'{head}"reading_id":{reading},"temperature_c":{temperature[which]:.2f},'
            f'"humidity_pct":{humidity[which]:.1f},"battery_pct":{battery[which]:.1f},"reading_ts":"{iso(at)}"}}'
        )
        return Event(key, value.encode(), headers, at)

    return render


SENSORS = EventKind(
    name="sensors",
    about="temperature, humidity and battery of sensors on several sites",
    id_field="sensor_id",
    wrong_types={"temperature_c": "hot", "humidity_pct": {}, "battery_pct": [], "reading_ts": "noon"},
    stream=_readings,
)


# Card transactions, keyed by the customer, with what a fraud rule looks for planted in known shares.
#
# An ordinary amount stays under OVER_AVERAGE times the customer's average. About one in 140 goes over it, customers
# with a risk above 0.8 pay like everybody else, and young accounts now and then pay more than 1,000.


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


TRANSACTIONS = EventKind(
    name="transactions",
    about="card transactions with risk scores and account ages, some suspicious",
    id_field="transaction_id",
    wrong_types={"amount": "a lot", "risk_score": "high", "account_age_days": [], "transaction_ts": "noon"},
    stream=_transactions,
)
