"""`run --once` fills lookups before the tables that look up in them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import produce, rows, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PEOPLE = 60


@pytest.mark.deep
def test_run_once_fills_a_lookup_before_the_table_that_looks_up_in_it(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    people, facts = topic(partitions=1), topic(partitions=1)
    for number in range(PEOPLE):
        produce(broker.bootstrap, people, 1, partitions=[0], value=json.dumps({"id": number, "name": f"n{number}"}))
        produce(broker.bootstrap, facts, 1, partitions=[0], value=json.dumps({"id": number}))
    plan = project(
        {
            "dim.people": {
                "from": {"kafka": people, "max_per_trigger": 2},
                "decode": {"json": "value", "schema": "id BIGINT, name STRING"},
            },
            "silver.facts": {
                "from": {"kafka": facts},
                "decode": {"json": "value", "schema": "id BIGINT"},
                "lookups": {"people": "dim.people"},
                "sql": "SELECT i.*, p.name FROM input i LEFT JOIN people p ON i.id = p.id",
            },
        }
    )
    run_well(spark, plan)
    assert len(rows(plan, "dim.people")) == PEOPLE
    assert [row for row in rows(plan, "silver.facts") if row["name"] is None] == []
