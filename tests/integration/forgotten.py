"""A shop in which a customer can be forgotten, and a search for him that knows nothing of Penstock: every file of the
lake and of the project is decoded, or read byte by byte."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.runs import make_plan, run

from penstock.engine.store import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ops.forget.model import Done
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


def record(number: int, customer: str) -> dict[str, Any]:
    day = 1 + number % 9
    amount = number % 11 - 1
    at = f"2026-01-{day:02d}T10:00:00"
    return {"order_id": number, "customer": customer, "amount": amount, "at": at, "seq": number}


class Shop:
    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark, self.topic, self.bootstrap, self.folder = spark, topic, bootstrap, folder
        self._number = 0

    def plan(self, *, declared: bool = True, lake: str = "a", **more: Any) -> Plan:
        (self.folder / lake).mkdir(exist_ok=True)
        return make_plan(self.folder / lake, self.bootstrap, {**tables(self.topic, declared=declared), **more})

    def send(self, count: int, customers: Sequence[str] = (ANN, BOB, EVE)) -> None:
        """Every seventh is no JSON, and names its customer all the same."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for number in range(self._number, self._number + count):
            customer = customers[number % len(customers)]
            value = json.dumps(record(number, customer))
            producer.produce(self.topic, partition=0, key=customer, value=value[:-9] if number % 7 == 3 else value)
        self._number += count
        assert producer.flush(30) == 0


def forget(spark: SparkSession, plan: Plan, *values: str, subject: str = "customer", patience: float = 20.0) -> Done:
    """As the command does it."""
    from penstock.engine.forget.list import SuppressionList
    from penstock.engine.forget.matching import Wanted
    from penstock.ops.forget.asked import Name
    from penstock.ops.forget.carry_out import Forgetting
    from penstock.runtime.causes import explain

    assert plan.forget is not None
    store = LocalStore()
    listed = SuppressionList(plan.forget, store)
    orders = tuple(listed.add(subject, value) for value in values)
    return Forgetting(
        spark,
        plan,
        store,
        Wanted(listed.key, orders),
        [Name(subject, value) for value in values],
        run=lambda table: run(spark, plan, table.name).errors.get(table.name),
        told=lambda table, what: print(f"{time.monotonic():.1f} {table}: {what}"),
        explain=lambda error, table: explain(error, table, ""),
        patience=patience,
    ).carry_out()


def found(spark: SparkSession, folder: Path, name: str) -> list[str]:
    """Every place under a folder that has the name."""
    return [*_in_data(spark, folder, name), *_in_bytes(folder, name)]


def _in_data(spark: SparkSession, folder: Path, name: str) -> Iterator[str]:
    """Files of one folder have the same columns, or some of them."""
    for parent in sorted({path.parent for path in folder.rglob("*.parquet")}):
        rows = spark.read.option("mergeSchema", "true").parquet(str(parent))
        binary = [f"CAST(`{column}` AS STRING)" for column, kind in rows.dtypes if kind == "binary"]
        text = f"concat_ws(' ', to_json(struct(*)), {', '.join(binary) or repr('')})"
        hits = rows.selectExpr(f"{text} AS text").where(f"text LIKE '%{name}%'").count()
        if hits:
            yield f"{parent}: {hits} rows"


def _in_bytes(folder: Path, name: str) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".parquet" and name.encode() in path.read_bytes():
            yield str(path)
