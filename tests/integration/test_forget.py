"""Somebody forgotten is nowhere: in no version, no file, no log; and all that is made of his rows is as if they had
never been."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import UsageError
from penstock.ledger.pending import forgotten_since
from penstock.spark.jvm import jvm_of
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.byte_search import named
from tests.integration.forget_shop import ANN, BOB, EVE, Shop, forget
from tests.integration.run_plan import commits, log, rows, rows_at, run_well
from tests.integration.run_replays import replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

THREE = ("bronze.orders", "silver.orders", "gold.by_customer")


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker.bootstrap, topic(1), tmp_path)


def assert_without(plan: Plan, shop: Shop, *gone: str, closed: bool = False) -> None:
    """Every table is what plain Python makes of the records of all others."""
    left = [one for one in shop.sent if one["customer"] not in gone]
    good = [one for one in left if one.get("amount", 0) > 0]
    assert Counter(row["order_id"] for row in rows(plan, "silver.orders")) == Counter(one["order_id"] for one in good)
    silver = plan.table("silver.orders")
    assert silver is not None
    assert len(rows_at(f"{silver.uri}__quarantine")) == len(left) - len(good)
    landed = rows(plan, "bronze.orders")
    assert len(landed) == len(shop.sent)
    assert sum(row["value"] is None for row in landed) == len(shop.sent) - len(left)
    by = {row["customer"]: row["orders"] for row in rows(plan, "gold.by_customer")}
    assert by == Counter(one["customer"] for one in good)
    if plan.table("gold.daily") is not None:
        _assert_others(plan, good, [one for one in left if "order_id" in one], closed=closed)
    for report in verify(plan.tables, LocalStore()):
        # windows that are final do not follow a replay of what they were made of: that is told
        assert report.ok(allow_partial=report.table == "gold.closed" and not closed), report


def _assert_others(plan: Plan, good: list[dict[str, Any]], decoded: list[dict[str, Any]], *, closed: bool) -> None:
    """`closed`: no record has come too late since the closed windows were made."""
    days = {one["at"][:10] for one in good}
    wanted = {day: [one for one in good if one["at"][:10] == day] for day in days}
    daily = {str(row["window_start"])[:10]: (row["orders"], row["sum"], row["who"]) for row in rows(plan, "gold.daily")}
    assert daily == {
        day: (len(of), sum(one["amount"] for one in of), len({one["customer"] for one in of}))
        for day, of in wanted.items()
    }
    for row in rows(plan, "gold.closed") if closed else ():
        of = wanted[str(row["window_start"])[:10]]
        assert (row["orders"], row["sum"]) == (len(of), sum(one["amount"] for one in of))
    newest = {one["customer"]: one["seq"] for one in decoded}
    for name in ("silver.customers", "silver.copy"):
        living = {row["customer"]: row["seq"] for row in rows(plan, name) if not row["_deleted"]}
        assert living == newest, name


@pytest.mark.parametrize("names", [THREE, pytest.param((), marks=pytest.mark.deep, id="all")])
def test_somebody_forgotten_is_nowhere_and_all_tables_are_as_without_him(
    spark: SparkSession, shop: Shop, names: tuple[str, ...]
) -> None:
    from penstock.operations.replay_plan import plan_replay

    plan = shop.plan(*names)
    shop.send(90)
    run_well(spark, plan)
    shop.send(30)
    run_well(spark, plan, "bronze.orders")  # its readers are behind
    assert named(shop.folder, [ANN])

    done = forget(spark, plan, ANN)

    assert not done.problems, "\n".join(done.problems)
    assert not named(shop.folder, [ANN])
    assert_without(plan, shop, ANN, closed=True)
    assert done.places["bronze.orders"].rows == 40 and done.places["bronze.orders"].redacted

    before = {table.name: len(commits(plan, table.name)) for table in plan.tables}
    again = forget(spark, plan, ANN)
    assert again.proven and not any(one.rows or one.removed_files for one in again.places.values())
    assert {table.name: len(commits(plan, table.name)) for table in plan.tables} == before
    assert sum(commit.rows for commit in again.places["bronze.orders"].commits) == 40

    bronze, silver = plan.tables[:2]
    version = forgotten_since(log(bronze))
    assert version is not None
    with pytest.raises(UsageError, match=f"forgotten in version {version}"):
        plan_replay(plan, silver, LocalStore(), version=version - 1, as_of=None, cascade=True)

    if names:
        return
    shop.send(30)  # the topic brings him again
    run_well(spark, plan)
    replayed(spark, plan, "silver.orders")
    run_well(spark, plan)
    assert not named(shop.folder, [ANN])
    assert_without(plan, shop, ANN)


@pytest.mark.deep
def test_names_in_the_log_of_a_table_that_had_statistics_go_too(spark: SparkSession, shop: Shop) -> None:
    from penstock.erasure.rewrite import checkpoint

    shop.send(60)
    run_well(spark, shop.plan(*THREE, declared=False))
    plan = shop.plan(*THREE)
    silver = plan.table("silver.orders")
    assert silver is not None
    checkpoint(spark, silver.uri)
    texts = [path.read_text() for path in Path(f"{silver.uri}/_delta_log").glob("*.json")]
    assert any(ANN in text for text in texts)  # as the least value of a file

    done = forget(spark, plan, ANN, BOB)

    assert not done.problems, "\n".join(done.problems)
    assert not named(shop.folder, [ANN, BOB]) and named(shop.folder, [EVE])
    assert done.places["silver.orders"].log_rewritten and done.places["silver.orders"].log_removed
    assert_without(plan, shop, ANN, BOB)


@pytest.mark.deep
def test_a_reader_that_cannot_be_brought_on_keeps_its_files_and_is_named(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan(*THREE)
    shop.send(30)
    run_well(spark, plan)
    shop.send(30)
    run_well(spark, plan, "bronze.orders")

    done = forget(spark, plan, ANN, runs=False)

    assert not done.proven and any("silver.orders" in problem for problem in done.problems)
    assert set(done.places["bronze.orders"].needed_by) == {"silver.orders"}
    run_well(spark, plan)
    assert forget(spark, plan, ANN).proven
    assert not named(shop.folder, [ANN])
    assert_without(plan, shop, ANN)


STEPS = [
    ("penstock.erasure.rewrite.must_confirm", 1),  # bronze is done
    ("penstock.erasure.rewrite.must_confirm", 2),  # silver is, its quarantine is counted and not done
    ("penstock.erasure.rewrite.Rewrite.commit", 3),  # that is done too
    ("penstock.erasure.forget.catch_up_readers", 1),
    ("penstock.erasure.files.delete_file", 2),
    ("penstock.erasure.forget.remove_files_with_names", 2),
    ("penstock.erasure.forget.clean_log", 1),
]


@pytest.mark.deep
@pytest.mark.parametrize(("step", "time"), STEPS)
def test_a_forget_that_is_cut_off_is_finished_by_the_next_one(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch, step: str, time: int
) -> None:
    plan = shop.plan(*THREE)
    shop.send(60)
    run_well(spark, plan)
    with monkeypatch.context() as patched:
        dies(patched, step, time)
        with contextlib.suppress(KeyboardInterrupt):
            forget(spark, plan, ANN)
    assert forget(spark, plan, ANN).proven
    assert not named(shop.folder, [ANN])
    assert_without(plan, shop, ANN)


def dies(patched: pytest.MonkeyPatch, step: str, time: int) -> None:
    """After its work, the time that it is called so often."""
    import importlib

    module, _, name = step.rpartition(".")
    owner: Any = importlib.import_module(module) if module.islower() else None
    if owner is None:
        module, _, kind = module.rpartition(".")
        owner = getattr(importlib.import_module(module), kind)
    whole, times = getattr(owner, name), []

    def dying(*given: Any, **more: Any) -> Any:
        made = whole(*given, **more)
        times.append(1)
        if len(times) == time:
            raise KeyboardInterrupt
        return made

    patched.setattr(owner, name, dying)


@pytest.mark.parametrize("name", ["Erase", "Files"])
def test_the_files_of_so_many_tables_are_remembered_and_no_more(spark: SparkSession, name: str) -> None:
    java_class = jvm_of(spark).org.apache.spark.util.Utils.classForName(f"penstock.delta.{name}", True, False)
    field = java_class.getDeclaredField("KNOWN")
    field.setAccessible(True)
    known = field.get(None)
    for number in range(250):
        known[f"table {number}"] = None
    assert len(known) == 200
    assert "table 249" in known and "table 0" not in known
    known.clear()
