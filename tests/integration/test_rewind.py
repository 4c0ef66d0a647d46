"""A table that went back and read on equals one that never went wrong, wherever it is cut off and whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged, UsageError
from penstock.operations.rewind_plan import plan_rewind
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.replay_shop import TWO, Shop, assert_equal, assert_silver, offsets
from tests.integration.run_plan import commits, killed_at, rows, run, run_well, running, wait_for
from tests.integration.run_replays import content, rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.operations.rewind_plan import RewindPlan
    from penstock.plan.model import Plan


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker, topic(1), tmp_path)


def newest(plan: Plan, name: str) -> int:
    return commits(plan, name)[-1].version


def planned(plan: Plan, name: str, version: int, *, cascade: bool = False) -> RewindPlan:
    table = plan.table(name)
    assert table is not None
    return plan_rewind(plan, table, LocalStore(), version=version, before=None, cascade=cascade)


def rewound(spark: SparkSession, plan: Plan, name: str, version: int, *, cascade: bool = False) -> None:
    from penstock.operations.rewind_plan import run_rewind

    for _ in run_rewind(spark, plan, planned(plan, name, version, cascade=cascade), lambda *_: None):
        pass


def assert_verified(plan: Plan) -> None:
    for report in verify([table for table in plan.tables if table.name in TWO], LocalStore()):
        assert report.ok(), report


def test_rows_quarantine_and_position_go_back_and_it_reads_on_by_the_definition_of_now(
    spark: SparkSession, shop: Shop
) -> None:
    shop.send(90)
    good = shop.plan()
    run_well(spark, good, *TWO)
    version, held, bad = newest(good, "silver.t"), content(good, "silver.t"), rejected(good, "silver.t")
    shop.send(60)
    run_well(spark, shop.plan(rule="amount > 30"), *TWO)
    assert content(good, "silver.t") != held

    asked = planned(good, "silver.t", version)
    assert asked.rows[1] == held.total() and asked.rejected == (rejected(good, "silver.t").total(), bad.total())
    rewound(spark, good, "silver.t", version)
    assert content(good, "silver.t") == held and rejected(good, "silver.t") == bad
    assert [c.entry.kind for c in commits(good, "silver.t")[-2:] if c.entry] == ["open", "rewind"]
    run_well(spark, good, *TWO)
    assert_silver(good, shop)
    assert_verified(good)


@pytest.mark.deep
def test_all_layers_go_back_with_a_bronze_table_and_equal_a_lake_that_never_went_wrong(
    spark: SparkSession, shop: Shop
) -> None:
    shop.send(90)
    plan = shop.plan()
    run_well(spark, plan)
    version = newest(plan, "bronze.t")
    shop.send(60)
    run_well(spark, plan)
    with pytest.raises(UsageError, match=r"silver\.t has read up to version"):
        planned(plan, "bronze.t", version)
    rewound(spark, plan, "bronze.t", version, cascade=True)
    run_well(spark, plan)
    assert_equal(plan, shop.made_at_once())


@pytest.mark.deep
def test_a_merged_table_goes_back_and_what_follows_its_changes_goes_with_it(spark: SparkSession, shop: Shop) -> None:
    names = ("bronze.t", "silver.c", "silver.copy")
    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *names)
    version = newest(plan, "silver.c")
    shop.send(60)
    run_well(spark, plan, *names)
    whole = living(plan, "silver.c")
    with pytest.raises(UsageError, match=r"silver\.copy has read up to version"):
        planned(plan, "silver.c", version)
    rewound(spark, plan, "silver.c", version, cascade=True)
    assert living(plan, "silver.c") != whole
    run_well(spark, plan, "silver.copy")
    assert living(plan, "silver.copy") == living(plan, "silver.c")
    run_well(spark, plan, *names)
    assert living(plan, "silver.copy") == living(plan, "silver.c") == whole


def living(plan: Plan, name: str) -> dict[int, tuple[object, ...]]:
    found = [row for row in rows(plan, name) if not row["_deleted"]]
    assert len(found) == len({row["id"] for row in found})
    return {row["id"]: (row["amount"], row["kind"], row["seq"]) for row in found}


@pytest.mark.deep
def test_a_reader_that_is_not_past_the_version_steps_over_what_is_undone(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan()
    shop.send(50)
    run_well(spark, plan, *TWO)
    for lag in (0, 30):
        if lag:
            shop.send(lag)
            run_well(spark, plan, "bronze.t")
        version = newest(plan, "bronze.t")
        shop.send(20)
        run_well(spark, plan, "bronze.t")
        rewound(spark, plan, "bronze.t", version)
        shop.send(20)
        run_well(spark, plan, *TWO)
        assert_silver(plan, shop)
    shop.send(20)
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)
    assert_verified(plan)


@pytest.mark.deep
def test_a_reader_that_reads_on_while_spark_starts_is_taken_along(spark: SparkSession, shop: Shop) -> None:
    from penstock.operations.rewind_plan import run_rewind

    plan = shop.plan()
    shop.send(50)
    run_well(spark, plan, *TWO)
    version = newest(plan, "bronze.t")
    shop.send(20)
    run_well(spark, plan, "bronze.t")
    alone, with_others = planned(plan, "bronze.t", version), planned(plan, "bronze.t", version, cascade=True)
    assert not with_others.cascade
    run_well(spark, plan, "silver.t")
    with pytest.raises(UsageError, match=r"silver\.t has read up to version"):
        list(run_rewind(spark, plan, alone, lambda *_: None))
    assert [one.table.name for one in run_rewind(spark, plan, with_others, lambda *_: None)] == ["bronze.t", "silver.t"]
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)
    assert_verified(plan)


@pytest.mark.parametrize("kept", [slice(1, 3), pytest.param(slice(4), marks=pytest.mark.deep)], ids=["two", "all"])
def test_one_that_was_cut_off_anywhere_is_finished_by_the_next_start(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    from penstock.operations import rewind
    from penstock.tables.quarantine import Quarantine

    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *TWO)
    places: list[tuple[Any, str, bool]] = [
        (Quarantine, "commit", False),
        (Quarantine, "commit", True),
        (rewind, "must_confirm", False),
        (rewind, "heal", False),
    ]
    for owner, name, after in places[kept]:
        version = newest(plan, "silver.t")
        shop.send(20)
        run_well(spark, plan, *TWO)
        with killed_at(monkeypatch, owner, name, after=after):
            rewound(spark, plan, "silver.t", version)
        run_well(spark, plan, "silver.t")
        assert_silver(plan, shop)
    assert_verified(plan)


@pytest.mark.deep
def test_it_goes_back_beside_a_running_stream_which_reads_on(spark: SparkSession, shop: Shop) -> None:
    shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, *TWO)
    version = newest(plan, "silver.t")
    shop.send(40)
    run_well(spark, plan, "bronze.t")
    with running(spark, plan, "silver.t"):
        wait_for(lambda: offsets(plan) == shop.good())
        rewound(spark, plan, "silver.t", version)
        wait_for(lambda: _is_batch_after_rewind(plan))
        wait_for(lambda: offsets(plan) == shop.good())
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)


def _is_batch_after_rewind(plan: Plan) -> bool:
    kinds = [c.entry.kind for c in commits(plan, "silver.t") if c.entry]
    return "rewind" in kinds and kinds[-1] == "batch"


@pytest.mark.deep
def test_rows_that_somebody_deleted_by_hand_come_back(spark: SparkSession, shop: Shop) -> None:
    from delta.tables import DeltaTable

    shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, *TWO)
    version, table = newest(plan, "silver.t"), plan.table("silver.t")
    assert table is not None
    DeltaTable.forPath(spark, table.uri).delete("id % 2 = 0")
    assert isinstance(run(spark, plan, "silver.t").errors["silver.t"], TableChanged)
    rewound(spark, plan, "silver.t", version)
    shop.send(20)
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)
    assert_verified(plan)


@pytest.mark.deep
def test_what_was_redriven_since_lies_in_the_quarantine_again(spark: SparkSession, shop: Shop) -> None:
    from penstock.operations.redrive import redrive
    from tests.integration.run_replays import work_on

    shop.send(60)
    strict, loose = shop.plan(rule="amount > 10"), shop.plan()
    run_well(spark, strict, *TWO)
    version = newest(strict, "silver.t")
    work = work_on(spark, loose, "silver.t")
    try:
        assert redrive(work, None)[0].landed
        rewound(spark, loose, "silver.t", version)
        assert_silver(loose, shop, 10)
        assert any(one.landed for one in redrive(work, None))
    finally:
        work.lock.close()
    run_well(spark, loose, *TWO)
    assert_silver(loose, shop)
