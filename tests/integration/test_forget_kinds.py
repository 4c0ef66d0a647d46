"""Somebody forgotten in tables of every other kind: histories, audits, copies, files, Spark's state, sinks."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.byte_search import named
from tests.integration.forget_shop import ANN, BOB, EVE, forget
from tests.integration.run_plan import make_plan, rows, rows_at, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

SCHEMA = "customer STRING, city STRING, seq BIGINT, op STRING"
WHO = {"subjects": {"customer": "customer"}}
MERGE = {"keys": ["customer"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}
STREAM = """
def cities(input):
    return input.withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["customer", "city"])
"""


def tables(topic: str) -> dict[str, Any]:
    decoded = {"from": {"table": "bronze.c"}, "decode": {"json": "value", "schema": SCHEMA}}
    return {
        "bronze.c": {
            "from": {"kafka": topic, "max_per_trigger": 20},
            "subjects": {"customer": [{"json": "value", "path": "$.customer"}, "key"]},
        },
        "silver.c": {**decoded, **WHO, "write": {"merge": MERGE, "change_feed": True}},
        "silver.history": {**decoded, **WHO, "write": {"merge": {**MERGE, "history": "scd2"}}},
        "silver.rows": {**decoded, **WHO, "sql": "SELECT _source, customer, city, timestamp_seconds(seq) AS at FROM c"},
        "silver.copy": {"from": {"changes": "silver.c"}, **WHO, "write": {"merge": {}}},
        "audit.c": {"from": {"changes": "silver.c", "starting": {"version": 0}}, **WHO, "audit": {}},
        "gold.seen": {"from": {"table": "silver.rows"}, "stream": "streams.py:cities", **WHO},
        "gold.cities": {
            "from": {"changes": "silver.c"},
            "aggregate": {"keys": ["city"], "metrics": {"customers": "count(*)"}},
        },
        "bronze.f": {"from": {"files": "landing", "format": "json", "schema": "customer STRING, n BIGINT"}, **WHO},
    }


class Town:
    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.gone = ANN
        self.sent: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        (folder / "streams.py").write_text(STREAM)
        (folder / "landing").mkdir()

    def plan(self) -> Plan:
        return make_plan(self.folder, self.bootstrap, tables(self.topic))

    def send(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for seq in range(len(self.sent), len(self.sent) + count):
            who = (self.gone, BOB, EVE)[seq % 3]
            made = {"customer": who, "city": f"city{seq % 5}", "seq": seq, "op": "d" if seq % 8 == 7 else "u"}
            producer.produce(self.topic, partition=0, key=who, value=json.dumps(made))
            self.sent.append(made)
        assert producer.flush(30) == 0
        lines = [{"customer": (self.gone, BOB)[n % 2], "n": n} for n in range(len(self.lines), len(self.lines) + 6)]
        self.lines += lines
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.folder / f"landing/{len(self.lines)}.json").write_text(
            text + f'{{"customer": "{self.gone}", "n": "no"}}\n'
        )

    def names(self, *people: str) -> list[str]:
        """But for what lies outside: the files that were landed."""
        return [one for one in named(self.folder, people) if "/landing/" not in one]


@pytest.fixture
def town(broker: Any, topic: Any, tmp_path: Path) -> Town:
    return Town(broker.bootstrap, topic(1), tmp_path)


def assert_without(plan: Plan, town: Town, gone: str) -> None:
    left = [one for one in town.sent if one["customer"] != gone]
    newest = {one["customer"]: one for one in left}
    now = {who: one["city"] for who, one in newest.items() if one["op"] == "u"}
    for name in ("silver.c", "silver.copy"):
        assert {row["customer"]: row["city"] for row in rows(plan, name) if not row["_deleted"]} == now, name
    assert {row["city"]: row["customers"] for row in rows(plan, "gold.cities")} == Counter(now.values())
    updates = Counter(one["customer"] for one in left if one["op"] == "u")
    history = [row for row in rows(plan, "silver.history") if row["seq"] is not None]
    assert {row["customer"] for row in history} == {BOB, EVE}
    assert Counter(row["customer"] for row in history if row["_deleted"] is False) <= updates
    assert {row["customer"] for row in rows(plan, "audit.c")} == {BOB, EVE}
    seen = Counter((row["customer"], row["city"]) for row in rows(plan, "gold.seen"))
    assert seen == Counter({(one["customer"], one["city"]) for one in left})
    lines = [one for one in town.lines if one["customer"] != gone]
    assert Counter(row["n"] for row in rows(plan, "bronze.f")) == Counter(one["n"] for one in lines)
    for report in verify(plan.tables, LocalStore()):
        assert report.ok(), report


@pytest.mark.deep
@pytest.mark.parametrize("gone", [ANN, "471108150"])
def test_somebody_is_forgotten_in_every_kind_of_table(spark: SparkSession, town: Town, gone: str) -> None:
    town.gone = gone
    plan = town.plan()
    town.send(60)
    run_well(spark, plan)
    town.send(30)
    run_well(spark, plan, "bronze.c", "silver.c", "silver.rows")  # those that follow are behind
    assert town.names(gone)

    done = forget(spark, plan, gone)

    assert not done.problems, "\n".join(done.problems)
    run_well(spark, plan)
    assert not town.names(gone)
    assert_without(plan, town, gone)
    town.send(30)  # and comes again
    run_well(spark, plan)
    assert not town.names(gone)
    assert_without(plan, town, gone)
    assert forget(spark, plan, gone).proven


@pytest.mark.deep
def test_what_an_earlier_table_of_the_name_left_beside_it_is_erased_too(
    spark: SparkSession, broker: Any, topic: Any, tmp_path: Path
) -> None:
    name = topic(1)
    town = Town(broker.bootstrap, name, tmp_path)

    source = {"from": {"kafka": name}, "decode": {"json": "value", "schema": SCHEMA}, **WHO}
    expect = [{"name": "first", "check": "seq < 20"}]
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": {**source, "expect": expect, "write": {"merge": MERGE}}})
    town.send(30)
    run_well(spark, plan)
    shutil.rmtree(tmp_path / "lake/silver/c")
    shutil.rmtree(plan.tables[0].checkpoints)
    run_well(spark, plan)
    aside = [one for one in (tmp_path / "lake/silver").iterdir() if ".before-" in one.name]
    assert sorted(one.name.partition(".")[0] for one in aside) == ["c__quarantine", "c__tombstones"]
    assert any(str(one) in file for one in aside for file in town.names(ANN))

    done = forget(spark, plan, ANN)

    assert done.proven, "\n".join(done.problems)
    assert not town.names(ANN)
    left = {place: one.rows for place, one in done.places.items() if ".before-" in place}
    assert len(left) == 2 and sum(left.values()), left
    assert {row["key"] for one in aside if "quarantine" in one.name for row in rows_at(str(one))} == {BOB, EVE}
    assert not done.output_search.foreign_tables
