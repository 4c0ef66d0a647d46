"""A definition that makes other columns than before: refused, or followed as far as that is safe."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import produce, rows, run, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SILVER = "silver.t"


def tables(topic: str, schema: str, mode: str) -> dict[str, Any]:
    decode = {"json": "value", "schema": schema}
    return {
        SILVER: {"from": {"kafka": topic}, "decode": decode, "write": {"schema": mode}},
        "gold.t": {"from": {"table": SILVER}, "write": {"schema": mode}},
    }


def send(broker: Any, topic: str, **record: Any) -> None:
    produce(broker.bootstrap, topic, 1, partitions=[0], value=json.dumps(record))


def test_strict_stops_and_shows_both(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    send(broker, name, id=1, n=2)
    run_well(spark, project(tables(name, "id INT, n INT", "strict")))
    heard = run(spark, project(tables(name, "id INT, n STRING, more DATE", "strict")))
    error = heard.errors[SILVER]
    assert isinstance(error, TableChanged)
    assert "id INT, n INT, _source STRUCT" in error.message and "id INT, n STRING, more DATE" in error.message
    assert "new: more DATE" in error.message and "n was INT, would be STRING" in error.message
    assert error.hint is not None and "as it was" in error.hint


def test_evolve_adds_columns_and_widens_types(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    send(broker, name, id=1, n=2, s={"a": 1})
    run_well(spark, project(tables(name, "id INT, n INT, s STRUCT<a: INT>", "evolve")))
    send(broker, name, id=5_000_000_000, n=3.5, more="x", s={"a": 2, "b": "new"})
    plan = project(tables(name, "id BIGINT, n DOUBLE, more STRING, s STRUCT<a: INT, b: STRING>", "evolve"))
    heard = run_well(spark, plan)
    assert heard.heard("columns evolved: new more STRING, new s.b STRING, id INT is BIGINT now, n INT is DOUBLE now")
    for table in (SILVER, "gold.t"):
        found = spark.read.format("delta").load(plan.table(table).uri).orderBy("id").collect()
        assert [(row["id"], row["n"], row["more"]) for row in found] == [(1, 2.0, None), (5_000_000_000, 3.5, "x")]
        assert [row["s"]["b"] for row in found] == [None, "new"]
    assert [report.verdict for report in verify(plan.tables, LocalStore())] == ["complete", "complete"]


@pytest.mark.deep
def test_what_is_no_longer_made_stays_and_is_null(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    send(broker, name, id=1, n=2)
    run_well(spark, project(tables(name, "id INT, n INT", "evolve")))
    send(broker, name, id=2, n=3)
    plan = project(tables(name, "id INT", "evolve"))
    run_well(spark, plan)
    assert sorted((row["id"], row["n"]) for row in rows(plan, SILVER) if row["n"]) == [(1, 2)]
    assert len(rows(plan, SILVER)) == 2


@pytest.mark.parametrize("narrower", ["id STRING", "id SMALLINT"])
@pytest.mark.deep
def test_what_cannot_be_widened_stops_even_if_the_table_may_evolve(
    narrower: str, spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    send(broker, name, id=1)
    run_well(spark, project(tables(name, "id INT", "evolve")))
    heard = run(spark, project(tables(name, narrower, "evolve")))
    assert isinstance(heard.errors[SILVER], TableChanged)
