"""Commits that Penstock did not make: refused where rows went, reported where rows came, else left alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from runs import (
    TABLE,
    Coordinates,
    checkpoint,
    commits,
    coordinates,
    log,
    produce,
    refusal,
    run_well,
    running,
    wait_for,
    whole_chain,
)

from penstock.errors import PenstockError, TableChanged


class Landed:
    """A table with two batches: 4 records, then 2 more."""

    def __init__(self, spark: Any, broker: Any, topic: str, plan: Any) -> None:
        self.spark, self.bootstrap, self.topic, self.plan = spark, broker.bootstrap, topic, plan
        self.uri = plan.tables[0].uri
        self.produced: Coordinates = produce(self.bootstrap, topic, 4)
        run_well(spark, plan)
        self.older = Path(plan.root) / "older"
        shutil.copytree(self.uri, self.older)
        self.more(2)
        run_well(spark, plan)

    def more(self, count: int = 3) -> None:
        self.produced += produce(self.bootstrap, self.topic, count)

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("TABLE_", f"delta.`{self.uri}`"))

    def goes_on(self) -> Any:
        self.more()
        heard = run_well(self.spark, self.plan)
        assert coordinates(self.plan) == self.produced
        whole_chain(self.plan)
        return heard

    def refused(self) -> PenstockError:
        self.more()
        return refusal(self.spark, self.plan, TableChanged)


@pytest.fixture
def landed(spark: Any, broker: Any, topic: Any, project: Any) -> Landed:
    name = topic()
    return Landed(spark, broker, name, project({TABLE: {"from": {"kafka": name}, "trigger": "1s"}}))


def test_a_restore_by_hand_is_refused_with_what_is_gone(landed: Landed) -> None:
    landed.sql("RESTORE TABLE TABLE_ TO VERSION AS OF 1")
    error = landed.refused()
    assert f"no longer holds {landed.topic}-0 [2, 3), {landed.topic}-1 [2, 3)" in str(error)
    assert "--to version:1" in (error.hint or "")


@pytest.mark.parametrize("statement", ["DELETE FROM TABLE_ WHERE partition = 0", "DELETE FROM TABLE_", "TRUNCATE"])
def test_a_delete_by_hand_is_refused(landed: Landed, statement: str) -> None:
    if statement == "TRUNCATE":
        landed.spark.read.format("delta").load(landed.uri).limit(0).write.format("delta").mode("overwrite").save(
            landed.uri
        )
    else:
        landed.sql(statement)
    assert "checkpoints reset" in (landed.refused().hint or "")


def test_a_delete_followed_by_maintenance_is_still_refused(landed: Landed) -> None:
    landed.sql("DELETE FROM TABLE_ WHERE partition = 0")
    landed.sql("OPTIMIZE TABLE_")
    landed.sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('owner' = 'me')")
    landed.refused()


def test_a_table_folder_replaced_by_an_older_copy_is_refused_with_the_range(landed: Landed) -> None:
    shutil.rmtree(landed.uri)
    shutil.copytree(landed.older, landed.uri)
    assert f"{landed.topic}-0 [2, 3), {landed.topic}-1 [2, 3)" in str(landed.refused())


def test_an_older_copy_whose_checkpoint_is_gone_too_is_filled_up_from_kafka(landed: Landed) -> None:
    """Nothing contradicts the table any more, and its own ledger says what it lacks."""
    shutil.rmtree(landed.uri)
    shutil.copytree(landed.older, landed.uri)
    shutil.rmtree(checkpoint(landed.plan))
    landed.goes_on()


def test_a_table_folder_that_was_deleted_is_refused(landed: Landed) -> None:
    shutil.rmtree(landed.uri)
    assert "the table is gone" in str(landed.refused())
    assert not Path(landed.uri).exists()


def test_a_table_made_by_somebody_else_is_refused(spark: Any, topic: Any, project: Any) -> None:
    plan = project({TABLE: {"from": {"kafka": topic()}}})
    spark.range(3).write.format("delta").save(plan.tables[0].uri)
    assert "without a ledger entry" in str(refusal(spark, plan, TableChanged))


def test_compaction_and_properties_between_batches_are_fine(landed: Landed) -> None:
    landed.sql("OPTIMIZE TABLE_")
    landed.sql("ALTER TABLE TABLE_ SET TBLPROPERTIES ('owner' = 'me')")
    heard = landed.goes_on()
    assert not heard.messages
    shutil.rmtree(checkpoint(landed.plan))
    landed.goes_on()


def test_auto_compaction_after_a_batch_is_fine(landed: Landed) -> None:
    landed.sql(
        "ALTER TABLE TABLE_ SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true', "
        "'delta.autoOptimize.optimizeWrite' = 'true')"
    )
    landed.spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    try:
        landed.goes_on()
        assert "OPTIMIZE" in [commit.operation for commit in commits(landed.plan)]
        landed.goes_on()
    finally:
        landed.spark.conf.unset("spark.databricks.delta.autoCompact.minNumFiles")


def test_rows_added_by_others_while_it_ran_are_reported_and_kept(landed: Landed) -> None:
    with running(landed.spark, landed.plan) as heard:
        landed.more(1)
        wait_for(lambda: len(heard.batches) == 1)
        landed.sql("INSERT INTO TABLE_ (topic, partition, offset) VALUES ('by hand', 0, 0)")
        landed.more(1)
        wait_for(lambda: len(heard.batches) == 2)
        assert heard.heard("1 rows were added by others")
    landed.produced[("by hand", 0, 0)] += 1
    assert coordinates(landed.plan) == landed.produced


def test_rows_added_by_others_while_it_was_stopped_are_reported_once(landed: Landed) -> None:
    landed.sql("INSERT INTO TABLE_ (topic, partition, offset) VALUES ('by hand', 0, 0)")
    landed.produced[("by hand", 0, 0)] += 1
    assert landed.goes_on().heard("1 rows were added by others")
    assert not landed.goes_on().heard("added by others")


def test_a_delete_while_it_runs_stops_the_table_at_its_next_batch(landed: Landed) -> None:
    with running(landed.spark, landed.plan) as heard:
        landed.more(1)
        wait_for(lambda: len(heard.batches) == 1)
        landed.sql("DELETE FROM TABLE_ WHERE partition = 0")
        landed.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert len(heard.batches) == 1


def test_a_delete_while_a_batch_is_being_written_stops_the_table(landed: Landed) -> None:
    """After the look at the log and before the commit: Delta lets an append follow a delete."""
    from penstock.engine import bronze

    make_rows, done = bronze.rows, []

    def delete_first(batch: Any, table: Any, pins: Any) -> Any:
        if not done:
            done.append(landed.sql("DELETE FROM TABLE_ WHERE partition = 0"))
        return make_rows(batch, table, pins)

    landed.more(2)
    bronze.rows = delete_first  # the moment cannot be hit from outside
    try:
        with pytest.raises(TableChanged):
            run_well(landed.spark, landed.plan)
    finally:
        bronze.rows = make_rows
    landed.refused()


def test_a_table_deleted_while_it_runs_is_not_made_anew_without_its_rows(landed: Landed) -> None:
    with running(landed.spark, landed.plan) as heard:
        landed.more(1)
        wait_for(lambda: len(heard.batches) == 1)
        shutil.rmtree(landed.uri)
        landed.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert not log(landed.plan.tables[0]).versions()


def test_a_table_replaced_by_an_older_copy_while_it_runs_gets_no_gap(landed: Landed) -> None:
    with running(landed.spark, landed.plan) as heard:
        landed.more(1)
        wait_for(lambda: len(heard.batches) == 1)
        shutil.rmtree(landed.uri)
        shutil.copytree(landed.older, landed.uri)
        landed.more(1)
        wait_for(lambda: bool(heard.errors))
        assert isinstance(heard.errors[TABLE], TableChanged)
    assert log(landed.plan.tables[0]).versions() == [0, 1]
