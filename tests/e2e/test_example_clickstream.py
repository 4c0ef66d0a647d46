"""The clickstream example: hours and products, with exact users, against a batch query over the landed records."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.batch_query import (
    Row,
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

HOUR = timedelta(hours=1)


@pytest.mark.deep
def test_views_users_and_revenue_are_those_of_a_batch_query(tmp_path: Path) -> None:
    lake = demonstrate("clickstream", tmp_path)
    records = lake.records("bronze.clicks")
    required = ("event_id", "session_id", "event_type", "event_timestamp")
    fields: dict[str, Any] = {
        **dict.fromkeys(("event_id", "session_id", "event_type", "page", "product_id", "product_category"), text),
        **dict.fromkeys(("referrer", "device", "country"), text),
        "user_id": whole,
        "revenue": decimal,
        "event_timestamp": moment,
    }

    def cleaned(row: Row) -> Row:
        section = row["page"].split("/")[1] or "home"
        return {**row, "event_date": row["event_timestamp"].date(), "section": section}

    def expected(row: Row) -> bool:
        return row["user_id"] is not None and (row["event_type"] == "purchase") == (row["revenue"] > 0)

    judged = judge(records, fields, required=required, expect=expected, made=cleaned)
    silver = first_of_each(judged.good, "event_id")
    assert (len(records), len(judged.bad), len(judged.good) - len(silver)) == (COUNT, MALFORMED, DUPLICATES)
    assert out_of_order(silver, "event_timestamp") > COUNT // 100
    lake.check("silver.clicks", silver)
    lake.check_quarantine("silver.clicks", judged, records)

    of_products = [row for row in silver.values() if row["product_id"] is not None]
    hours = groups_of(of_products, lambda row: (window(row["event_timestamp"], HOUR), row["product_id"]))
    lake.check_groups(
        "gold.hourly_products",
        ("window_start", "product_id"),
        {group: {"window_end": group[0] + HOUR, **_interest(rows)} for group, rows in hours.items()},
    )
    products = groups_of(of_products, lambda row: (row["product_id"], row["product_category"]))
    bought = {group: [row for row in rows if row["event_type"] == "purchase"] for group, rows in products.items()}
    assert sum(map(len, bought.values())) > 0
    lake.check_groups(
        "gold.products",
        ("product_id", "product_category"),
        {group: {**_interest(rows), "buyers": distinct(bought[group], "user_id")} for group, rows in products.items()},
    )


def _interest(rows: list[Row]) -> Row:
    return {
        "views": sum(row["event_type"] == "view" for row in rows),
        "users": distinct(rows, "user_id"),
        "revenue": total(rows, "revenue"),
    }
