"""Duplicates against the table itself: within a batch, across batches and restarts, within a time bound or without."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.run_plan import produce, rows, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

SILVER = "silver.t"
SCHEMA = "id BIGINT, part STRING, ts TIMESTAMP, n INT"


def plan(project: Any, topic: str, dedupe: dict[str, Any]) -> Plan:
    tables = {
        SILVER: {
            "from": {"kafka": topic, "max_per_trigger": 5},
            "decode": {"json": "value", "schema": SCHEMA},
            "dedupe": dedupe,
        }
    }
    made: Plan = project(tables)
    return made


def send(broker: Any, topic: str, *records: dict[str, Any]) -> None:
    for record in records:
        produce(broker.bootstrap, topic, 1, partitions=[0], value=json.dumps(record))


def numbers(made: Plan) -> list[int]:
    return sorted(row["n"] for row in rows(made, SILVER))


def test_the_first_of_each_key_stays(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    made = plan(project, name, {"keys": ["id"]})
    send(broker, name, *({"id": i % 4, "n": i} for i in range(12)))
    run_well(spark, made)
    assert numbers(made) == [0, 1, 2, 3]
    send(broker, name, {"id": 2, "n": 100}, {"id": 9, "n": 101}, {"id": 9, "n": 102})
    run_well(spark, made)
    assert numbers(made) == [0, 1, 2, 3, 101]


def test_a_null_key_is_never_a_duplicate(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    made = plan(project, name, {"keys": ["id", "part"]})
    records = [{"id": None, "part": "a", "n": 0}, {"id": None, "part": "a", "n": 1}, {"id": 1, "part": None, "n": 2}]
    send(broker, name, *records, *records, {"id": 1, "part": "a", "n": 3}, {"id": 1, "part": "a", "n": 4})
    run_well(spark, made)
    assert Counter(numbers(made)) == Counter([0, 0, 1, 1, 2, 2, 3])


def test_within_a_bound(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    """A row is a duplicate of one that stayed and is near in time, in whatever batch either was."""
    name = topic(partitions=1)
    made = plan(project, name, {"keys": ["id"], "within": "7 days", "time": "ts"})

    def record(n: int, day: int) -> dict[str, Any]:
        return {"id": 1, "ts": f"2026-01-{day:02d}T00:00:00Z", "n": n}

    send(broker, name, record(0, 1), record(1, 5), record(2, 10), record(3, 8), record(4, 17), record(5, 18))
    run_well(spark, made)
    # 5th: near the 1st. 10th: nine days after the 1st, so it stays; the 8th is near both; 17th near the 10th; 18th not.
    assert numbers(made) == [0, 2, 5]
    send(broker, name, record(6, 25), record(7, 26), record(8, 2), {"id": 1, "ts": None, "n": 9})
    run_well(spark, made)
    assert numbers(made) == [0, 2, 5, 7, 9]


def test_a_batch_of_only_duplicates_moves_on(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    made = plan(project, name, {"keys": "id"})
    send(broker, name, {"id": 1, "n": 0})
    run_well(spark, made)
    send(broker, name, *({"id": 1, "n": i} for i in range(1, 8)))
    heard = run_well(spark, made)
    assert [batch.rows for batch in heard.batches] == [0, 0]
    assert numbers(made) == [0]


def test_all_rows_with_one_key(spark: SparkSession, tmp_path: Path) -> None:
    """Work that grew with the square of a key's rows would not end."""
    from penstock.plan.stages import DedupePlan
    from penstock.tables.dedupe import drop_duplicates, with_row_numbers

    uri = str(tmp_path / "t")
    made = spark.range(100_000).selectExpr(
        "7L AS id",
        "timestamp_millis(id * 10) AS ts",
        "named_struct('topic', 't', 'partition', 0, 'offset', id) AS _source",
    )
    made.limit(0).write.format("delta").save(uri)
    kept = with_row_numbers(made).persist()
    try:
        there = spark.read.format("delta").load(uri)
        within = drop_duplicates(kept, DedupePlan(("id",), 60_000, "ts"), there).count()
        ever = drop_duplicates(kept, DedupePlan(("id",), None, None), there).count()
    finally:
        kept.unpersist()
    assert (within, ever) == (17, 1)


def test_years_of_rows_lose_the_same_duplicates_as_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A replay goes another way: nothing is broadcast, and only keys that are there twice are sorted."""
    from penstock.plan.stages import DedupePlan
    from penstock.tables.dedupe import drop_duplicates, with_row_numbers

    uri = str(tmp_path / "t")
    made = spark.range(3_000).selectExpr(
        "IF(id % 11 = 0, NULL, id % 700) AS `a.b`",
        "CAST(id % 3 AS STRING) AS kind",
        "timestamp_millis(id * 1000) AS ts",
        "named_struct('topic', 't', 'partition', 0, 'offset', 3000 - id) AS _source",
    )
    made.where("`a.b` < 50").write.format("delta").save(uri)
    kept = with_row_numbers(made).persist()
    try:
        there = spark.read.format("delta").load(uri)
        for plan in (DedupePlan(("a.b", "kind"), None, None), DedupePlan(("a.b", "kind"), 2_500_000, "ts")):
            for table in (None, there):
                few, many = (
                    {row["_source"]["offset"] for row in drop_duplicates(kept, plan, table, many=one).collect()}
                    for one in (False, True)
                )
                assert few == many
                assert 0 < len(few) < 3_000
    finally:
        kept.unpersist()
