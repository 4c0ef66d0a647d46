"""`verify` computes by itself, whatever the zone of the session: what the engine has lost in the hour that comes twice
must not be lost to it as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.runs import make_plan, run_well

from penstock.engine.store import LocalStore
from penstock.ops.verify.again.run import check_in, to_check
from penstock.ops.verify.report import Report
from penstock.ops.verify.table import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

ZONE = "spark.sql.session.timeZone"
TWICE = ("2025-10-26T00:30:00Z", "2025-10-26T01:30:00Z", "2025-10-26T01:30:00.5Z")
"""In Berlin the first two are both 02:30."""


@pytest.fixture
def berlin(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in that zone, and so is every one that is opened from it."""
    conf: Any = spark.sparkContext._jsc.sc().conf()  # type: ignore[union-attr]
    conf.set(ZONE, "Europe/Berlin")
    try:
        session = spark.newSession()
        assert session.conf.get(ZONE) == "Europe/Berlin"
        yield session
    finally:
        conf.set(ZONE, "UTC")


def reports(spark: SparkSession, plan: Plan) -> dict[str, Report]:
    found = verify(plan.tables, LocalStore())
    check_in(spark, plan, to_check(plan.tables, found, deep=True), LocalStore(), deep=True)
    return {one.table: one for one in found}


def test_groups_of_the_hour_that_comes_twice_are_computed_by_verify_itself(
    berlin: SparkSession, tmp_path: Path
) -> None:
    place = str(tmp_path / "events")
    for number, at in enumerate(TWICE):
        berlin.sql(f"SELECT {number}L AS id, timestamp'{at}' AS ts, 'k' AS kind").write.format("delta").mode(
            "append"
        ).save(place)
    hours = {"keys": ["kind"], "window": {"time": "ts", "every": "30 minutes"}, "metrics": {"n": "count(*)"}}
    tables = {
        "gold.hours": {"from": {"delta": place}, "aggregate": hours},
        "silver.once": {"from": {"delta": place}, "dedupe": {"keys": ["kind"], "time": "ts", "within": "10 minutes"}},
    }
    plan = make_plan(tmp_path, "127.0.0.1:1", tables)
    run_well(berlin, plan)
    gold = plan.tables[0]
    assert {one.verdict for one in reports(berlin, plan).values()} <= {"complete", "partial"}
    rows = berlin.read.format("delta").load(gold.uri)
    should = {(0, 1), (1, 2)}
    there = {
        (int(row.h), row.n)
        for row in rows.selectExpr("hour(to_utc_timestamp(window_start, 'Europe/Berlin')) h", "n").collect()
    }
    if len(there) == len(should):  # the engine did well: lose the second hour, as it once did
        berlin.sql(f"DELETE FROM delta.`{gold.uri}` WHERE unix_seconds(window_start) >= 1761442200 ")
    numbers = next(one for one in reports(berlin, plan)["gold.hours"].checks if one.name == "numbers")
    assert numbers.outcome == "differs" and "missing" in {one.kind for one in numbers.differences}
