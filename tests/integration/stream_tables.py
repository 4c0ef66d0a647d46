"""Tables made with Spark's own streaming operators, over tables that a test adds rows to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.run_plan import rows, run_well

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.model import Plan

GOLD = "gold.t"
SCHEMA = "id BIGINT, kind STRING, ts TIMESTAMP"
FUNCTIONS = """\
from pyspark.sql import functions as F


def windows(clicks):
    late = clicks.withWatermark("ts", "10 minutes")
    return late.groupBy(F.window("ts", "5 minutes"), "kind").agg(F.count("*").alias("n"))


def kinds(clicks):
    return clicks.groupBy("kind").agg(F.count("*").alias("n"), F.max("id").alias("last"))


def once(clicks):
    return clicks.withWatermark("ts", "1 hour").dropDuplicatesWithinWatermark(["id"])


def joined(clicks, views):
    left = clicks.withWatermark("ts", "10 minutes").alias("c")
    right = views.withWatermark("ts", "10 minutes").alias("v")
    near = "c.id = v.id AND v.ts BETWEEN c.ts - INTERVAL 5 MINUTES AND c.ts + INTERVAL 5 MINUTES"
    return left.join(right, F.expr(near)).select("c.id", F.col("c.kind").alias("clicked"), F.col("v.kind").alias("saw"))


def swapped(clicks, views):
    return views.select("id").union(clicks.select("id"))


def kept(clicks):
    return clicks.where("id >= 0")
"""
Row = tuple[int, str, int]
"""Id, kind, minute."""


class Site:
    """Two Delta tables that grow by one file at a time, and a table over them."""

    def __init__(self, spark: SparkSession, project: Any, folder: Path) -> None:
        self.spark, self._project, self._folder = spark, project, folder
        (folder / "s.py").write_text(FUNCTIONS)
        self.places = {name: str(folder / name) for name in ("clicks", "views")}
        for name in self.places:
            self._write(name, [])

    def plan(self, function: str, *, starting: Any = "earliest", **more: Any) -> Plan:
        reads = {"delta": self.places["clicks"], "max_files": 1, "starting": starting}
        table = {"from": {**reads}, "stream": f"s.py:{function}", **more}
        made: Plan = self._project({GOLD: table})
        return made

    def two(self, function: str) -> Plan:
        return self.plan(function, streams={"views": {"delta": self.places["views"], "max_files": 1}})

    def add(self, *found: Row, to: str = "clicks") -> None:
        self._write(to, list(found))

    def all(self, name: str = "clicks") -> DataFrame:
        return self.spark.read.format("delta").load(self.places[name])

    def run(self, plan: Plan) -> Any:
        return run_well(self.spark, plan)

    def _write(self, name: str, found: list[Row]) -> None:
        frame = self.spark.createDataFrame(found, "id BIGINT, kind STRING, minute INT")
        moved = frame.selectExpr(
            "id", "kind", "timestamp'2026-01-01 00:00:00' + make_interval(0,0,0,0,0,minute,0) AS ts"
        )
        moved.coalesce(1).write.format("delta").mode("append").save(self.places[name])


def multiset(found: Any) -> Counter[tuple[Any, ...]]:
    """Rows of a plan's table, or of a DataFrame."""
    from pyspark.sql import DataFrame

    if isinstance(found, DataFrame):
        return Counter(tuple(row) for row in found.collect())
    return Counter(tuple(row.values()) for row in rows(found, GOLD))
