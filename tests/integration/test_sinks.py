"""Rows of a table sent to a topic: each once in a clean run, again under the same id after a crash."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.row_sink import SINK, Shop, ids
from tests.integration.run_plan import checkpoint, commits, commits_die, produce, rows, run_well, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan


@pytest.fixture
def shop(spark: SparkSession, project: Any, broker: Any, topic: Any) -> Shop:
    return Shop(spark, project, broker, topic)


def expected_ids(plan: Plan) -> Counter[str]:
    places = (row["_source"] for row in rows(plan, "silver.t"))
    return Counter(f"{SINK}/{place['topic']}/{place['partition']}/{place['offset']}" for place in places)


def test_every_row_is_sent_once_over_clean_runs_and_restarts(shop: Shop) -> None:
    plan = shop.plan(key="id", headers={"kind": "'alert'", "row": "id", "none": "CAST(NULL AS STRING)"})
    shop.send(45)
    heard = run_well(shop.spark, plan)
    assert sum(written.rows for written in heard.batches) == 3 * 45, "what was sent counts as its rows"
    run_well(shop.spark, plan)
    shop.send(5)
    run_well(shop.spark, plan)
    found = shop.records
    assert ids(found) == expected_ids(plan)
    assert Counter(json.loads(record.value or b"")["id"] for record in found) == Counter(range(50))
    for record in found:
        row = json.loads(record.value or b"")
        assert set(row) == {"id", "name"}, "without _source"
        assert record.key == str(row["id"]).encode()
        assert list(record.headers) == ["penstock-id", "kind", "row", "none"]
        assert (record.headers["kind"], record.headers["row"]) == (b"alert", record.key)
        assert record.headers["none"] is None
    whole_chain(plan, SINK)
    assert sum(commit.rows for commit in commits(plan, SINK)) == 50


def test_what_dies_between_sending_and_the_commit_is_sent_again_under_the_same_ids(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = shop.plan()
    shop.send(30)
    commits_die(monkeypatch, SINK, 1)
    run_well(shop.spark, plan)
    monkeypatch.undo()
    found = ids(shop.records)
    assert set(found) == set(expected_ids(plan))
    assert found.total() > 30, "at least once"
    assert sum(commit.rows for commit in commits(plan, SINK)) == 30
    shop.send(5)
    run_well(shop.spark, plan)
    assert ids(shop.records).total() == found.total() + 5


def test_nothing_is_sent_again_after_a_crash_that_came_after_the_commit(shop: Shop) -> None:
    plan = shop.plan()
    shop.send(30)
    run_well(shop.spark, plan)
    newest = max((checkpoint(plan, name=SINK) / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    heard = run_well(shop.spark, plan)
    assert heard.heard("was in the table already: skipped")
    shutil.rmtree(checkpoint(plan, name=SINK))
    shop.send(4)
    run_well(shop.spark, plan)
    assert ids(shop.records) == expected_ids(plan)
    whole_chain(plan, SINK)


@pytest.mark.deep
def test_rows_that_came_of_one_record_are_told_apart(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """One record becomes two rows: by the record alone a consumer would take one for the other."""
    plan = shop.plan(silver={"sql": "SELECT *, explode(array(1, 2, 2)) AS part FROM t"})
    shop.send(10)
    commits_die(monkeypatch, SINK, 1)
    run_well(shop.spark, plan)
    found = shop.records
    by_id = {record.id: record.value for record in found}
    assert len(found) > 30 and len(by_id) == 30, "two of each three are alike, and both are there"
    assert all(by_id[record.id] == record.value for record in found), "the same row under the same id"
    assert not any("/lake/" in name for name in by_id), "the file by its path within the table"


@pytest.mark.deep
def test_a_filter_a_null_key_and_bytes(shop: Shop) -> None:
    value = "IF(id = 3, NULL, CAST(concat('x', id) AS BINARY))"
    plan = shop.plan(reads={"where": "id % 3 = 0"}, key="IF(id = 0, NULL, name)", value=value)
    shop.send(9)
    run_well(shop.spark, plan)
    assert Counter((record.key, record.value) for record in shop.records) == Counter(
        {(None, b"x0"): 1, (b"n3", None): 1, (b"n6", b"x6"): 1}
    )


@pytest.mark.deep
def test_bronze_as_it_came_goes_out_as_it_came(shop: Shop) -> None:
    plan = shop.plan("bronze.t", key="coalesce(key_binary, CAST(key AS BINARY))", value="value")
    produce(shop._broker.bootstrap, shop.came, 1, partitions=[0], key=b"\xff\x00", value="a")
    run_well(shop.spark, plan, "bronze.t", SINK)
    (record,) = shop.records
    assert (record.key, record.value, record.id) == (b"\xff\x00", b"a", f"{SINK}/{shop.came}/0/0")


@pytest.mark.deep
def test_batches_without_rows_move_on(shop: Shop) -> None:
    plan = shop.plan(reads={"where": "id > 1000"})
    shop.send(30)
    run_well(shop.spark, plan)
    assert shop.records == []
    assert whole_chain(plan, SINK)[-1].sent == 0
    before = len(commits(plan, SINK))
    run_well(shop.spark, plan)
    assert len(commits(plan, SINK)) == before


@pytest.mark.deep
def test_rows_of_a_table_that_is_not_ours_are_told_apart_by_their_files(shop: Shop, tmp_path: Any) -> None:
    place = str(tmp_path / "some where" / "t")
    shop.spark.range(12).repartition(3).write.format("delta").save(place)
    plan = shop.plan(reads={"delta": place})
    run_well(shop.spark, plan, SINK)
    found = shop.records
    assert Counter(json.loads(record.value or b"")["id"] for record in found) == Counter(range(12))
    assert len(ids(found)) == 12
    assert all(name.startswith(f"{SINK}/part-") for name in ids(found))


@pytest.mark.deep
def test_a_reset_sends_again_from_where_a_person_says(shop: Shop) -> None:
    from penstock.operations.reset import plan_reset, run_reset
    from penstock.storage.stores import LocalStore

    plan = shop.plan()
    shop.send(10)
    run_well(shop.spark, plan)
    table = plan.table(SINK)
    assert table is not None
    reset = plan_reset(table, LocalStore(), "earliest")
    run_reset(shop.spark, plan, reset)
    run_well(shop.spark, plan)
    assert set(ids(shop.records).values()) == {2}, "the same ids, whatever the reason"


def test_status_history_and_verify_know_a_sink(shop: Shop) -> None:
    from penstock.operations.history import history
    from penstock.operations.status import status
    from penstock.storage.stores import LocalStore
    from penstock.verify.table import verify

    plan = shop.plan()
    shop.send(10)
    run_well(shop.spark, plan)
    table = plan.table(SINK)
    assert table is not None
    (shown,) = status(plan, [table], LocalStore())
    assert (shown.state, shown.rows, shown.lag) == ("finished", 10, 0)
    assert sum(line.rows for line in history(table, LocalStore())) == 10
    (report,) = verify([table], LocalStore())
    assert (report.verdict, report.rows) == ("complete", 10)
