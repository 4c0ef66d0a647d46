"""Several tables read one: each with its own rows, definition and failures, and only the partitions that it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import commits, produce, rows, rows_at, run, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANDING = "bronze.all"


def routed(topics: list[str], **of: Any) -> dict[str, Any]:
    made: dict[str, Any] = {LANDING: {"from": {"kafka": topics}, "write": {"partition_by": ["topic"]}}}
    for number, name in enumerate(topics):
        made[f"silver.t{number}"] = {
            "from": {"table": LANDING, "where": f"topic = '{name}'"},
            "decode": {"json": "value", "schema": "id BIGINT NOT NULL, amount DOUBLE"},
            **of.get(f"t{number}", {}),
        }
    return made


def send(broker: Any, topic: str, count: int = 5) -> None:
    for number in range(count):
        produce(broker.bootstrap, topic, 1, partitions=[0], value=json.dumps({"id": number, "amount": number - 1}))


def test_each_table_has_its_rows_and_its_own_failures(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    topics = [topic(partitions=1) for _ in range(3)]
    for name in topics:
        send(broker, name)
    stops = {"expect": [{"name": "positive", "check": "amount > 0", "action": "fail"}]}
    keeps = {"expect": [{"name": "positive", "check": "amount > 0"}]}
    plan = project(routed(topics, t1=stops, t2=keeps))
    heard = run(spark, plan)
    assert set(heard.errors) == {"silver.t1"}
    assert "positive" in heard.errors["silver.t1"].message
    assert len(rows(plan, "silver.t0")) == 5
    assert [row["amount"] for row in rows(plan, "silver.t2") if row["amount"] <= 0] == []
    assert len(rows(plan, "silver.t2")) == 3
    third = plan.table("silver.t2")
    assert third is not None
    assert len(rows_at(f"{third.uri}__quarantine")) == 2
    assert not [commit for commit in commits(plan, "silver.t1") if commit.rows]
    plan = project(routed(topics, t2=keeps))
    run_well(spark, plan)
    assert len(rows(plan, "silver.t1")) == 5
    assert {report.verdict for report in verify(plan.tables, LocalStore())} == {"complete"}


def test_a_partitioned_landing_table_is_read_only_where_it_matters(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    """The files of the other partition are not even there any more."""
    topics = [topic(partitions=1) for _ in range(2)]
    for name in topics:
        send(broker, name)
    plan = project(routed(topics))
    run_well(spark, plan, LANDING)
    landing = plan.table(LANDING)
    assert landing is not None
    others = list((Path(landing.uri) / f"topic={topics[1]}").glob("*.parquet"))
    assert others
    for file in others:
        file.unlink()
    run_well(spark, plan, "silver.t0")
    assert sorted(row["id"] for row in rows(plan, "silver.t0")) == list(range(5))
    assert "silver.t1" in run(spark, plan, "silver.t1").errors
