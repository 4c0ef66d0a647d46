"""Orders of a shop: one product each, two-digit amounts, keyed by the order."""

from __future__ import annotations

from penstock.dev.generate.event import Event, Kind, Render, Setting, headers_of
from penstock.dev.generate.population import DRAW_BITS, quoted
from penstock.dev.generate.timestamps import iso

_STATUSES = ("placed",) * 5 + ("paid",) * 8 + ("shipped",) * 2 + ("cancelled",)
_QUANTITIES = (1,) * 10 + (2,) * 3 + (3, 4, 6)
FIRST_ORDER = 1_000_000


def _stream(setting: Setting) -> Render:
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


ORDERS = Kind(
    name="orders",
    about="orders of a shop: product, category, quantity, amount",
    id_field="order_id",
    wrong_types={"amount": "twelve", "order_id": {"id": 1}, "quantity": [], "order_ts": "yesterday"},
    stream=_stream,
)
