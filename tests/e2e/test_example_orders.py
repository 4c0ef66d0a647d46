"""The orders example: daily sales against a batch query over the landed records."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.batch_query import (
    decimal,
    distinct,
    first_of_each,
    groups_of,
    judge,
    moment,
    out_of_order,
    text,
    total,
    whole,
    window,
)
from tests.e2e.run_demo import COUNT, DUPLICATES, MALFORMED, demonstrate

DAY = timedelta(days=1)


@pytest.mark.deep  # the demonstration of customers has all of this but the sums
def test_daily_sales_are_those_of_a_batch_query(tmp_path: Path) -> None:
    lake = demonstrate("orders", tmp_path)
    records = lake.records("bronze.orders")
    fields: dict[str, Any] = {
        **dict.fromkeys(("order_id", "customer_id", "quantity"), whole),
        **dict.fromkeys(("country", "region", "product_id", "product_name", "product_category"), text),
        **dict.fromkeys(("unit_price", "amount"), decimal),
        **dict.fromkeys(("currency", "status"), text),
        "order_ts": moment,
    }
    judged = judge(
        records,
        fields,
        expect=lambda row: (
            row["order_id"] is not None
            and row["order_ts"] is not None
            and row["amount"] > 0
            and row["amount"] == row["quantity"] * row["unit_price"]
        ),
    )
    silver = first_of_each(judged.good, "order_id")
    assert (len(records), len(judged.bad), len(judged.good) - len(silver)) == (COUNT, MALFORMED, DUPLICATES)
    assert len(set(judged.bad.values())) == 6, "every kind of fault is among them"
    assert out_of_order(silver, "order_ts") > COUNT // 100
    lake.check("silver.orders", silver)
    lake.check_quarantine("silver.orders", judged, records)

    sold = [row for row in silver.values() if row["status"] != "cancelled"]
    days = groups_of(sold, lambda row: (window(row["order_ts"], DAY), row["product_category"]))
    expected = {
        (day, category): {
            "window_end": day + DAY,
            "orders": len(rows),
            "revenue": total(rows, "amount"),
            "customers": distinct(rows, "customer_id"),
        }
        for (day, category), rows in days.items()
    }
    lake.check_groups("gold.daily_sales", ("window_start", "product_category"), expected)
