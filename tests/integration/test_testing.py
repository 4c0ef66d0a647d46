"""`penstock.testing`: a table's function on a few rows, as a user's own tests run it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock.errors import UsageError
from penstock.testing import table_under_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES: dict[str, Any] = {
    "bronze.orders": {"from": {"kafka": "orders"}},
    "dim.customers": {"from": {"kafka": "customers"}, "decode": {"json": "value", "schema": "id BIGINT, name STRING"}},
    "silver.orders": {
        "from": {"table": "bronze.orders"},
        "decode": {"json": "value", "schema": "order_id BIGINT NOT NULL, customer BIGINT, amount DECIMAL(9,2)"},
        "lookups": {"customers": "dim.customers"},
        "sql": "SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
        "expect": [
            {"name": "positive", "check": "amount > 0"},
            {"name": "known", "check": "name IS NOT NULL", "action": "warn"},
            {"name": "no_tests", "check": "name IS NULL OR name <> 'test'", "action": "drop"},
        ],
        "dedupe": {"keys": ["order_id"]},
    },
    "gold.sales": {
        "from": {"table": "silver.orders"},
        "aggregate": {"keys": ["name"], "metrics": {"orders": "count(*)", "revenue": "sum(amount)"}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    document = {"name": "shop", "lake": "./lake", "kafka": {"bootstrap": "127.0.0.1:1"}, "tables": TABLES}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return tmp_path


CUSTOMERS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": "test"}]


def order(number: int, amount: Any = 5, customer: int = 1) -> dict[str, Any]:
    return {"value": {"order_id": number, "amount": amount, "customer": customer}}


def test_rows_in_rows_out(spark: SparkSession, folder: Path) -> None:
    given = [order(1), order(1), order(2, amount=-1), order(3, customer=2), order(4, customer=9), {"value": "{"}]
    with table_under_test(folder, "silver.orders", lookups={"customers": CUSTOMERS}, spark=spark) as orders:
        outcome = orders.run(given)
        again = orders.run([order(4), order(5)])
        assert len(orders.rows()) == 3
    assert outcome.written == [
        {"order_id": 1, "customer": 1, "amount": Decimal("5.00"), "name": "Ada"},
        {"order_id": 4, "customer": 9, "amount": Decimal("5.00"), "name": None},
    ]
    assert [row["error_detail"] for row in outcome.quarantined] == ["positive", "not JSON, at byte 1: {"]
    assert (outcome.read, outcome.dropped, outcome.duplicates) == (6, 1, 1)
    assert outcome.unmet == {"positive": 1, "known": 1, "no_tests": 1}
    assert [row["order_id"] for row in again.written] == [5]
    assert again.duplicates == 1


@pytest.mark.deep
def test_an_aggregate_says_what_the_table_has_now(spark: SparkSession, folder: Path) -> None:
    with table_under_test(folder, "gold.sales", spark=spark) as sales:
        sales.run([{"name": "Ada", "amount": Decimal(3)}, {"name": "Bob", "amount": Decimal(4)}])
        outcome = sales.run([{"name": "Ada", "amount": Decimal(1)}])
    assert outcome.written == [
        {"name": "Ada", "orders": 2, "revenue": Decimal("4.00")},
        {"name": "Bob", "orders": 1, "revenue": Decimal("4.00")},
    ]


def test_a_table_that_lands_records(spark: SparkSession, folder: Path) -> None:
    with table_under_test(folder, "bronze.orders", spark=spark) as orders:
        outcome = orders.run([{"key": "k", "value": "v", "headers": {"a": "1"}}, {"value": b"\xff"}])
    assert [(row["key"], row["value"], row["value_binary"]) for row in outcome.written] == [
        ("k", "v", None),
        (None, None, b"\xff"),
    ]


def test_mistakes_of_a_test_are_told(spark: SparkSession, folder: Path) -> None:
    unknown = table_under_test(folder, "silver.order", spark=spark)
    with pytest.raises(UsageError, match=r"no table silver\.order in"), unknown:
        pass
    people = table_under_test(folder, "silver.orders", lookups={"people": []}, spark=spark)
    with pytest.raises(UsageError, match="no lookup 'people'"), people:
        pass
    whole = table_under_test(folder, "silver.orders", spark=spark)
    with whole as orders, pytest.raises(UsageError, match="no column 'valeu'"):
        orders.run([{"valeu": "x"}])
