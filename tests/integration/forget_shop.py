"""A shop in which a customer can be forgotten, as the command does it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.storage.stores import LocalStore
from tests.integration.run_plan import make_plan, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.forget import ErasureResult
    from penstock.plan.model import Plan

ANN, BOB, EVE = "ann@example.org", "bob@example.org", "eve@example.org"
SCHEMA = "order_id BIGINT, customer STRING, amount BIGINT, at TIMESTAMP, seq BIGINT"
_PATH = {"json": "value", "path": "$.customer"}


def tables(topic: str, *, declared: bool = True) -> dict[str, Any]:
    def who(*places: Any) -> dict[str, Any]:
        return {"subjects": {"customer": [*places]}} if declared else {}

    decoded = {"from": {"table": "bronze.orders"}, "decode": {"json": "value", "schema": SCHEMA}}
    window = {"time": "at", "every": "1 day"}
    metrics = {"orders": "count(*)", "sum": "sum(amount)"}
    return {
        "bronze.orders": {"from": {"kafka": topic, "max_per_trigger": 40}, **who(_PATH, "key")},
        "silver.orders": {
            **decoded,
            **who("customer"),
            "expect": [{"name": "positive", "check": "amount > 0"}],
            "write": {"change_feed": True},
        },
        "silver.customers": {
            **decoded,
            **who("customer"),
            "write": {"merge": {"keys": ["customer"], "sequence": "seq"}, "change_feed": True},
        },
        "silver.copy": {"from": {"changes": "silver.customers"}, **who("customer"), "write": {"merge": {}}},
        "gold.by_customer": {
            "from": {"table": "silver.orders"},
            **who("customer"),
            "aggregate": {"keys": ["customer"], "metrics": metrics},
        },
        "gold.daily": {
            "from": {"table": "silver.orders"},
            "aggregate": {"keys": [], "window": window, "metrics": {**metrics, "who": "count(DISTINCT customer)"}},
        },
        "gold.closed": {
            "from": {"table": "silver.orders"},
            "aggregate": {"keys": [], "window": window, "metrics": metrics, "emit": "final", "watermark": "1 day"},
        },
    }


def record(number: int) -> dict[str, Any]:
    customer = (ANN, BOB, EVE)[number % 3]
    day = 1 + number % 9
    amount = number % 11 - 1
    at = f"2026-01-{day:02d}T10:00:00"
    return {"order_id": number, "customer": customer, "amount": amount, "at": at, "seq": number}


class Shop:
    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.topic, self.bootstrap, self.folder = spark, topic, bootstrap, folder
        self._number = 0
        self.sent: list[dict[str, Any]] = []

    def plan(self, *names: str, declared: bool = True) -> Plan:
        """Of these tables, or of all."""
        known = tables(self.topic, declared=declared)
        return make_plan(self.folder, self.bootstrap, {name: known[name] for name in names or known})

    def send(self, count: int) -> None:
        """Every seventh is no JSON, and names its customer all the same."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for number in range(self._number, self._number + count):
            made = record(number)
            value = json.dumps(made)
            whole = number % 7 != 3
            producer.produce(self.topic, partition=0, key=made["customer"], value=value if whole else value[:-9])
            self.sent.append(made if whole else {"customer": made["customer"]})
        self._number += count
        assert producer.flush(30) == 0


def forget(
    spark: SparkSession, plan: Plan, *values: str, runs: bool = True, not_names: tuple[str, ...] = ()
) -> ErasureResult:
    """As the command does it; without `runs` it cannot bring readers on."""
    from penstock.erasure.forget import run_forget
    from penstock.erasure.forget_plan import plan_forget
    from penstock.erasure.request import Name

    store = LocalStore()
    return run_forget(
        spark,
        plan,
        store,
        plan_forget(plan, store, [Name("customer", value) for value in values], not_names),
        run=lambda table: run(spark, plan, table.name).errors.get(table.name) if runs else Terminal("not now"),
        tell=lambda table, what: print(f"{time.monotonic():.1f} {table}: {what}"),
        patience=20.0,
    )
