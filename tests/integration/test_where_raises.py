"""`from: {where: …}` that raises on a row: whatever kind of table reads it, the row is isolated, or named."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock.errors import Terminal
from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from penstock.testing import table_under_test
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.table import verify
from tests.integration.run_plan import quarantine_dies_once, rows_at, run, run_well
from tests.integration.run_replays import replayed, work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

COUNT = 20
BAD = {0, 7, 19}
"""The first and the last record are among them."""
SCHEMA = "id BIGINT NOT NULL, h BIGINT"


def tables(topic: str, *, fixed: bool = False) -> dict[str, Any]:
    text = "get_json_object(value, '$.h')"
    divide = "try_divide" if fixed else "div"
    condition = {"try_divide": "coalesce(try_divide(10, {}) > 0, true)", "div": "10 / {} > 0"}[divide]
    return {
        "bronze.t": {"from": {"kafka": topic}},
        "copy.landed": {"from": {"table": "bronze.t", "where": condition.format(text)}},
        "silver.t": {"from": {"table": "bronze.t"}, "decode": {"json": "value", "schema": SCHEMA}},
        "copy.carried": {"from": {"table": "silver.t", "where": condition.format("h")}},
        "copy.copied": {"from": {"table": "copy.carried", "where": "10 / (id - 5) <> 0"}},
    }


@pytest.fixture
def shop(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> Callable[..., Plan]:
    from confluent_kafka import Producer

    name = topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(COUNT):
        producer.produce(name, partition=n % 2, value=json.dumps({"id": n, "h": 0 if n in BAD else 1 + n % 9}))
    assert producer.flush(30) == 0

    def make(*, fixed: bool = False, **more: dict[str, Any]) -> Plan:
        chosen = tables(name, fixed=fixed)
        for key, value in more.items():
            chosen[key.replace("__", ".")] = value
        return project(chosen)

    return make


def ids(plan: Plan, name: str, suffix: str = "") -> Counter[int]:
    table = plan.table(name)
    assert table is not None
    rows = rows_at(table.uri + suffix)
    return Counter(json.loads(row["value"])["id"] if "value" in row else row["id"] for row in rows)


def complete(spark: SparkSession, plan: Plan) -> None:
    reports = verify(plan.tables, LocalStore())
    run_checks_in(spark, plan, tables_to_check(plan.tables, reports, deep=True), LocalStore(), deep=True)
    said = [
        (one.table, one.problems, one.doubts, [(c.outcome, c.said, c.remarks) for c in one.checks]) for one in reports
    ]
    assert {one.verdict for one in reports} == {"complete"}, said


@pytest.mark.deep
def test_a_copy_isolates_rows_on_which_its_condition_raises_and_a_redrive_brings_them_back(
    spark: SparkSession, shop: Callable[..., Plan]
) -> None:
    plan = shop()
    run_well(spark, plan)
    good = set(range(COUNT)) - BAD
    for name in ("copy.landed", "copy.carried"):
        assert ids(plan, name) == Counter(good), name
        assert ids(plan, name, "__quarantine") == Counter(BAD), name
        table = plan.table(name)
        assert table is not None
        for row in rows_at(table.uri + "__quarantine"):
            assert row["error_reason"] == "transform_failed" and row["_source"]["topic"], row
            assert row["error_detail"].startswith("from.where: [DIVIDE_BY_ZERO]") and "10 / " in row["error_detail"]
    assert "_source" not in rows_at(plan.table("copy.landed").uri)[0]  # type: ignore[union-attr]
    assert ids(plan, "copy.copied") == Counter(good - {5}) and ids(plan, "copy.copied", "__quarantine") == Counter({5})
    complete(spark, plan)
    from penstock.operations.redrive import redrive

    plan = shop(fixed=True)
    for name in ("copy.landed", "copy.carried"):
        work = work_on(spark, plan, name)
        try:
            (done,) = redrive(work, None)
        finally:
            work.lock.close()
        assert (done.landed, done.left) == (len(BAD), len(BAD)), name
        assert ids(plan, name) == Counter(range(COUNT)) and not ids(plan, name, "__quarantine"), name
    run_well(spark, plan)
    complete(spark, plan)


@pytest.mark.deep
def test_a_copy_that_is_replayed_or_cut_off_before_its_quarantine_loses_and_doubles_nothing(
    spark: SparkSession, shop: Callable[..., Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    quarantine_dies_once(monkeypatch)
    plan = shop()
    run(spark, plan)
    plan = shop(fixed=True)
    run_well(spark, plan)
    for name in ("copy.landed", "copy.carried"):
        assert ids(plan, name) + ids(plan, name, "__quarantine") == Counter(range(COUNT)), name
    plan = shop()
    for name in ("copy.landed", "copy.carried"):
        replayed(spark, plan, name)
        assert ids(plan, name, "__quarantine") == Counter(BAD), name
        assert ids(plan, name) == Counter(range(COUNT)) - Counter(BAD), name


def test_tables_without_a_quarantine_name_the_row_on_which_their_condition_raises(
    spark: SparkSession, broker: Broker, shop: Callable[..., Plan], topic: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "streams.py").write_text("def same(t):\n    return t\n")
    source = {"table": "silver.t", "where": "10 / h > 0"}
    aggregate = {"keys": ["h"], "metrics": {"n": "count(*)"}}
    plan = shop(gold__n={"from": source, "aggregate": aggregate}, gold__s={"from": source, "stream": "streams.py:same"})
    document = yaml.safe_load((tmp_path / "penstock.yml").read_text())
    document["sinks"] = {"out": {"from": source, "to": {"kafka": topic(1)}}}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    plan = build_plan(load_project(tmp_path))
    heard = run(spark, plan, "bronze.t", "silver.t", "gold.n", "gold.s", "out")
    assert set(heard.errors) == {"gold.n", "gold.s", "out"}
    for error in heard.errors.values():
        said = str(error)
        assert isinstance(error, Terminal) and "of silver.t" in said and "-0@0: [DIVIDE_BY_ZERO]" in said, said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    where = {"where": "10 / h > 0"}
    kinds: dict[str, Any] = {
        "silver.t": {"from": {"table": "bronze.t"}, "decode": {"json": "value", "schema": SCHEMA}},
        "copy.t": {"from": {"table": "silver.t", **where}, "max_failed_records": 2},
        "copy.none": {"from": {"table": "silver.t", **where}, "max_failed_records": 0},
        "copy.foreign": {"from": {"delta": str(tmp_path / "foreign"), **where}},
        "silver.staged": {
            "from": {"table": "silver.t", **where},
            "expect": [{"name": "id", "check": "id >= 0"}],
            "max_failed_records": 2,
        },
        "silver.sql": {
            "from": {"table": "silver.t", **where},
            "sql": "SELECT *, 100 / (id - 1000) AS r FROM t",
            "max_failed_records": 2,
        },
        "silver.merged": {
            "from": {"table": "silver.t"},
            "write": {"merge": {"keys": ["id"], "sequence": "10 / h"}},
            "max_failed_records": 2,
        },
    }
    document = {
        "name": "shop",
        "lake": "./lake",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "tables": {"bronze.t": {"from": {"kafka": "t"}}, **kinds},
    }
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return tmp_path


def given(*heights: int) -> list[dict[str, Any]]:
    return [{"id": number, "h": height} for number, height in enumerate(heights)]


@pytest.mark.parametrize(
    "name",
    [
        "copy.t",
        "silver.staged",
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("silver.sql", "silver.merged")),
    ],
)
def test_as_many_rows_as_allowed_are_isolated_and_one_more_stops_the_table_with_the_first(
    spark: SparkSession, folder: Path, name: str
) -> None:
    with table_under_test(folder, name, spark=spark) as table:
        outcome = table.run(given(0, 1, 2, 0))
        assert sorted(row["id"] for row in outcome.written) == [1, 2] and outcome.read == 4
        assert [row["error_reason"] for row in outcome.quarantined] == ["transform_failed"] * 2
        with pytest.raises(Terminal, match=r"more than 2 of 4 records.* test-0@5: .*\[DIVIDE_BY_ZERO\].*10 / h"):
            table.run(given(1, 0, 0, 0))
        assert len(table.rows()) == 2
        assert len(table.run(given(3, 0)).quarantined) == 1


def test_with_no_record_allowed_the_first_row_that_raises_stops_a_copy(spark: SparkSession, folder: Path) -> None:
    with table_under_test(folder, "copy.none", spark=spark) as table:
        with pytest.raises(Terminal, match=r"test-0@1: .*\[DIVIDE_BY_ZERO\].*10 / h"):
            table.run(given(1, 0))
        assert table.rows() == []


@pytest.mark.parametrize("kind", ["STRING", "STRUCT<topic: STRING, partition: INT, offset: BIGINT>"])
def test_a_copy_of_a_foreign_table_keeps_its_columns_even_one_that_is_called_source(
    spark: SparkSession, project: Callable[..., Plan], tmp_path: Path, kind: str
) -> None:
    own = "'mine'" if kind == "STRING" else "named_struct('topic', 't', 'partition', 1, 'offset', id)"
    rows = spark.range(4).selectExpr("id", "id - 1 AS h", f"CAST({own} AS {kind}) AS _source")
    rows.write.format("delta").save(str(tmp_path / "foreign"))
    plan = project({"copy.foreign": {"from": {"delta": str(tmp_path / "foreign"), "where": "10 / h <> 0"}}})
    run_well(spark, plan)
    wanted = Counter(str(row.asDict(True)) for row in rows.where("id <> 1").collect())
    table = plan.table("copy.foreign")
    assert table is not None
    assert Counter(map(str, rows_at(table.uri))) == wanted
    assert [row["error_reason"] for row in rows_at(table.uri + "__quarantine")] == ["transform_failed"]
    complete(spark, plan)


def test_rows_of_a_foreign_table_that_a_transform_raises_on_are_left_out_of_the_proof(
    spark: SparkSession, project: Callable[..., Plan], tmp_path: Path
) -> None:
    """They have no coordinates."""
    rows = spark.range(6).selectExpr("id", "id - 1 AS h")
    rows.write.format("delta").save(str(tmp_path / "foreign"))
    source, sql = {"delta": str(tmp_path / "foreign")}, "SELECT id, 10 / h AS r FROM input"
    plan = project({"silver.foreign": {"from": source, "sql": sql, "write": {"source": False}}})
    run_well(spark, plan)
    table = plan.table("silver.foreign")
    assert table is not None
    assert Counter(row["id"] for row in rows_at(table.uri)) == Counter([0, 2, 3, 4, 5])
    assert [row["error_reason"] for row in rows_at(table.uri + "__quarantine")] == ["transform_failed"]
    complete(spark, plan)


def test_a_foreign_table_with_a_column_that_is_called_source_is_refused_by_a_table_with_stages(
    spark: SparkSession, project: Callable[..., Plan], tmp_path: Path
) -> None:
    spark.range(2).selectExpr("id", "'mine' AS _Source").write.format("delta").save(str(tmp_path / "foreign"))
    plan = project({"silver.t": {"from": {"delta": str(tmp_path / "foreign")}, "sql": "SELECT * FROM input"}})
    assert "has a column _source" in run(spark, plan).errors["silver.t"].message
