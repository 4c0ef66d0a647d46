"""Commits that Penstock did not make: refused where rows went, reported where rows came, else left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import PenstockError, TableChanged
from tests.integration.copied_lakes import Lake, make_lake
from tests.integration.run_plan import TABLE, checkpoint, commits, log, refusal, run_well, running, wait_for


@pytest.fixture(scope="module")
def base(spark: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(spark, broker, "foreign", tmp_path_factory.mktemp("foreign"))


@pytest.fixture
def lake(base: Lake, tmp_path: Path) -> Lake:
    return base.copied(tmp_path)


def sql(lake: Lake, statement: str) -> None:
    lake.spark.sql(statement.replace("TABLE_", f"delta.`{lake.uri}`"))


def refused(lake: Lake) -> PenstockError:
    lake.more()
    return refusal(lake.spark, lake.plan, TableChanged)


def replace_by(lake: Lake, older: Path) -> None:
    shutil.rmtree(lake.uri)
    shutil.copytree(older, lake.uri)


@pytest.fixture
def older(lake: Lake, tmp_path: Path) -> Path:
    """A copy of the table from before its last batch: as of version 3, while the table goes on."""
    shutil.copytree(lake.uri, tmp_path / "older")
    lake.goes_on()
    return tmp_path / "older"


def test_a_restore_by_hand_is_refused_with_what_is_gone(lake: Lake) -> None:
    sql(lake, "RESTORE TABLE TABLE_ TO VERSION AS OF 1")
    error = refused(lake)
    assert f"no longer holds {lake.topic}-0 [2, 6), {lake.topic}-1 [2, 6)" in str(error)
    assert "--to version:1" in (error.hint or "")


@pytest.mark.parametrize("statement", ["DELETE FROM TABLE_ WHERE partition = 0", "DELETE FROM TABLE_", "TRUNCATE"])
def test_a_delete_by_hand_is_refused(lake: Lake, statement: str) -> None:
    if statement == "TRUNCATE":
        lake.spark.read.format("delta").load(lake.uri).limit(0).write.format("delta").mode("overwrite").save(lake.uri)
    else:
        sql(lake, statement)
    assert "checkpoints reset" in (refused(lake).hint or "")


def test_a_delete_followed_by_maintenance_is_still_refused(lake: Lake) -> None:
    sql(lake, "DELETE FROM TABLE_ WHERE partition = 0")
    sql(lake, "OPTIMIZE TABLE_")
    sql(lake, "ALTER TABLE TABLE_ SET TBLPROPERTIES ('team' = 'data')")
    refused(lake)


def test_a_table_folder_replaced_by_an_older_copy_is_refused_with_the_range(lake: Lake, older: Path) -> None:
    replace_by(lake, older)
    assert f"Not in the table: {lake.topic}-0 [6, " in str(refused(lake))


def test_an_older_copy_whose_checkpoint_is_gone_too_is_filled_up_from_kafka(lake: Lake, older: Path) -> None:
    """Nothing contradicts the table any more, and its own ledger says what it lacks."""
    replace_by(lake, older)
    shutil.rmtree(checkpoint(lake.plan))
    lake.goes_on()


def test_a_table_folder_that_was_deleted_is_refused(lake: Lake) -> None:
    shutil.rmtree(lake.uri)
    assert "the table is gone" in str(refused(lake))
    assert not Path(lake.uri).exists()


def test_a_table_made_by_somebody_else_is_refused(spark: Any, topic: Any, project: Any) -> None:
    plan = project({TABLE: {"from": {"kafka": topic()}}})
    spark.range(3).write.format("delta").save(plan.tables[0].uri)
    assert "without a ledger entry" in str(refusal(spark, plan, TableChanged))


def test_compaction_and_properties_between_batches_are_fine(lake: Lake) -> None:
    sql(lake, "OPTIMIZE TABLE_")
    sql(lake, "ALTER TABLE TABLE_ SET TBLPROPERTIES ('team' = 'data')")
    heard = lake.goes_on()
    assert not heard.messages
    shutil.rmtree(checkpoint(lake.plan))
    lake.goes_on()


def test_auto_compaction_after_a_batch_is_fine(lake: Lake) -> None:
    sql(
        lake,
        "ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true', "
        "'delta.autoOptimize.optimizeWrite' = 'true')",
    )
    lake.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    try:
        lake.goes_on()
        assert "OPTIMIZE" in [commit.operation for commit in commits(lake.plan)]
        lake.goes_on()
    finally:
        lake.spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")


BY_HAND = ("by hand", 0, 0)
INSERT = "INSERT INTO TABLE_ (topic, partition, offset) VALUES ('by hand', 0, 0)"


def test_rows_added_by_others_while_it_ran_are_reported_and_kept(lake: Lake) -> None:
    with running(lake.spark, lake.plan) as heard:
        wait_for(lake.holds_all)
        sql(lake, INSERT)
        lake.more(1)
        wait_for(lambda: lake.holds_all(BY_HAND))
    assert heard.heard("1 rows were added by others")


def test_rows_added_by_others_while_it_was_stopped_are_reported_once(lake: Lake) -> None:
    sql(lake, INSERT)
    assert lake.goes_on(BY_HAND).heard("1 rows were added by others")
    assert not lake.goes_on(BY_HAND).heard("added by others")


def test_a_delete_while_it_runs_stops_the_table_at_its_next_batch(lake: Lake) -> None:
    with running(lake.spark, lake.plan) as heard:
        wait_for(lake.holds_all)
        sql(lake, "DELETE FROM TABLE_ WHERE partition = 0")
        versions = log(lake.plan.tables[0]).versions()
        lake.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert log(lake.plan.tables[0]).versions() == versions


def test_a_delete_while_a_batch_is_being_written_stops_the_table(lake: Lake) -> None:
    """After the look at the log and before the commit: Delta lets an append follow a delete."""
    from penstock.tables import landing

    make_rows, done = landing.landed_rows, []

    def delete_first(batch: Any, table: Any, pins: Any) -> Any:
        if not done:
            done.append(sql(lake, "DELETE FROM TABLE_ WHERE partition = 0"))
        return make_rows(batch, table, pins)

    lake.more(2)
    landing.landed_rows = delete_first  # the moment cannot be hit from outside
    try:
        with pytest.raises(TableChanged):
            run_well(lake.spark, lake.plan, TABLE)
    finally:
        landing.landed_rows = make_rows
    refused(lake)


def test_a_table_deleted_while_it_runs_is_not_made_anew_without_its_rows(lake: Lake) -> None:
    with running(lake.spark, lake.plan) as heard:
        wait_for(lake.holds_all)
        shutil.rmtree(lake.uri)
        lake.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert not log(lake.plan.tables[0]).versions()
    refused(lake)


def test_a_table_replaced_by_an_older_copy_while_it_runs_gets_no_gap(lake: Lake, older: Path) -> None:
    with running(lake.spark, lake.plan) as heard:
        lake.more(1)
        wait_for(lake.holds_all)
        replace_by(lake, older)
        lake.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert log(lake.plan.tables[0]).versions() == [0, 1, 2, 3]
    refused(lake)
