"""What the generator makes: the same bytes for the same seed, and events that look like life."""

import json
import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest

from penstock.dev.generate import KINDS, Event, Faults, events
from penstock.errors import UsageError

START = datetime(2026, 1, 31, 23, 0, tzinfo=UTC)
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
TIMES = {
    "orders": "order_ts",
    "clicks": "event_timestamp",
    "transactions": "transaction_ts",
    "customers": "updated_at",
    "sensors": "reading_ts",
}
MIXED = Faults(malformed=0.01, late=0.02, duplicates=0.03)


def made(kind: str, count: int, **options: Any) -> list[Event]:
    return list(events(kind, count, start=START, **options))


@lru_cache
def records(kind: str, count: int) -> list[dict[str, Any]]:
    return [record(event) for event in made(kind, count)]


def record(event: Event) -> dict[str, Any]:
    assert event.value is not None
    content: dict[str, Any] = json.loads(event.value, parse_float=Decimal)
    return content


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_and_parameters_give_the_same_bytes(kind: str) -> None:
    assert made(kind, 2500, faults=MIXED) == made(kind, 2500, faults=MIXED)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_other_events(kind: str) -> None:
    assert [event.value for event in made(kind, 50)] != [event.value for event in made(kind, 50, seed=7)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_valid_event_is_json_with_its_id_and_its_time(kind: str) -> None:
    for event in made(kind, 1500):
        content = record(event)
        written = content[TIMES[kind]]
        assert ISO.fullmatch(written)
        assert round(datetime.fromisoformat(written).timestamp() * 1000) == event.event_time
        assert content[KINDS[kind].id_field] is not None
        assert event.key is not None and event.key.decode() in event.value.decode()  # type: ignore[union-attr]
        assert dict(event.headers)["schema"] == f"{kind}.v1".encode()


@pytest.mark.parametrize("kind", KINDS)
def test_event_times_go_on_from_the_start_at_the_pace(kind: str) -> None:
    times = [event.event_time for event in made(kind, 1000, pace=4.0)]
    begin = round(START.timestamp() * 1000)
    assert begin <= times[0] < begin + 250
    assert begin + 999 * 250 <= times[-1] < begin + 1000 * 250
    assert times == sorted(times)


def test_a_stream_without_a_count_goes_on() -> None:
    stream = events("orders", start=START)
    assert len([next(stream) for _ in range(2500)]) == 2500


def test_a_start_without_a_zone_is_utc() -> None:
    assert made("orders", 5) == list(events("orders", 5, start=START.replace(tzinfo=None)))


def test_an_unknown_kind_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError) as error:
        events("order", 1, start=START)
    assert "orders" in (error.value.hint or "")


def test_a_negative_count_and_a_pace_of_nothing_are_refused() -> None:
    with pytest.raises(UsageError):
        events("orders", -1, start=START)
    with pytest.raises(UsageError):
        events("orders", 1, start=START, pace=0)


def test_orders_add_up_and_have_two_digits() -> None:
    orders = records("orders", 5000)
    for order in orders:
        assert order["amount"] == order["unit_price"] * order["quantity"]
        assert order["amount"].as_tuple().exponent == order["unit_price"].as_tuple().exponent == -2
    assert len({order["order_id"] for order in orders}) == 5000


def test_orders_cover_every_category_and_text_that_needs_escaping() -> None:
    orders = records("orders", 5000)
    assert len({order["product_category"] for order in orders}) == 7
    names = {order["product_name"] for order in orders}
    assert any('"' in name for name in names)
    assert any("è" in name for name in names)


def test_some_customers_order_far_more_often_than_others() -> None:
    orders = Counter(order["customer_id"] for order in records("orders", 5000))
    most = [many for _, many in orders.most_common()]
    assert sum(most[:50]) > 0.2 * 5000
    assert len(orders) > 1000


def test_clicks_come_in_sessions_of_one_visitor_with_several_views() -> None:
    sessions = defaultdict(list)
    for click in records("clicks", 10_000):
        sessions[click["session_id"]].append(click)
    assert all(len({click["user_id"] for click in session}) == 1 for session in sessions.values())
    assert all(session[0]["page"] == "/" for session in sessions.values())
    assert 3 < 10_000 / len(sessions) < 9
    gaps = [
        datetime.fromisoformat(after["event_timestamp"]) - datetime.fromisoformat(before["event_timestamp"])
        for session in sessions.values()
        for before, after in pairwise(session)
    ]
    assert timedelta(seconds=5) < sum(gaps, timedelta()) / len(gaps) < timedelta(seconds=45)


def test_a_purchase_follows_a_view_of_the_product_and_has_revenue() -> None:
    seen: dict[str, set[str | None]] = defaultdict(set)
    bought = 0
    for click in records("clicks", 10_000):
        if click["event_type"] == "purchase":
            bought += 1
            assert click["revenue"] > 0
            assert click["product_id"] in seen[click["session_id"]]
        else:
            assert click["revenue"] == 0
        seen[click["session_id"]].add(click["product_id"])
    assert 100 < bought < 500


def test_each_fraud_rule_has_hits_and_most_transactions_are_clean() -> None:
    averages = {
        change["after"]["customer_id"]: change["after"]["avg_transaction_amount"]
        for change in records("customers", 12_000)
        if change["op"] == "c"
    }
    assert len(averages) == 5000
    hits: Counter[str] = Counter()
    for transaction in records("transactions", 10_000):
        rules = {
            "over": transaction["amount"] > 5 * averages[transaction["customer_id"]],
            "risky": transaction["risk_score"] > Decimal("0.8"),
            "young": transaction["account_age_days"] < 30 and transaction["amount"] > 1000,
        }
        hits.update(rule for rule, hit in rules.items() if hit)
        hits["any"] += any(rules.values())
    assert hits["over"] > 40
    assert hits["risky"] > 40
    assert hits["young"] > 20
    assert hits["any"] < 0.1 * 10_000


def test_transactions_and_customers_of_one_seed_are_the_same_people() -> None:
    known = {
        change["customer_id"]: change["after"]["risk_score"]
        for change in records("customers", 12_000)
        if change["op"] == "c"
    }
    for transaction in records("transactions", 10_000):
        assert known[transaction["customer_id"]] == transaction["risk_score"]


@pytest.mark.parametrize("faults", [Faults(), Faults(late=0.1)])
def test_customer_changes_form_a_chain_per_customer(faults: Faults) -> None:
    state: dict[int, Any] = {}
    changed: dict[int, str] = {}
    ops: Counter[str] = Counter()
    for change in map(record, made("customers", 12_000, faults=faults)):
        customer = change["customer_id"]
        assert change["before"] == state.get(customer)
        assert change["op"] == ("c" if change["before"] is None else "d" if change["after"] is None else "u")
        assert change["updated_at"] > changed.get(customer, "")
        state[customer], changed[customer] = change["after"], change["updated_at"]
        ops[change["op"]] += 1
    assert ops["u"] > ops["c"] > ops["d"] > 100
    assert ops["c"] > 5000, "a deleted customer comes back"


def test_sensors_stay_within_what_a_sensor_shows() -> None:
    for reading in records("sensors", 10_000):
        assert -10 < reading["temperature_c"] < 50
        assert 0 <= reading["humidity_pct"] <= 100
        assert 0 <= reading["battery_pct"] <= 100
