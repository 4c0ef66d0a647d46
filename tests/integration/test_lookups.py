"""Lookups: the static side of a join, as of one version in a batch, and the same one if the batch is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Transient
from penstock.plan.quarantine import quarantine_of
from tests.integration.run_plan import checkpoint, commits, produce, rows, rows_at, run, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTS = "silver.facts"
SQL = "SELECT i.*, p.name FROM input i LEFT JOIN people p ON i.id = p.id"


def tables(topic: str, lookup: str, **more: Any) -> dict[str, Any]:
    return {
        FACTS: {
            "from": {"kafka": topic},
            "decode": {"json": "value", "schema": "id BIGINT NOT NULL"},
            "lookups": {"people": lookup},
            "sql": SQL,
            **more,
        }
    }


def send(broker: Any, topic: str, *numbers: int) -> None:
    for number in numbers:
        produce(broker.bootstrap, topic, 1, partitions=[0], value=json.dumps({"id": number}))


def people(spark: SparkSession, place: Path, **named: int) -> None:
    data = [(number, name) for name, number in named.items()]
    spark.createDataFrame(data, "id BIGINT, name STRING").write.format("delta").mode("overwrite").save(str(place))


def found(plan: Any) -> list[tuple[int, str | None]]:
    return sorted(((row["id"], row["name"]) for row in rows(plan, FACTS)), key=str)


def test_a_lookup_by_path_is_read_fresh_in_every_batch(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    name = topic(partitions=1)
    people(spark, tmp_path / "dim", ann=1)
    plan = project(tables(name, str(tmp_path / "dim")))
    send(broker, name, 1, 2)
    run_well(spark, plan)
    people(spark, tmp_path / "dim", ann=1, bob=2)
    send(broker, name, 1, 2)
    run_well(spark, plan)
    assert found(plan) == [(1, "ann"), (1, "ann"), (2, "bob"), (2, None)]
    entries = [entry for entry in whole_chain(plan, FACTS) if entry.kind == "batch"]
    assert [dict(entry.pins.lookups) for entry in entries] == [{"people": 0}, {"people": 1}]


def test_a_batch_that_is_run_again_looks_up_in_the_same_version(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    """Its rows were never committed, so they are computed anew: by what the batch had pinned."""
    name = topic(partitions=1)
    people(spark, tmp_path / "dim", ann=1)
    plan = project(tables(name, str(tmp_path / "dim")))
    send(broker, name, 1)
    run_well(spark, plan)
    table = plan.table(FACTS)
    assert table is not None
    send(broker, name, 1)
    run_well(spark, plan)
    newest = commits(plan, FACTS)[-1].version
    for path in (Path(table.uri) / "_delta_log").iterdir():
        if f"{newest:020}" in path.name:
            path.unlink()
    (checkpoint(plan, name=FACTS) / "commits" / "2").unlink()
    people(spark, tmp_path / "dim", another=1)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    run_well(spark, plan)
    assert found(plan) == [(1, "ann"), (1, "ann")]


def test_a_lookup_that_is_not_there_is_waited_for(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_ONCE", 1)
    name = topic(partitions=1)
    send(broker, name, 1)
    plan = project(tables(name, str(tmp_path / "dim")))
    error = run(spark, plan).errors[FACTS]
    assert isinstance(error, Transient) and "the lookup people does not exist yet" in error.message
    people(spark, tmp_path / "dim", ann=1)
    run_well(spark, plan)
    assert found(plan) == [(1, "ann")]


def test_rows_that_fail_after_the_join_keep_their_record(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    name = topic(partitions=1)
    people(spark, tmp_path / "dim", ann=1)
    plan = project(tables(name, str(tmp_path / "dim"), expect=[{"name": "known", "check": "name IS NOT NULL"}]))
    send(broker, name, 1, 2)
    run_well(spark, plan)
    table = plan.table(FACTS)
    assert table is not None
    assert found(plan) == [(1, "ann")]
    (kept,) = rows_at(quarantine_of(FACTS, table.uri).uri)
    assert (kept["value"], kept["_source"]["offset"], kept["error_detail"]) == ('{"id": 2}', 1, "known")
