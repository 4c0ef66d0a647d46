"""The rates that `status` tells after a real run, beside what the test itself counted and timed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from penstock.operations.status import document, status_without_broker
from penstock.runtime.runner import run_in
from penstock.storage.stores import LocalStore
from tests.integration.run_plan import Heard, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.writer import Written

BRONZE, SILVER = "bronze.t", "silver.t"


class Timed(Heard):
    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[str, float] = {}

    def batch(self, table: str, written: Written, seconds: float) -> None:
        super().batch(table, written, seconds)
        self.seconds[table] = seconds


def test_they_agree_with_a_count_of_ones_own(spark: SparkSession, broker: Any, project: Any, topic: Any) -> None:
    name = topic(2)
    plan = project(
        {
            BRONZE: {"from": {"kafka": name}},
            SILVER: {
                "from": {"table": BRONZE},
                "decode": {"json": "value", "schema": "id BIGINT"},
                "expect": [{"name": "positive", "check": "id > 0"}],
            },
        }
    )
    produce(broker.bootstrap, name, 300, value='{"id": 1}')
    produce(broker.bootstrap, name, 100, value='{"id": 0}')
    heard, began = Timed(), time.time()
    run_in(spark, plan, plan.tables, heard, once=True)
    assert not heard.errors
    for one in status_without_broker(plan, plan.tables, LocalStore()):
        told, took = document(one), time.time() - began
        assert told["last_batch_rows"] == 400, "rejected rows were read too"
        assert 0 < told["last_batch_seconds"] <= heard.seconds[one.table] + 0.1
        if one.table == BRONZE:
            assert told["last_batch_seconds"] >= heard.seconds[one.table] / 3, "there is little to do after its commit"
        assert told["processed_rows_per_second"] == pytest.approx(400 / told["last_batch_seconds"], rel=0.01)
        assert told["window_seconds"] <= took + 0.1, "since it was made"
        window, rounding = told["window_seconds"], 0.051
        assert 400 / (window + rounding) <= told["input_rows_per_second"] <= 400 / (window - rounding)
