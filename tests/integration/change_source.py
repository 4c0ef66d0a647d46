"""A table whose changes a sink follows: made and changed by the test itself, at the place of a table of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import Heard, commits_die, rows_at, run, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan

SINK, TABLE = "out", "silver.c"
COLUMNS = "id BIGINT, name STRING, n INT"


class Followed:
    """`sql` may name the table T."""

    def __init__(self, spark: SparkSession, project: Any, columns: str = COLUMNS) -> None:
        self.spark, self._project = spark, project
        plan = self.plan({"redis": "redis://127.0.0.1:1"})
        found = plan.table(TABLE)
        assert found is not None
        self.uri = found.uri
        self.sql(f"CREATE TABLE T ({columns}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")

    def plan(self, to: dict[str, Any], *, keys: Any = "id", reads: dict[str, Any] | None = None, **sink: Any) -> Plan:
        tables = {
            "bronze.c": {"from": {"kafka": "nothing"}},
            TABLE: {
                "from": {"table": "bronze.c"},
                "decode": {"json": "value", "schema": COLUMNS},
                "write": {"change_feed": True},
            },
        }
        source = {"changes": TABLE, **(reads or {})}
        made: Plan = self._project(tables, sinks={SINK: {"from": source, "to": to, "keys": keys, **sink}})
        return made

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace(" T ", f" delta.`{self.uri}` "))

    def run(self, plan: Plan) -> Heard:
        return run_well(self.spark, plan, SINK)

    def error(self, plan: Plan) -> Any:
        """What ends the sink; it is not tried again."""
        from penstock.runtime import table_runner

        with pytest.MonkeyPatch.context() as patched:
            for name in ("TRIES_ONCE", "TRIES_UNEXPLAINED"):
                patched.setattr(table_runner, name, 1)
            return run(self.spark, plan, SINK).errors[SINK]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row.asDict(recursive=True) for row in self.spark.read.format("delta").load(self.uri).collect()]


def sink_of(plan: Plan) -> TablePlan:
    found = plan.table(SINK)
    assert found is not None
    return found


def quarantined(plan: Plan) -> list[dict[str, Any]]:
    return rows_at(f"{sink_of(plan).uri}__quarantine")


def dies(monkeypatch: pytest.MonkeyPatch, what: str, *, after: bool = True) -> None:
    """The first call ends in a crash: after it did its work, or before."""
    from penstock.tables.sink import RejectedChanges

    if what == "append":
        commits_die(monkeypatch, SINK, 1, after=after)
        return
    assert what == "SetAside.keep"
    whole, times = RejectedChanges.store, []

    def once(*given: Any, **named: Any) -> Any:
        times.append(1)
        if len(times) > 1:
            return whole(*given, **named)
        if after:
            whole(*given, **named)
        raise RuntimeError("killed")

    monkeypatch.setattr(RejectedChanges, "store", once)


def reset(spark: SparkSession, plan: Plan, to: str) -> None:
    from penstock.operations.reset import plan_reset, run_reset
    from penstock.storage.stores import LocalStore

    table = sink_of(plan)
    made = plan_reset(table, LocalStore(), to)
    run_reset(spark, plan, made)
