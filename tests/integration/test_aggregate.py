"""Groups recomputed from their source: the numbers of a batch query, whatever comes late, twice or again."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import checkpoint, produce, rows, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

GOLD = "gold.t"
SCHEMA = "id BIGINT, kind STRING, who STRING, ts TIMESTAMP, amount DECIMAL(9,2)"
METRICS = {"n": "count(*)", "total": "sum(amount)", "people": "count(DISTINCT who)"}


class Sales:
    def __init__(self, spark: SparkSession, plan: Plan, broker: Any, topic: str) -> None:
        self.spark, self.plan, self._broker, self._topic = spark, plan, broker, topic
        self.sent: list[dict[str, Any]] = []

    def send(self, *records: tuple[str | None, str, int]) -> None:
        for kind, who, hour in records:
            record = {
                "id": len(self.sent),
                "kind": kind,
                "who": who,
                "ts": f"2026-01-01T{hour:02d}:30:00Z",
                "amount": 1.5,
            }
            produce(self._broker.bootstrap, self._topic, 1, partitions=[0], value=json.dumps(record))
            self.sent.append(record)

    def run(self) -> None:
        run_well(self.spark, self.plan)

    def check(self, *, windowed: bool) -> None:
        groups: dict[Any, list[dict[str, Any]]] = defaultdict(list)
        for record in self.sent:
            groups[record["kind"], int(record["ts"][11:13]) if windowed else None].append(record)
        expected = {
            key: (len(found), 1.5 * len(found), len({record["who"] for record in found}))
            for key, found in groups.items()
        }
        there = [
            (
                (row["kind"], row["window_start"].hour if windowed else None),
                (row["n"], float(row["total"]), row["people"]),
            )
            for row in rows(self.plan, GOLD)
        ]
        assert len(there) == len(dict(there)), "each group once"
        assert dict(there) == expected
        whole_chain(self.plan, GOLD)


@pytest.fixture(params=["window", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("keys", "complete"))])
def sales(
    request: pytest.FixtureRequest, spark: SparkSession, broker: Any, topic: Any, project: Any
) -> tuple[Sales, bool]:
    name, windowed = topic(partitions=1), request.param == "window"
    aggregate: dict[str, Any] = {"keys": ["kind"], "metrics": METRICS}
    if windowed:
        aggregate["window"] = {"time": "ts", "every": "1 hour"}
    if request.param == "complete":
        aggregate["emit"] = "complete"
    tables = {
        "silver.t": {"from": {"kafka": name, "max_per_trigger": 4}, "decode": {"json": "value", "schema": SCHEMA}},
        GOLD: {"from": {"table": "silver.t", "max_files": 1}, "aggregate": aggregate},
    }
    return Sales(spark, project(tables), broker, name), windowed


def test_the_numbers_are_those_of_a_batch_query(sales: tuple[Sales, bool]) -> None:
    shop, windowed = sales
    shop.send(("a", "x", 1), ("a", "y", 1), ("b", "x", 2), (None, "x", 2), ("a", "x", 3), ("a", "x", 1))
    shop.run()
    shop.check(windowed=windowed)
    shop.send(("a", "z", 0), (None, "y", 2), ("c", "x", 23))  # late, a group without a name, a new one
    shop.run()
    shop.check(windowed=windowed)
    shutil.rmtree(checkpoint(shop.plan, name=GOLD))
    shop.send(("a", "y", 1))
    shop.run()
    shop.check(windowed=windowed)


def test_rows_that_are_deleted_upstream_are_counted_no_more(sales: tuple[Sales, bool]) -> None:
    shop, windowed = sales
    shop.send(("a", "x", 1), ("a", "y", 1), ("b", "x", 2), (None, "x", 2))
    shop.run()
    upstream = shop.plan.table("silver.t")
    assert upstream is not None
    shop.spark.sql(f"DELETE FROM delta.`{upstream.uri}` WHERE kind = 'a'")
    heard = run_well(shop.spark, shop.plan, GOLD)  # its upstream would ask what to decide
    assert heard.heard("(DELETE), not made by Penstock, changed rows there")
    shop.sent = [record for record in shop.sent if record["kind"] != "a"]
    shop.check(windowed=windowed)
