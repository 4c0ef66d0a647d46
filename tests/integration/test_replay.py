"""A table made anew from what it has read equals one that was made so from the beginning, wherever it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.replay_shop import DOUBLED, TWO, Shop, assert_equal, assert_silver
from tests.integration.run_plan import (
    commits,
    killed_at,
    run_well,
)
from tests.integration.run_replays import content, rejected, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker

FEW = ("bronze.t", "silver.t", "silver.c", "gold.t")


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker, topic(1), tmp_path)


@pytest.mark.parametrize("names", [FEW, pytest.param((), marks=pytest.mark.deep, id="all")])
def test_three_layers_replayed_under_another_rule_equal_a_rebuild_and_go_on(
    spark: SparkSession, shop: Shop, names: tuple[str, ...]
) -> None:
    from penstock.operations.replay_plan import plan_replay, run_replay
    from penstock.operations.replay_preview import preview_replay

    shop.names = names
    shop.send(150)
    old = shop.plan()
    run_well(spark, old)
    shop.send(50)
    run_well(spark, old)
    new = shop.plan(rule="amount > 10", shown=DOUBLED)
    silver = new.table("silver.t")
    assert silver is not None
    planned = plan_replay(new, silver, LocalStore(), version=None, as_of=None, cascade=True)
    assert [one.table.name for one in planned.cascade] == ["gold.t"] and not planned.moves

    before = content(new, "silver.t")
    outlook = preview_replay(spark, new, planned)
    assert content(new, "silver.t") == before and len(commits(new, "silver.t")) == len(commits(old, "silver.t"))
    done = {table.name: filled for table, filled in run_replay(spark, new, planned, lambda *_: None)}
    now = content(new, "silver.t")
    assert outlook.rows.rows == now.total() and outlook.rows.removed == before.total() - now.total() > 0
    assert outlook.rows.changed == now.total() and outlook.rows.added == 0
    assert (
        sum(outlook.rejected_then.values())
        == rejected(new, "silver.t").total()
        == done["silver.t"].row_counts["rejected"]
    )
    assert [c.entry.kind for c in commits(new, "silver.t")[-2:] if c.entry] == ["open", "fill"]
    for name in ("silver.c", "silver.h"):
        if not names or name in names:
            replayed(spark, new, name)
    shop.send(50)
    run_well(spark, new)
    assert_equal(new, shop.made_at_once(rule="amount > 10", shown=DOUBLED))


def places() -> list[tuple[Any, str, bool]]:
    """Where a replay can die: before or after these are done."""
    from penstock.ledger.write_target import StagedOverwrite
    from penstock.operations import replay
    from penstock.tables.quarantine import Quarantine

    return [
        (StagedOverwrite, "append", False),
        (StagedOverwrite, "append", True),
        (Quarantine, "add", True),
        (StagedOverwrite, "commit", True),
        (replay, "heal", True),
        (Quarantine, "drop", True),
    ]


@pytest.mark.parametrize("kept", [slice(2, 4), pytest.param(slice(6), marks=pytest.mark.deep)], ids=["two", "all"])
def test_a_replay_that_dies_anywhere_is_finished_by_the_next_start(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch, kept: slice
) -> None:
    shop.send(120)
    run_well(spark, shop.plan(), *TWO)
    for number, (owner, name, after) in list(enumerate(places()))[kept]:
        plan = shop.plan(rule=f"amount > {number * 5}")
        before = content(plan, "silver.t")
        with killed_at(monkeypatch, owner, name, after=after):
            replayed(spark, plan, "silver.t")
        last = commits(plan, "silver.t")[-1].entry
        assert last is not None
        assert last.kind == "fill" or content(plan, "silver.t") == before, name
        run_well(spark, plan, "silver.t")
        assert_silver(plan, shop, number * 5)
    shop.send(10)
    run_well(spark, plan, *TWO)
    assert all(one.ok() for one in verify([t for t in plan.tables if t.name in TWO], LocalStore()))
