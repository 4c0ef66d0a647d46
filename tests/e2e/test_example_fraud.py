"""The fraud example: customers, alerts and their sums against a batch query over the records that were sent."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.batch_query import (
    Lake,
    Place,
    Record,
    Row,
    decimal,
    distinct,
    first_of_each,
    groups_of,
    judge,
    moment,
    out_of_order,
    struct,
    text,
    total,
    whole,
    window,
)
from tests.e2e.run_demo import COUNT, MALFORMED, demonstrate

DAY = timedelta(days=1)
AVERAGE = "avg_transaction_amount"


@pytest.mark.deep
def test_alerts_are_those_of_a_batch_query(tmp_path: Path) -> None:
    lake = demonstrate("fraud", tmp_path)
    customers = _customers(lake)
    records = lake.records("bronze.transactions")
    fields: dict[str, Any] = {
        **dict.fromkeys(("transaction_id", "currency", "country", "merchant", "merchant_category", "channel"), text),
        "customer_id": whole,
        "amount": decimal,
        "transaction_ts": moment,
    }

    def with_rules(row: Row) -> Row:
        known = customers.get(row["customer_id"], dict.fromkeys(("risk_score", "account_age_days", AVERAGE)))
        return {**row, **known, "rules": _broken(row["amount"], known)}

    judged = judge(
        records,
        fields,
        required=("customer_id", "amount", "transaction_ts"),
        expect=lambda row: row["transaction_id"] is not None and row["amount"] > 0 and row[AVERAGE] is not None,
        made=with_rules,
    )
    silver = first_of_each(judged.good, "transaction_id")
    assert len(records) == COUNT and len(judged.bad) > MALFORMED, "some customers are not known"
    assert len(judged.good) > len(silver)
    assert out_of_order(silver, "transaction_ts") > COUNT // 100
    lake.check("silver.transactions", silver)
    lake.check_quarantine("silver.transactions", judged, records)

    broken = [(row, rule) for row in silver.values() for rule in row["rules"]]
    assert {rule for _, rule in broken} == {"over_average", "high_risk", "young_account"}
    alerts = Counter((row["transaction_id"], rule) for row in lake.rows("gold.alerts") for rule in [row["rule"]])
    assert alerts == Counter((row["transaction_id"], rule) for row, rule in broken)
    assert sum(row["sent"] for row in lake.rows("_penstock.sinks.alerts_out")) == alerts.total()
    told = {row["transaction_id"]: row for row in lake.rows("gold.alerts")}
    for row, _ in broken:
        alert = told[row["transaction_id"]]
        names = ("customer_id", "amount", AVERAGE, "risk_score", "account_age_days", "transaction_ts")
        assert [alert[name] for name in names] == [row[name] for name in names]

    days = groups_of(
        ({**row, "rule": rule} for row, rule in broken), lambda row: (window(row["transaction_ts"], DAY), row["rule"])
    )
    expected = {
        group: {
            "window_end": group[0] + DAY,
            "alerts": len(rows),
            "customers": distinct(rows, "customer_id"),
            "amount": total(rows, "amount"),
        }
        for group, rows in days.items()
    }
    lake.check_groups("gold.alerts_per_day", ("window_start", "rule"), expected)


def _broken(amount: Decimal, known: Row) -> list[str]:
    if known[AVERAGE] is None:
        return []
    rules = {
        "over_average": amount > 5 * known[AVERAGE],
        "high_risk": known["risk_score"] > Decimal("0.8"),
        "young_account": known["account_age_days"] < 30 and amount > 1000,
    }
    return [name for name, broken in rules.items() if broken]


def _customers(lake: Lake) -> dict[int, Row]:
    """Who is known, by the changes that were sent: the same seed makes them again. The table must say the same."""
    from penstock.cli.demo import LOOKUP_EVENTS, LOOKUP_FAULTS
    from penstock.dev.examples import EXAMPLES
    from penstock.dev.generate import events

    pace = LOOKUP_EVENTS / EXAMPLES["fraud"].time_span.total_seconds()
    sent = events("customers", LOOKUP_EVENTS, start=datetime(2026, 1, 1, tzinfo=UTC), pace=pace, faults=LOOKUP_FAULTS)
    records = [_record(number, event.value) for number, event in enumerate(sent)]
    about: dict[str, Any] = {"name": text, "country": text, "risk_score": decimal, "account_age_days": whole}
    judged = judge(
        records,
        {
            "op": text,
            "customer_id": whole,
            "sequence": whole,
            "updated_at": moment,
            "after": struct({**about, AVERAGE: decimal}),
        },
        required=("op", "customer_id", "sequence", "updated_at"),
    )
    created = {at: row for at, row in judged.good.items() if row["op"] == "c"}
    rows = [{"customer_id": row["customer_id"], **row["after"]} for row in created.values()]
    expected = {row["customer_id"]: row for row in reversed(rows)}
    assert len(rows) > len(expected) > 4_900, "some were sent twice"
    found = [{name: value for name, value in row.items() if name != "_source"} for row in lake.rows("dim.customers")]
    assert len(found) == len(expected)
    assert {row["customer_id"]: row for row in found} == expected
    rejected = Counter(row["value"] for row in lake.rows("dim.customers__quarantine"))
    assert rejected.total() == len(judged.bad) == LOOKUP_EVENTS // 100
    names = ("risk_score", "account_age_days", AVERAGE)
    return {customer: {name: row[name] for name in names} for customer, row in expected.items()}


def _record(number: int, value: bytes | None) -> Record:
    at: Place = ("customers", 0, number)
    try:
        return Record(at, None if value is None else value.decode(), None)
    except UnicodeDecodeError:
        return Record(at, None, value)
