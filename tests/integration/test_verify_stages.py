"""`verify` of tables with stages, and of tables that read others: what is missing needs a reason."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.report import Report
from penstock.verify.table import verify
from tests.integration.run_plan import checkpoint, produce, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan

DECODE = {"json": "value", "schema": "id BIGINT, n INT"}
EXPECT = [{"name": "small", "check": "n < 90"}, {"name": "even", "check": "n % 10 <> 3", "action": "drop"}]


def send(broker: Any, topic: str, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        produce(broker.bootstrap, topic, 1, partitions=[n % 2], value=json.dumps({"id": n % 40, "n": n}))


def reports(plan: Plan) -> dict[str, Report]:
    return {report.table: report for report in verify(plan.tables, LocalStore())}


@pytest.fixture
def layers(broker: Any, topic: Any, project: Any) -> tuple[Plan, str]:
    name = topic(partitions=2)
    tables = {
        "bronze.t": {"from": {"kafka": name, "max_per_trigger": 30}},
        "bronze.copy": {"from": {"table": "bronze.t"}},
        "silver.t": {"from": {"table": "bronze.t"}, "decode": DECODE, "expect": EXPECT, "dedupe": {"keys": ["id"]}},
        "silver.direct": {"from": {"kafka": name, "max_per_trigger": 30}, "decode": DECODE, "expect": EXPECT},
        "silver.part": {"from": {"table": "bronze.t", "where": "partition = 0"}, "decode": DECODE},
        "silver.again": {"from": {"table": "silver.t"}, "sql": "SELECT * FROM t WHERE id > 3"},
        "gold.t": {"from": {"table": "silver.t"}, "aggregate": {"keys": "id", "metrics": {"rows": "count(*)"}}},
    }
    return project(tables), name


def test_every_layer_is_complete(spark: SparkSession, broker: Any, layers: tuple[Plan, str]) -> None:
    plan, topic = layers
    send(broker, topic, 100)
    run_well(spark, plan)
    found = reports(plan)
    assert {name: (one.verdict, one.problems, one.doubts) for name, one in found.items()} == {
        table.name: ("complete", [], []) for table in plan.tables
    }
    silver = found["silver.t"].conserved
    assert silver is not None
    # 90..99 are too large, of the others 3, 13, .. 83 are dropped; ids repeat after 40.
    assert (silver.read, silver.rejected, silver.dropped) == (100, 10, 9)
    assert (silver.written, silver.duplicates) == (36, 45)
    assert found["silver.part"].rows == 50
    send(broker, topic, 20, first=100)
    shutil.rmtree(checkpoint(plan, name="silver.t"))
    run_well(spark, plan)
    assert {one.verdict for one in reports(plan).values()} == {"complete"}


def test_what_is_read_twice_and_left_out_as_a_duplicate_is_not_missing(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    """Read again by decision; a topic that was made again has offsets twice in the same way."""
    from penstock.operations.reset import plan_reset, run_reset

    name = topic(partitions=2)
    stages = {"decode": DECODE, "expect": EXPECT, "dedupe": {"keys": ["id"]}}
    plan = project({"bronze.t": {"from": {"kafka": name}}, "silver.t": {"from": {"table": "bronze.t"}, **stages}})
    send(broker, name, 30)
    run_well(spark, plan)
    bronze, silver = plan.tables

    def reset(table: TablePlan, to: str) -> None:
        made = plan_reset(table, LocalStore(), to)
        run_reset(spark, plan, made)

    reset(bronze, "earliest")
    run_well(spark, plan)
    for _ in range(2):
        found = reports(plan)["silver.t"]
        assert (found.verdict, found.problems, found.notes) == ("complete", [], [])
        assert found.conserved is not None and (found.conserved.read, found.conserved.duplicates) == (60, 27)
        reset(silver, "ledger")  # what the last batch counted is not lost by it


@pytest.mark.deep
def test_a_row_that_vanished_is_told(spark: SparkSession, broker: Any, layers: tuple[Plan, str]) -> None:
    plan, topic = layers
    send(broker, topic, 60)
    run_well(spark, plan)
    for name, condition in (("silver.direct", "n = 5"), ("silver.direct__quarantine", "true")):
        place = f"{plan.lake}/{name.replace('.', '/')}"
        if spark.read.format("delta").load(place).where(condition).count():
            _delete_in_secret(spark, place, condition)
    found = reports(plan)
    assert found["silver.direct"].verdict == "wrong"
    assert [list(one.lost) for one in found["silver.direct"].partitions if one.lost] or found["silver.direct"].problems
    assert found["silver.t"].verdict == "complete"


def _delete_in_secret(spark: SparkSession, place: str, condition: str) -> None:
    """By rewriting the one data file that holds the row: no commit tells of it."""
    from pathlib import Path

    for file in Path(place).glob("*.parquet"):
        rows = spark.read.parquet(str(file))
        if not rows.where(condition).count():
            continue
        kept = rows.where(f"NOT ({condition})").collect()
        made = spark.createDataFrame(kept, rows.schema).coalesce(1)
        made.write.parquet(f"{place}-new")
        (written,) = Path(f"{place}-new").glob("*.parquet")
        for crc in (file.with_name(f".{file.name}.crc"),):
            crc.unlink(missing_ok=True)
        shutil.copyfile(written, file)
        shutil.rmtree(f"{place}-new")
