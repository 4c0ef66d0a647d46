"""A batch that was cut off between its good rows and its rejected ones, and then another generation: no rejected row is
lost."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal
from penstock.storage.stores import LocalStore
from penstock.tables.quarantine import Quarantine
from penstock.verify.table import verify
from tests.integration.run_plan import killed_at, make_plan, produce, rows, rows_at, run, run_well
from tests.integration.run_replays import replayed
from tests.integration.test_without_locks import by_uri
from tests.integration.topics import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

NAME = "silver.t"
DECODE = {"json": "value", "schema": "n BIGINT"}


def send(broker: Any, topic: str) -> None:
    """Two that are good, then two that are not."""
    produce(broker.bootstrap, topic, 2, partitions=[0], value='{"n": 1}')
    produce(broker.bootstrap, topic, 2, partitions=[0], value="{")


def quarantined(plan: Plan) -> Counter[tuple[str, int]]:
    table = plan.table(NAME)
    assert table is not None
    return Counter((row["_source"]["topic"], row["_source"]["offset"]) for row in rows_at(f"{table.uri}__quarantine"))


def assert_whole(plan: Plan, *topics: str) -> None:
    good = Counter((row["_source"]["topic"], row["_source"]["offset"]) for row in rows(plan, NAME))
    assert good == Counter((topic, offset) for topic in topics for offset in (0, 1))
    assert quarantined(plan) == Counter((topic, offset) for topic in topics for offset in (2, 3))
    (report,) = verify(plan.tables, LocalStore())
    assert report.ok(), report


@pytest.fixture
def cut_off(
    spark: SparkSession, broker: Any, topic: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """The folder of the project, and the topic."""
    name = topic(1)
    plan = make_plan(tmp_path, broker.bootstrap, {NAME: {"from": {"kafka": name}, "decode": DECODE}})
    send(broker, name)
    with monkeypatch.context() as patched:
        patched.setattr(Quarantine, "add", _dies)
        assert "killed" in run(spark, plan).errors[NAME].message
    assert len(rows(plan, NAME)) == 2 and not quarantined(plan)
    return tmp_path, name


def test_a_runner_that_takes_over_on_an_object_store_completes_it(
    spark: SparkSession, broker: Any, cut_off: tuple[Path, str]
) -> None:
    folder, name = cut_off
    plan = make_plan(folder, broker.bootstrap, {NAME: {"from": {"kafka": name}, "decode": DECODE}})
    run_well(spark, by_uri(plan))
    assert_whole(plan, name)
    run_well(spark, by_uri(plan))
    assert_whole(plan, name)


@pytest.mark.parametrize("beside", [True, False], ids=["beside the first", "in its place"])
def test_a_table_that_gets_another_topic_completes_it(
    spark: SparkSession, broker: Any, topic: Any, cut_off: tuple[Path, str], beside: bool
) -> None:
    folder, name = cut_off
    other = topic(1)
    send(broker, other)
    read = [name, other] if beside else other
    plan = make_plan(folder, broker.bootstrap, {NAME: {"from": {"kafka": read}, "decode": DECODE}})
    run_well(spark, plan)
    assert_whole(plan, name, other)


def test_a_reset_completes_it(spark: SparkSession, broker: Any, cut_off: tuple[Path, str]) -> None:
    folder, name = cut_off
    plan = make_plan(folder, broker.bootstrap, {NAME: {"from": {"kafka": name}, "decode": DECODE}})
    tail = _reset(spark, plan, "ledger")
    assert "missing" not in (tail.entry.note or "")
    assert_whole(plan, name)
    run_well(spark, plan)
    assert_whole(plan, name)


def test_a_replay_that_is_aborted_has_completed_it(
    spark: SparkSession, broker: Any, cut_off: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.ledger.write_target import StagedOverwrite
    from penstock.operations.rewind_plan import plan_abort, run_abort

    folder, name = cut_off
    plan = make_plan(folder, broker.bootstrap, {NAME: {"from": {"kafka": name}, "decode": DECODE}})
    with killed_at(monkeypatch, StagedOverwrite, "append"):
        replayed(spark, plan, NAME)
    run_abort(spark, plan, plan_abort("replay", plan.tables[0], LocalStore()))
    assert_whole(plan, name)
    run_well(spark, plan)
    assert_whole(plan, name)


def test_what_can_no_longer_be_read_is_refused_and_a_reset_says_what_is_missing(
    spark: SparkSession, broker: Any, topic: Any, cut_off: tuple[Path, str]
) -> None:
    folder, name = cut_off
    delete_topic(broker.bootstrap, name)
    other = topic(1)
    plan = make_plan(folder, broker.bootstrap, {NAME: {"from": {"kafka": other}, "decode": DECODE}})
    heard = run(spark, plan)
    error = heard.errors[NAME]
    assert isinstance(error, Terminal) and "was cut off between its good rows and its rejected ones" in error.message
    assert "checkpoints reset silver.t --to ledger" in (error.hint or "")
    tail = _reset(spark, plan, "ledger")
    assert "the rejected rows of batch 1.1 may be missing in quarantine" in (tail.entry.note or "")
    run_well(spark, plan)


def _dies(self: Quarantine, *given: Any, **more: Any) -> int:
    raise Terminal("killed between the two commits")


def _reset(spark: SparkSession, plan: Plan, to: str) -> Any:
    from penstock.operations.reset import plan_reset, run_reset

    (table,) = plan.tables
    planned = plan_reset(table, LocalStore(), to, ())
    return run_reset(spark, plan, planned)
