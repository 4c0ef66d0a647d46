"""Changes in a topic and three layers of tables over it, and what they must hold under a rule, in plain Python."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import (
    make_plan,
    rows,
    rows_at,
    run_well,
)
from tests.integration.run_replays import content, rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan


SCHEMA = "id BIGINT NOT NULL, amount DECIMAL(9,2), kind STRING, seq BIGINT, op STRING"
MERGE = {"keys": ["id"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}


TWO = ("bronze.t", "silver.t")
DOUBLED = "CAST(amount * 2 AS DECIMAL(9,2))"


def tables(topic: str, *, rule: str = "amount > 0", shown: str = "amount") -> dict[str, Any]:
    of_bronze = {"from": {"table": "bronze.t", "max_files": 2}, "decode": {"json": "value", "schema": SCHEMA}}
    changed = {"sql": f"SELECT * EXCEPT (amount), {shown} AS amount FROM t"}
    return {
        "bronze.t": {"from": {"kafka": topic, "max_per_trigger": 60}},
        "silver.t": {
            **of_bronze,
            **changed,
            "trigger": "500ms",
            "expect": [{"name": "rule", "check": rule}, {"name": "odd", "check": "id % 9 <> 0", "action": "drop"}],
            "dedupe": {"keys": ["id", "seq"]},
        },
        "silver.c": {**of_bronze, **changed, "write": {"merge": MERGE, "change_feed": True}},
        "silver.h": {**of_bronze, **changed, "write": {"merge": {**MERGE, "history": "scd2"}}},
        "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        "gold.t": {
            "from": {"table": "silver.t"},
            "aggregate": {
                "keys": ["kind"],
                "metrics": {"n": "count(*)", "sum": "sum(amount)", "ids": "count(DISTINCT id)"},
            },
        },
    }


class Shop:
    """Changes in a topic, some of them twice, some no JSON; all tables over it."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.spark, self.topic, self._bootstrap, self._folder = spark, topic, broker.bootstrap, folder
        self._sent: list[dict[str, Any] | None] = []
        self.names: tuple[str, ...] = ()
        """Its tables; all if none is named."""

    def send(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 1})
        for number in range(len(self._sent), len(self._sent) + count):
            one = number // 2 * 2
            made = {
                "id": one % 40,
                "amount": one % 50 - 5,
                "kind": "abc"[one % 3],
                "seq": one,
                "op": "d" if one % 7 == 0 else "u",
            }
            self._sent.append(made if number % 13 else None)
            producer.produce(self.topic, partition=0, value=json.dumps(made) if number % 13 else "{")
        assert producer.flush(30) == 0

    def good(self, least: int = 0) -> Counter[int]:
        """The offsets that silver.t must hold under the rule that amounts are more than this."""
        seen: set[tuple[int, int]] = set()
        found: Counter[int] = Counter()
        for offset, made in enumerate(self._sent):
            if made is not None and made["amount"] > least and made["id"] % 9 and (made["id"], made["seq"]) not in seen:
                seen.add((made["id"], made["seq"]))
                found[offset] += 1
        return found

    def bad(self, least: int = 0) -> Counter[int]:
        return Counter(o for o, made in enumerate(self._sent) if made is None or made["amount"] <= least)

    def plan(self, lake: str = "a", **definition: str) -> Plan:
        (self._folder / lake).mkdir(exist_ok=True)
        made = tables(self.topic, **definition)
        chosen = {name: made[name] for name in self.names or made}
        return make_plan(self._folder / lake, self._bootstrap, chosen)

    def made_at_once(self, **definition: str) -> Plan:
        """Another lake, in which no table has ever been anything else."""
        plan = self.plan("fresh", **definition)
        run_well(self.spark, plan)
        return plan


def offsets(plan: Plan, suffix: str = "") -> Counter[int]:
    """Of silver.t, or of its quarantine."""
    table = plan.table("silver.t")
    assert table is not None
    return Counter(row["_source"]["offset"] for row in rows_at(table.uri + suffix))


def assert_silver(plan: Plan, shop: Shop, least: int = 0) -> None:
    assert offsets(plan) == shop.good(least)
    assert offsets(plan, "__quarantine") == shop.bad(least)


def assert_equal(one: Plan, other: Plan) -> None:
    for table in one.tables:
        if table.name == "silver.copy":  # its sequences are versions of its source
            living = [[r["id"] for r in rows(plan, table.name) if not r["_deleted"]] for plan in (one, other)]
            assert sorted(living[0]) == sorted(living[1])
            continue
        assert content(one, table.name) == content(other, table.name), table.name
        if table.may_reject:
            assert rejected(one, table.name) == rejected(other, table.name), table.name
    for report in verify(one.tables, LocalStore()):
        assert report.ok(), report
