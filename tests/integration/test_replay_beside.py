"""Replays beside a runner, without locks, of part of a version; and what is made of the table meanwhile."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged
from penstock.operations.staleness import stale_against
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.replay_shop import TWO, Shop, assert_silver, offsets
from tests.integration.run_plan import (
    Heard,
    checkpoint,
    commits,
    coordinates,
    rows,
    run,
    run_well,
    running,
    wait_for,
)
from tests.integration.run_replays import content, rejected, replayed, work_on
from tests.integration.topics import forget_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker, topic(1), tmp_path)


def test_the_stream_waits_for_the_replay_and_goes_on_where_it_was(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *TWO)
    with running(spark, plan, "silver.t") as heard:
        shop.send(40)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.batches))
        replayed(spark, plan, "silver.t")
        shop.send(40)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: len(heard.batches) > 1)
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)
    assert not heard.errors


@pytest.mark.deep
def test_a_runner_with_an_outdated_definition_writes_nothing_after_a_replay(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *TWO)
    with running(spark, plan, "silver.t") as heard:
        shop.send(20)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.batches))
        new = shop.plan(rule="amount > 20")
        replayed(spark, new, "silver.t")
        shop.send(20)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.errors))
    assert isinstance(heard.errors["silver.t"], TableChanged)
    run_well(spark, new, *TWO)
    assert_silver(new, shop, 20)


@pytest.mark.deep
def test_without_our_locks_a_table_is_replayed_again_and_again(spark: SparkSession, shop: Shop) -> None:
    from penstock.operations.redrive import redrive

    shop.send(60)
    run_well(spark, shop.plan(), *TWO)
    for least in (5, 30):
        plan = shop.plan(rule=f"amount > {least}")
        replayed(spark, plan, "silver.t", remote=True)
        assert_silver(plan, shop, least)
    plan = shop.plan(rule="amount > 20")
    for _ in range(2):
        redrive(work_on(spark, plan, "silver.t", remote=True), None)
        assert offsets(plan, "__quarantine") == shop.bad(20)
        assert {row["seq"] for row in rows(plan, "silver.t")} == {offset // 2 * 2 for offset in shop.good(20)}
    shop.send(20)
    run_well(spark, plan, *TWO)
    assert offsets(plan, "__quarantine") == shop.bad(20)


def test_a_table_over_kafka_keeps_the_rows_whose_records_are_gone(
    spark: SparkSession, shop: Shop, broker: Broker
) -> None:
    from penstock.operations.replay_plan import plan_replay

    shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, "bronze.t")
    before = coordinates(plan)
    forget_records(broker.bootstrap, shop.topic, 0, 25)
    shop.send(10)
    bronze = plan.table("bronze.t")
    assert bronze is not None
    assert plan_replay(plan, bronze, LocalStore(), version=None, as_of=None, cascade=False).lost == {shop.topic: 25}
    filled = replayed(spark, plan, "bronze.t")
    assert (filled.kept_rows, filled.rows) == (25, 35)
    assert coordinates(plan) == before
    run_well(spark, plan, "bronze.t")
    assert coordinates(plan).total() == 70 and set(coordinates(plan).values()) == {1}
    (report,) = verify([bronze], LocalStore())
    assert report.ok(allow_partial=True), report


@pytest.mark.deep
def test_a_position_within_a_version_is_read_up_to_there_and_no_further(spark: SparkSession, shop: Shop) -> None:

    from penstock.plan.build import select_tables
    from penstock.runtime.runner import run_in

    for _ in range(3):  # bronze in several files of one version
        shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, "bronze.t")
    spark.read.format("delta").load(rows_uri(plan, "bronze.t")).repartition(6).write.format("delta").mode(
        "overwrite"
    ).option("dataChange", "false").save(rows_uri(plan, "bronze.t"))
    stop = threading.Event()

    class Stops(Heard):
        def batch(self, table: str, written: Any, seconds: float) -> None:
            super().batch(table, written, seconds)
            stop.set()

    run_in(spark, plan, select_tables(plan, ["silver.t"]), Stops(), once=True, stop=stop)
    part = content(plan, "silver.t")
    position = commits(plan, "silver.t")[-1].entry
    assert position is not None and json.loads(position.after[0])["index"] > 0
    whole = len(rows(plan, "bronze.t"))
    assert 0 < part.total() + rejected(plan, "silver.t").total() < whole
    replayed(spark, plan, "silver.t")
    assert content(plan, "silver.t") == part
    run_well(spark, plan, "silver.t")
    (report,) = verify([t for t in plan.tables if t.name == "silver.t"], LocalStore())
    assert report.ok(), report
    good = shop.good()
    assert {row["seq"] for row in rows(plan, "silver.t")} == {offset // 2 * 2 for offset in good}


def rows_uri(plan: Plan, name: str) -> str:
    table = plan.table(name)
    assert table is not None
    return table.uri


@pytest.mark.deep
def test_what_is_made_of_the_old_rows_is_stale_until_it_is_made_anew(spark: SparkSession, shop: Shop) -> None:
    from penstock.ledger.head import read_head
    from penstock.operations.replay import abort, open_replay, open_replay_head

    plan = shop.plan()
    names = ("bronze.t", "silver.t", "silver.c", "gold.t")
    shop.send(40)
    run_well(spark, plan, *names)

    def is_stale(name: str) -> bool:
        table = plan.table(name)
        assert table is not None
        tail = read_head(work_on(spark, plan, name).log)
        assert tail is not None
        return stale_against(table, tail, LocalStore()) is not None

    assert not is_stale("silver.t") and not is_stale("gold.t")
    replayed(spark, plan, "bronze.t")
    assert is_stale("silver.t") and is_stale("silver.c") and not is_stale("gold.t")
    replayed(spark, plan, "silver.t", at=commits(plan, "bronze.t")[-1].version)
    assert not is_stale("silver.t") and is_stale("gold.t")
    shop.send(40)
    run_well(spark, plan, *names)
    assert not is_stale("gold.t") and is_stale("silver.c")

    before = content(plan, "silver.t")
    work = work_on(spark, plan, "silver.t")
    open_replay(work, None, "test")
    tail = open_replay_head(work)
    assert tail is not None
    position = abort(work, tail).entry.after
    assert position == tail.entry.before and content(plan, "silver.t") == before
    assert not run(spark, plan, "silver.t").errors
    assert (checkpoint(plan, tail.entry.generation + 1, "silver.t") / "offsets").exists()
