"""Rejected rows that are run again land once, whatever dies in between, and what reads the table sees them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import killed_at, produce, rows_at, run_well, whole_chain
from tests.integration.run_replays import work_on
from tests.integration.topics import make_again

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

SCHEMA = "id BIGINT NOT NULL, amount DECIMAL(9,2), seq BIGINT"
COUNT = 60


def tables(topic: str, least: int) -> dict[str, Any]:
    decode = {"json": "value", "schema": SCHEMA}
    expect = [{"name": "enough", "check": f"amount > {least}"}]
    merge = {"merge": {"keys": ["id"], "sequence": "seq"}}
    return {
        "bronze.t": {"from": {"kafka": topic}},
        "silver.t": {"from": {"table": "bronze.t"}, "decode": decode, "expect": expect, "dedupe": {"keys": ["seq"]}},
        "silver.k": {"from": {"kafka": topic}, "decode": decode, "expect": expect},
        "silver.m": {"from": {"table": "bronze.t"}, "decode": decode, "expect": expect, "write": merge},
        "gold.t": {"from": {"table": "silver.t"}, "aggregate": {"keys": ["id"], "metrics": {"n": "count(*)"}}},
    }


@pytest.fixture
def shop(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> Callable[[int], Plan]:
    """Tables over a topic: a record in four is no JSON, amounts are their numbers, every tenth is a copy of the first
    that is good."""
    from confluent_kafka import Producer

    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        made = {"id": number % 20, "amount": number, "seq": 50 if number % 10 == 1 else number}
        producer.produce(name, partition=0, value=json.dumps(made) if number % 4 else f'{{"id": {number}')
    assert producer.flush(30) == 0
    return lambda least: project(tables(name, least))


def offsets(plan: Plan, name: str, suffix: str = "") -> Counter[int]:
    table = plan.table(name)
    assert table is not None
    return Counter(row["_source"]["offset"] for row in rows_at(table.uri + suffix))


def again(spark: SparkSession, plan: Plan, name: str, condition: str | None = None) -> Any:
    from penstock.operations.redrive import redrive

    work = work_on(spark, plan, name)
    try:
        return redrive(work, condition)
    finally:
        work.lock.close()


def good(least: int) -> set[int]:
    return {number for number in range(COUNT) if number % 4 and number > least}


def test_rows_that_pass_now_land_once_and_the_others_stay_with_their_new_reason(
    spark: SparkSession, shop: Callable[[int], Plan]
) -> None:
    old = good(40)
    run_well(spark, shop(40))
    plan = shop(20)
    (done,) = again(spark, plan, "silver.k", "error_reason = 'expectation'")
    assert done.landed == done.left == len(good(20) - old) and set(done.reasons) == {"expectation"}
    assert offsets(plan, "silver.k") == Counter(good(20))
    assert offsets(plan, "silver.k", "__quarantine") == Counter(set(range(COUNT)) - good(20))

    again(spark, plan, "silver.t")
    landed = offsets(plan, "silver.t")
    assert set(landed.values()) == {1} and set(landed) <= good(20)
    table = plan.table("silver.t")
    assert table is not None
    seqs = Counter(row["seq"] for row in rows_at(table.uri))
    assert set(seqs) == {50 if n % 10 == 1 else n for n in good(20)} and set(seqs.values()) == {1}
    assert offsets(plan, "silver.t", "__quarantine") == Counter(set(range(COUNT)) - good(20))

    (twice,) = again(spark, plan, "silver.t")
    assert (twice.landed, twice.left) == (0, 0) and offsets(plan, "silver.t") == landed
    (merged,) = again(spark, plan, "silver.m")
    assert merged.left == len(good(20) - old)
    run_well(spark, plan)
    gold = plan.table("gold.t")
    assert gold is not None and sum(row["n"] for row in rows_at(gold.uri)) == landed.total()
    for name in ("silver.k", "silver.t", "silver.m"):
        assert [entry.kind for entry in whole_chain(plan, name)].count("redrive") >= 1
    reports = verify([table for table in plan.tables if table.name != "gold.t"], LocalStore())
    assert all(report.ok() for report in reports), [report for report in reports if not report.ok()]


@pytest.mark.deep
def test_records_of_a_topic_that_was_made_again_are_not_taken_for_those_with_the_same_offsets(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    """Offset 0 was rejected and is another, good record now; offset 1 was rejected twice; offset 2 is there once."""
    from penstock.operations.reset import plan_reset, run_reset

    name = topic(1)

    def send(*amounts: int) -> None:
        for number, amount in enumerate(amounts):
            produce(broker.bootstrap, name, 1, partitions=[0], value=json.dumps({"id": number, "amount": amount}))

    def plan(least: int) -> Plan:
        return project({"silver.k": tables(name, least)["silver.k"]})

    send(1, 2, 3)
    run_well(spark, plan(40))
    make_again(broker, name, partitions=1)
    (table,) = plan(40).tables
    made = plan_reset(table, LocalStore(), "ledger")
    run_reset(spark, plan(40), made)
    send(50, 4)
    run_well(spark, plan(40))
    (done,) = again(spark, plan(0), "silver.k")
    assert (done.landed, done.left, done.reasons) == (1, 1, {"partly_landed": 3})
    assert offsets(plan(0), "silver.k") == Counter([0, 2])
    assert offsets(plan(0), "silver.k", "__quarantine") == Counter([0, 1, 1])
    (report,) = verify(plan(0).tables, LocalStore())
    assert not report.problems and report.conserved is not None and report.conserved.rejected == 3


@pytest.mark.parametrize("kept", [slice(1, 2), pytest.param(slice(4), marks=pytest.mark.deep)], ids=["one", "all"])
def test_a_redrive_that_dies_anywhere_is_finished_by_the_next_one(
    spark: SparkSession, shop: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    from penstock.operations import redrive as steps
    from penstock.operations.redrive import RedriveMarks
    from penstock.tables.staged import StagedProcessor

    run_well(spark, shop(40), "silver.k")
    places: list[tuple[Any, str]] = [
        (RedriveMarks, "mark"),
        (StagedProcessor, "write"),
        (steps, "_count"),
        (RedriveMarks, "settle"),
    ]
    for least, (owner, name) in list(zip((30, 20, 10, 0), places, strict=True))[kept]:
        plan = shop(least)
        with killed_at(monkeypatch, owner, name):
            again(spark, plan, "silver.k")
        run_well(spark, plan, "silver.k")
        again(spark, plan, "silver.k")
        assert offsets(plan, "silver.k") == Counter(good(least)), name
        assert offsets(plan, "silver.k", "__quarantine") == Counter(set(range(COUNT)) - good(least)), name
    (report,) = verify([table for table in plan.tables if table.name == "silver.k"], LocalStore())
    assert report.ok(), report
