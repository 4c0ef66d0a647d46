"""Windows that appear once, when the watermark has passed them; what comes later is kept aside."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import checkpoint, produce, rows, rows_at, run, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

GOLD = "gold.t"


class Clock:
    """Records that are events of minutes on one day, and the windows over them."""

    def __init__(self, spark: SparkSession, plan: Plan, broker: Any, topic: str) -> None:
        self.spark, self.plan, self._broker, self._topic = spark, plan, broker, topic

    def send(self, *minutes: int | None) -> None:
        for minute in minutes:
            ts = None if minute is None else f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z"
            produce(self._broker.bootstrap, self._topic, 1, partitions=[0], value=json.dumps({"ts": ts}))

    def run(self) -> None:
        run_well(self.spark, self.plan)

    @property
    def windows(self) -> Counter[tuple[int, int]]:
        """Hour in which each begins, and its count, as a multiset: a window must not be there twice."""
        return Counter((row["window_start"].hour, row["n"]) for row in rows(self.plan, GOLD))

    @property
    def aside(self) -> Counter[str]:
        table = self.plan.table(GOLD)
        assert table is not None
        return Counter(row["error_reason"] for row in rows_at(f"{table.uri}__quarantine"))


@pytest.fixture
def clock(spark: SparkSession, broker: Any, topic: Any, project: Any) -> Clock:
    name = topic(partitions=1)
    aggregate = {
        "window": {"time": "ts", "every": "1 hour"},
        "metrics": {"n": "count(*)"},
        "emit": "final",
        "watermark": "30 min",
    }
    tables = {
        "silver.t": {"from": {"kafka": name}, "decode": {"json": "value", "schema": "ts TIMESTAMP"}},
        GOLD: {"from": {"table": "silver.t"}, "aggregate": aggregate},
    }
    return Clock(spark, project(tables), broker, name)


def test_a_window_appears_once_when_it_is_closed(clock: Clock) -> None:
    clock.send(5, 10, 70)
    clock.run()  # the watermark is at 00:40: no hour is over
    assert clock.windows == Counter()
    clock.send(20, 89)  # 00:59
    clock.run()
    assert clock.windows == Counter()
    clock.send(95)  # 01:05: the first hour is closed, with the late row of minute 20
    clock.run()
    assert clock.windows == Counter({(0, 3): 1})
    clock.send(15, 100, None)  # an hour too late, and one without a time
    clock.run()
    assert clock.windows == Counter({(0, 3): 1})
    assert clock.aside == Counter({"late": 1, "no_time": 1})
    clock.send(400)
    clock.run()
    assert clock.windows == Counter({(0, 3): 1, (1, 4): 1})
    whole_chain(clock.plan, GOLD)


def test_a_crash_or_a_lost_checkpoint_closes_no_window_twice(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.tables.quarantine import Quarantine

    clock.send(5, 100)
    clock.run()
    shutil.rmtree(checkpoint(clock.plan, name=GOLD))
    clock.send(6, 10, 200)

    def dies(*_: Any) -> int:
        raise RuntimeError("killed between the two commits")

    monkeypatch.setattr(Quarantine, "add", dies)
    run(clock.spark, clock.plan)
    monkeypatch.undo()
    clock.run()
    assert clock.windows == Counter({(0, 1): 1, (1, 1): 1})
    assert clock.aside == Counter({"late": 2})


@pytest.mark.deep
def test_a_table_that_is_there_already_is_read_whole_before_windows_close(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Any
) -> None:
    """Its files come in no order of time."""
    place = str(tmp_path / "events")
    for hour in (5, 0, 3):
        made = spark.range(4).selectExpr(f"timestamp'2026-01-01 {hour:02d}:00:00' + make_interval(0,0,0,0,0,id) AS ts")
        made.coalesce(1).write.format("delta").mode("append").save(place)
    aggregate = {
        "window": {"time": "ts", "every": "1 hour"},
        "metrics": {"n": "count(*)"},
        "emit": "final",
        "watermark": "1 min",
    }
    plan = project({GOLD: {"from": {"delta": place, "max_files": 1}, "aggregate": aggregate}})
    run_well(spark, plan)
    found = Clock(spark, plan, broker, "")
    assert found.windows == Counter({(0, 4): 1, (3, 4): 1})
    assert found.aside == Counter()
