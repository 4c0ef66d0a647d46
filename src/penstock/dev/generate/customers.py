"""Changes of a customer table as change data capture sends them: op, before, after, keyed by the customer.

A customer's first change is a create; updates and deletes follow, and a deleted one may come back. Within a customer
`updated_at` rises strictly from change to change and `before` is the last `after`; late changes hold to that as well.
"""

from __future__ import annotations

from penstock.dev.generate.event import Event, Kind, Render, Setting, headers_of
from penstock.dev.generate.population import DRAW_BITS, Customer, quoted
from penstock.dev.generate.timestamps import iso

_TIERS = ("bronze", "bronze", "silver", "gold")
CREATES, DELETES = 128, 12
"""Of 256 changes: creates while there are customers left to create, and deletes. The rest are updates."""


class _Row:
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


def _stream(setting: Setting) -> Render:
    draw, by_popularity, headers = setting.rng.getrandbits, setting.people.by_popularity, headers_of("customers")
    waiting = [_Row(someone) for someone in reversed(setting.people.customers)]
    rows: list[_Row] = []
    sequence = 0

    def choose(at: int, dice: int) -> _Row:
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


CUSTOMERS = Kind(
    name="customers",
    about="changes of a customer table: op c, u or d, with before and after",
    id_field="customer_id",
    wrong_types={"customer_id": "unknown", "after": "gone", "sequence": "next", "updated_at": "last week"},
    stream=_stream,
)
