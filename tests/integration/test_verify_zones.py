"""`verify` computes by itself, whatever the zone of the session: what the engine has lost in the hour that comes twice
must not be lost to it as well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.ledger.entry import dump
from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.report import Report
from penstock.verify.table import verify
from tests.integration.forger import METADATA
from tests.integration.run_plan import log, make_plan, run_well

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
    run_checks_in(spark, plan, tables_to_check(plan.tables, found, deep=True), LocalStore(), deep=True)
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
    plan = make_plan(tmp_path, "127.0.0.1:1", {"gold.hours": {"from": {"delta": place}, "aggregate": hours}})
    run_well(berlin, plan)
    (gold,) = plan.tables
    rows = berlin.read.format("delta").load(gold.uri).selectExpr("unix_seconds(window_start) AS at", "n").collect()
    first, second = 1761438600, 1761442200
    right = {(row["at"], row["n"]) for row in rows} == {(first, 1), (second, 2)}
    assert (reports(berlin, plan)["gold.hours"].verdict == "complete") == right, "whatever the engine has made of it"
    last = log(gold).since(-1)[-1].entry
    assert last is not None
    berlin.conf.set(METADATA, dump(replace(last, kind="carry")))
    berlin.sql(f"DELETE FROM delta.`{gold.uri}` WHERE unix_seconds(window_start) = {second}")
    report = reports(berlin, plan)["gold.hours"]
    numbers = next(one for one in report.checks if one.name == "numbers")
    assert report.verdict == "wrong" and numbers.outcome == "differs"
    assert "missing" in {one.kind for one in numbers.differences}
