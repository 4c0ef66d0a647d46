"""Clicks on a web shop: visitors come, look at several pages, some buy; keyed by the visitor."""

from __future__ import annotations

from penstock.dev.generate.event import Event, Kind, Render, Setting, headers_of
from penstock.dev.generate.population import DRAW_BITS
from penstock.dev.generate.timestamps import iso

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


def _stream(setting: Setting) -> Render:
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


CLICKS = Kind(
    name="clicks",
    about="page views and purchases of a web shop, in sessions",
    id_field="user_id",
    wrong_types={"user_id": "anonymous", "revenue": "free", "event_timestamp": "just now"},
    stream=_stream,
)
