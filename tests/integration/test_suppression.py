"""Who is on the suppression list comes back by no way: not from Kafka, not by a replay, not out of quarantine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pytest

from penstock.plan.subjects import FORGOTTEN
from penstock.storage.stores import LocalStore
from penstock.tables.suppression import Suppression
from penstock.tables.suppression_list import SuppressionList
from penstock.verify.table import verify
from tests.integration.run_plan import commits, produce, rows_at, run_well
from tests.integration.run_replays import work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan

SCHEMA = "customer STRUCT<id: STRING, name: STRING>, n INT"
IN_VALUE = {"json": "value", "path": "$.customer.id"}


def tables(topic: str, most: int, *also: str) -> dict[str, Any]:
    decode = {"json": "value", "schema": SCHEMA}
    expect = [{"name": "small", "check": f"n < {most}"}]
    made = {"decode": decode, "expect": expect}
    flat = "SELECT t._source, t.customer.id AS id, t.n, m.n AS last FROM t LEFT JOIN people m ON m.id = t.customer.id"
    whole = {
        "bronze.t": {"from": {"kafka": topic}, "subjects": {"customer": [IN_VALUE, "key"]}},
        "silver.t": {"from": {"table": "bronze.t"}, **made, "subjects": {"customer": "customer.id"}},
        "silver.direct": {"from": {"kafka": topic}, **made, "subjects": {"customer": [IN_VALUE, "customer.id"]}},
        "gold.t": {
            "from": {"table": "silver.t"},
            "aggregate": {"keys": ["customer"], "metrics": {"rows": "count(*)"}},
            "subjects": {"customer": "customer.id"},
        },
        "silver.m": {
            "from": {"table": "silver.t"},
            "sql": "SELECT _source, customer.id AS id, n FROM t",
            "write": {"merge": {"keys": ["id"], "sequence": "n"}},
            "subjects": {"customer": "id"},
        },
        "silver.flat": {
            "from": {"table": "silver.t"},
            "sql": flat,
            "lookups": {"people": "silver.m"},
            "subjects": {"customer": "id"},
        },
    }
    return {name: whole[name] for name in ("bronze.t", "silver.t", *also)}


def of(plan: Plan, name: str) -> TablePlan:
    table = plan.table(name)
    assert table is not None
    return table


def listed(plan: Plan) -> SuppressionList:
    assert plan.forget is not None
    return SuppressionList(plan.forget, LocalStore())


def send(broker: Any, topic: str, values: Iterable[Any], **record: Any) -> None:
    for value in values:
        text = value if isinstance(value, str | bytes) else json.dumps(value)
        produce(broker.bootstrap, topic, 1, partitions=[0], value=text, **{"key": "x", **record})


def order(customer: object, n: int) -> dict[str, Any]:
    return {"customer": {"id": customer}, "n": n}


def customers(plan: Plan, name: str) -> set[str]:
    return {row["customer"]["id"] if "customer" in row else row["id"] for row in rows_at(of(plan, name).uri)}


def replayed(spark: SparkSession, plan: Plan, *names: str, say: Callable[[str], None] = lambda _: None) -> None:
    from penstock.operations.replay import replay

    for name in names:
        work = work_on(spark, plan, name)
        try:
            replay(work, None, "test", say)
        finally:
            work.lock.close()


def complete(plan: Plan) -> None:
    found = verify([table for table in plan.tables if not table.name.startswith("gold")], LocalStore())
    assert {one.table: (one.verdict, one.problems, one.doubts) for one in found} == {
        one.table: ("complete", [], []) for one in found
    }


@pytest.mark.deep
def test_who_is_on_the_list_comes_back_by_no_way(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    also = ("silver.direct", "gold.t")
    plan = project(tables(name, 90, *also))
    send(broker, name, [order(str(n % 5), n) for n in range(10)])
    send(broker, name, [order("3", 95), order("4", 96), '{"customer": {"id": "3"'])
    run_well(spark, plan)
    assert customers(plan, "gold.t") == {"0", "1", "2", "3", "4"}
    complete(plan)

    listed(plan).add("customer", 3)
    again = [order(3, 20), order("3", 21), order(3.0, 22), '{"customer": {"id": 3, ', b"\xff 3 \xfe"]
    others = [
        order("4", 23),
        order("13", 24),
        '{"customer": {"id": 13, ',
        b"\xff 33 \xfe",
        {"customer": {"id": "1"}, "n": 3},
    ]
    send(broker, name, again)
    send(broker, name, [order("2", 25)], key="3")
    send(broker, name, others)
    run_well(spark, plan)

    bronze = sorted(rows_at(of(plan, "bronze.t").uri), key=lambda row: row["offset"])
    assert [row["offset"] for row in bronze] == list(range(24))
    gone = [row["offset"] for row in bronze if row["headers"] is not None]
    assert gone == list(range(13, 19))
    for row in bronze[13:19]:
        assert (row["headers"][0]["key"], len(row["headers"])) == (FORGOTTEN, 1)
        assert all(row[column] is None for column in ("key", "key_binary", "value", "value_binary"))
        assert row["kafka_timestamp"] is not None
    # Nobody was erased yet: what came before the order is still there, and nothing of what came after it.
    for table in ("silver.t", "silver.direct"):
        rows = rows_at(of(plan, table).uri)
        assert [row["n"] for row in rows if row["customer"]["id"] == "3"] == [3, 8]
        aside = rows_at(of(plan, table).uri + "__quarantine")
        late = {row["_source"]["offset"] for row in aside if row["_source"]["offset"] > 12}
        assert late == {21, 22}
    complete(plan)
    report = next(one for one in verify([of(plan, "silver.t")], LocalStore()))
    assert report.conserved is not None and report.conserved.forgotten == 6 and report.conserved.read == 24

    _replays_bring_nothing_back(spark, plan)
    _redrives_bring_nothing_back(spark, project(tables(name, 100, *also)))


def _replays_bring_nothing_back(spark: SparkSession, plan: Plan) -> None:
    replayed(spark, plan, "silver.t", "silver.direct", "gold.t")
    assert "3" not in customers(plan, "silver.t") | customers(plan, "silver.direct")
    gold = {row["customer"]["id"]: row["rows"] for row in rows_at(of(plan, "gold.t").uri)}
    assert gold == {"0": 2, "1": 3, "2": 2, "4": 3, "13": 1}
    for name in ("silver.t", "silver.direct"):
        aside = {row["_source"]["offset"] for row in rows_at(of(plan, name).uri + "__quarantine")}
        assert aside == {11, 21, 22}
    complete(plan)


def _redrives_bring_nothing_back(spark: SparkSession, plan: Plan) -> None:
    from penstock.operations.redrive import redrive

    listed(plan).add("customer", "4")
    work = work_on(spark, plan, "silver.t")
    try:
        (done,) = redrive(work, None)
    finally:
        work.lock.close()
    assert (done.rows, done.landed, done.left) == (3, 0, 1)
    assert all(row["n"] != 96 for row in rows_at(of(plan, "silver.t").uri))
    last = commits(plan, "silver.t")[-1].entry
    assert last is not None and last.kind == "redrive" and last.counts.row_counts["forgotten"] > 0
    complete(plan)


@pytest.mark.deep
def test_merges_and_lookups_leave_them_out(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    plan = project(tables(name, 90, "silver.m", "silver.flat"))
    send(broker, name, [order(str(n % 4), n) for n in range(8)])
    run_well(spark, plan)
    assert customers(plan, "silver.m") == customers(plan, "silver.flat") == {"0", "1", "2", "3"}
    listed(plan).add("customer", "3")
    send(broker, name, [order("3", 20), order("2", 21)])
    run_well(spark, plan)
    assert [row["n"] for row in rows_at(of(plan, "silver.m").uri) if row["id"] == "3"] == [7]
    replayed(spark, plan, "silver.m", "silver.flat")
    assert customers(plan, "silver.m") == customers(plan, "silver.flat") == {"0", "1", "2"}
    complete(plan)


def test_an_order_that_comes_during_a_replay_is_in_it(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    plan = project(tables(name, 90))
    send(broker, name, [order(str(n % 3), n) for n in range(6)])
    run_well(spark, plan)
    said: list[str] = []

    def say(what: str) -> None:
        said.append(what)
        if what == "rows are committed":
            listed(plan).add("customer", 1)

    replayed(spark, plan, "bronze.t", "silver.t", say=say)
    assert sum("starts over" in what for what in said) == 1
    bronze = rows_at(of(plan, "bronze.t").uri)
    assert len(bronze) == 6 and sum(row["value"] is None for row in bronze) == 2
    assert customers(plan, "silver.t") == {"0", "2"}
    landed, stale = verify([of(plan, "bronze.t"), of(plan, "silver.t")], LocalStore())
    assert (landed.verdict, stale.verdict, stale.problems) == ("complete", "partial", [])
    assert [doubt.partition(":")[0] for doubt in stale.doubts] == ["stale"], (
        "bronze was rebuilt after silver had read it"
    )


def test_an_empty_list_adds_nothing_to_a_plan_and_a_delete_always_passes(
    spark: SparkSession, tmp_path: Any, project: Any
) -> None:
    plan = project(tables("t", 90))
    table = of(plan, "silver.t")
    changes = spark.createDataFrame(
        [("k", '{"customer": {"id": 3}}', None, None, None, kind) for kind in ("insert", "update_postimage", "delete")],
        "key STRING, value STRING, key_binary BINARY, value_binary BINARY, "
        "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, _change_type STRING",
    )
    suppression = Suppression(table, LocalStore())
    assert suppression.input_condition(changes) is None and suppression.drop_suppressed_input(changes) is changes
    listed(plan).add("device", 3)
    suppression.read_list()
    assert suppression.input_condition(changes) is None
    listed(plan).add("customer", 3)
    assert suppression.input_condition(changes) is None and suppression.has_new_orders
    suppression.read_list()
    assert not suppression.has_new_orders
    assert [row._change_type for row in suppression.drop_suppressed_input(changes).collect()] == ["delete"]


def test_the_log_has_no_statistics_of_names(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    whole = tables(name, 90)
    without = {key: {k: v for k, v in one.items() if k != "subjects"} for key, one in whole.items()}
    send(broker, name, [order("someone", 1)])
    run_well(spark, project(without))
    plan = project(whole)
    table = of(plan, "silver.t")
    assert "someone" in _statistics(table)
    send(broker, name, [order("another", 2)])
    heard = run_well(spark, plan)
    assert heard.heard("no statistics any more of customer.id")
    assert "another" not in _statistics(table) and '"n":2' in _statistics(table)
    assert not run_well(spark, plan).heard("no statistics")


def test_a_place_that_a_table_does_not_have_stops_it(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    from tests.integration.run_plan import run

    name = topic(partitions=1)
    sql = {"from": {"kafka": name}, "sql": "SELECT _source, value FROM input", "subjects": {"customer": "customer_id"}}
    heard = run(spark, project({"silver.t": sql}))
    assert "there is no column customer_id" in str(heard.errors["silver.t"])


def _statistics(table: TablePlan) -> str:
    from pathlib import Path

    commit = sorted(Path(table.uri, "_delta_log").glob("*.json"))[-1].read_text()
    return "".join(json.loads(line)["add"]["stats"] for line in commit.splitlines() if '"add"' in line)
