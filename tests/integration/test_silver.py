"""Bronze to silver: decoded, judged, the rejected rows in quarantine once, whatever dies in between."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.plan.stages import ExpectationPlan
from penstock.storage.stores import LocalStore
from penstock.testing import table_under_test
from penstock.verify.table import verify
from tests.integration.run_plan import (
    checkpoint,
    commits,
    coordinates,
    make_plan,
    produce,
    quarantine_dies_once,
    rows,
    rows_at,
    run,
    run_well,
    whole_chain,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

SILVER = "silver.t"
DECODE = {"json": "value", "schema": "id BIGINT NOT NULL, amount DECIMAL(9,2), name STRING"}
EXPECT = [
    {"name": "positive", "check": "amount > 0"},
    {"name": "named", "check": "name IS NOT NULL", "action": "warn"},
    {"name": "not_seven", "check": "id % 7 <> 0", "action": "drop"},
]
Send = Callable[[int], None]


class Shop:
    """A topic with good and bad records, bronze and silver over it."""

    def __init__(self, spark: SparkSession, plan: Plan, bootstrap: str, topic: str) -> None:
        self.spark, self.plan, self._bootstrap, self._topic = spark, plan, bootstrap, topic
        self.sent: dict[tuple[str, int, int], str] = {}
        self._next = 0

    def send(self, count: int, *, only_bad: bool = False) -> None:
        for _ in range(count):
            number = self._next
            self._next += 1
            value = json.dumps({"id": number, "amount": -1 if number % 5 == 0 else 2.5, "name": "n"})
            if only_bad or number % 11 == 0:
                value = f'{{"id": {number}'
            for place in produce(self._bootstrap, self._topic, 1, partitions=[number % 2], value=value):
                self.sent[place] = value

    def run(self) -> None:
        run_well(self.spark, self.plan)

    @property
    def quarantine(self) -> list[dict[str, Any]]:
        table = self.plan.table(SILVER)
        assert table is not None
        return rows_at(f"{table.uri}__quarantine")

    def check(self) -> None:
        """Each record is in silver, in quarantine or dropped, as a computation over all of them says, and once."""
        good: Counter[tuple[str, int, int]] = Counter()
        bad: Counter[tuple[str, int, int]] = Counter()
        for place, value in self.sent.items():
            if not value.endswith("}"):
                bad[place] += 1
                continue
            record = json.loads(value)
            if record["amount"] <= 0:
                bad[place] += 1
            elif record["id"] % 7:
                good[place] += 1
        assert coordinates(self.plan, "bronze.t") == Counter(list(self.sent))
        assert Counter(_place(row) for row in rows(self.plan, SILVER)) == good
        assert Counter(_place(row) for row in self.quarantine) == bad
        assert all(row["value"] == self.sent[_place(row)] for row in self.quarantine), "the record as it came"
        whole_chain(self.plan, SILVER)
        self.verify(len(good), sum(bad.values()))

    def verify(self, good: int, bad: int) -> None:
        """What `verify` says is what the test has computed."""
        bronze, silver = verify(self.plan.tables, LocalStore())
        assert (bronze.verdict, silver.verdict) == ("complete", "complete"), (silver.problems, silver.doubts)
        counted = silver.conserved
        assert counted is not None and counted.uncounted == 0
        assert (counted.read, counted.written, counted.rejected) == (len(self.sent), good, bad)
        assert counted.read + counted.reshaped == good + bad + counted.dropped + counted.duplicates


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    source = row["_source"]
    return source["topic"], source["partition"], source["offset"]


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """What stands between decode and expect; a test says @EVERY_KIND where that makes a difference."""
    return getattr(request, "param", "plain")


EVERY_KIND = pytest.mark.parametrize(
    "kind", ["python", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("plain", "sql"))], indirect=True
)


@pytest.fixture
def shop(kind: str, spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path) -> Shop:
    name = topic(partitions=2)
    (tmp_path / "t.py").write_text("def clean(t):\n    return t.withColumn('twice', t.amount * 2)\n")
    transform = {
        "plain": {},
        "sql": {"sql": "SELECT *, amount * 2 AS twice FROM t"},
        "python": {"transform": "t.py:clean"},
    }[kind]
    tables = {
        "bronze.t": {"from": {"kafka": name, "max_per_trigger": 40}},
        SILVER: {"from": {"table": "bronze.t", "max_files": 1}, "decode": DECODE, "expect": EXPECT, **transform},
    }
    return Shop(spark, project(tables), broker.bootstrap, name)


@EVERY_KIND
def test_rows_are_conserved_over_many_batches(shop: Shop) -> None:
    shop.send(130)
    shop.run()
    shop.check()
    assert {row["error_reason"] for row in shop.quarantine} == {"malformed_json", "expectation"}
    assert {row["error_detail"] for row in shop.quarantine if row["error_reason"] == "expectation"} == {"positive"}
    shop.send(30)
    shop.run()
    shop.check()
    before = [commit.version for commit in commits(shop.plan, SILVER)]
    shop.run()  # nothing new
    assert [commit.version for commit in commits(shop.plan, SILVER)] == before


def test_a_batch_of_only_bad_records_moves_on(shop: Shop) -> None:
    shop.send(10, only_bad=True)
    shop.run()
    shop.check()
    assert rows(shop.plan, SILVER) == []
    shop.send(20)
    shop.run()
    shop.check()


def test_a_deleted_checkpoint_changes_nothing(shop: Shop) -> None:
    shop.send(60)
    shop.run()
    shutil.rmtree(checkpoint(shop.plan, name=SILVER))
    shop.send(20)
    shop.run()
    shop.check()


@EVERY_KIND
def test_what_dies_before_the_quarantine_is_completed(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.send(60)
    quarantine_dies_once(monkeypatch)
    run(shop.spark, shop.plan)
    monkeypatch.undo()
    shop.run()
    shop.check()


def test_more_rejected_rows_than_come_along_with_the_write(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.tables import expectations

    monkeypatch.setattr(expectations, "MAX_COLLECTED_PER_TASK", 2)
    shop.send(80)
    shop.run()
    shop.check()


def test_the_tasks_of_a_replay_share_what_they_bring_along(shop: Shop) -> None:
    from penstock.tables import expectations

    rows = shop.spark.range(0, 1_000, 1, 100)
    assert expectations.max_rejected_per_task(rows) == expectations.MAX_COLLECTED_TOTAL // 100
    assert expectations.max_rejected_per_task(rows.groupBy("id").count()) < expectations.MAX_COLLECTED_PER_TASK


def test_records_too_large_to_come_along(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.tables import expectations

    monkeypatch.setattr(expectations, "MAX_COLLECTED_BYTES", 10)
    shop.send(40)
    shop.run()
    shop.check()


@EVERY_KIND
def test_a_changed_definition_between_the_two_commits_loses_nothing(
    shop: Shop, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of the batch are in the table, its rejected ones are not yet in quarantine, and the new definition would
    take some of those, and reject some that are in the table."""
    from penstock.tables.quarantine import Quarantine

    shop.send(60)

    def dies(*_: Any) -> int:
        raise RuntimeError("killed between the two commits")

    monkeypatch.setattr(Quarantine, "add", dies)
    run(shop.spark, shop.plan)
    monkeypatch.undo()
    silver = shop.plan.table(SILVER)
    assert silver is not None and silver.stages is not None
    other = replace(silver.stages, expect=(ExpectationPlan("odd", "id % 2 = 1", "quarantine"),))
    changed = replace(silver, stages=other, definition="another")
    shop.plan = replace(shop.plan, tables=(shop.plan.tables[0], changed))
    shop.run()
    found = [_place(row) for row in rows(shop.plan, SILVER)] + [_place(row) for row in shop.quarantine]
    assert max(Counter(found).values()) == 1, "none is in both, none twice"
    dropped = {place for place, value in shop.sent.items() if value.endswith("}") and not json.loads(value)["id"] % 7}
    assert set(shop.sent) - set(found) <= dropped


def test_a_struct_that_is_made_of_literals_may_be_null(spark: SparkSession, tmp_path: Path) -> None:
    made = "IF(id % 2 = 0, named_struct('a', 1, 'l', array(named_struct('b', id, 'c', 1))), NULL)"
    sql = f"SELECT id, {made} AS s, _source FROM input"
    silver = {"from": {"kafka": "t"}, "decode": {"json": "value", "schema": "id BIGINT"}, "sql": sql}
    make_plan(tmp_path, "127.0.0.1:1", {"silver.t": silver})
    with table_under_test(tmp_path, "silver.t", spark=spark) as table:
        written = table.run([{"value": {"id": number}} for number in range(2)]).written
    assert written == [{"id": 0, "s": {"a": 1, "l": [{"b": 0, "c": 1}]}}, {"id": 1, "s": None}]
