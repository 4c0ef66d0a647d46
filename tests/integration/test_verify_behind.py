"""`verify` claims no more than it has proven: what is unread, failed, started late or taken over is not complete."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.report import Report, summary
from penstock.verify.table import verify
from tests.integration.run_plan import make_plan, produce, run, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

DECODE = {"json": "value", "schema": "id BIGINT, n INT"}
BRONZE = {"from": {"table": "bronze.t"}}


def send(broker: Any, topic: str, count: int, first: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(first, first + count):
        producer.produce(topic, json.dumps({"id": n, "n": n % 7}), partition=n % 2)
    assert producer.flush(30) == 0


def proven(spark: SparkSession, plan: Plan) -> dict[str, Report]:
    found = verify(plan.tables, LocalStore())
    run_checks_in(spark, plan, tables_to_check(plan.tables, found), LocalStore())
    return {report.table: report for report in found}


def test_what_is_unread_or_failed_is_behind_and_says_why_for_every_kind_of_table(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    name = topic(partitions=2)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n')
    tables: dict[str, Any] = {
        "bronze.t": {"from": {"kafka": name}},
        "silver.t": {**BRONZE, "decode": DECODE},
        "silver.fails": {**BRONZE, "decode": DECODE, "expect": [{"name": "no", "check": "n <> 6", "action": "fail"}]},
        "silver.m": {
            **BRONZE,
            "decode": DECODE,
            "write": {"merge": {"keys": ["n"], "sequence": "id"}, "change_feed": True},
        },
        "silver.copy": {"from": {"changes": "silver.m"}, "write": {"merge": {"keys": ["n"]}}},
        "silver.where": {"from": {"table": "bronze.t", "where": "partition = 0"}, "decode": DECODE},
        "gold.t": {"from": {"table": "silver.t"}, "aggregate": {"keys": "n", "metrics": {"rows": "count(*)"}}},
        "bronze.files": {"from": {"files": str(tmp_path / "in"), "format": "json", "schema": "id BIGINT"}},
    }
    plan = project(tables)
    send(broker, name, 20)
    run(spark, plan)
    found = proven(spark, plan)
    failed = found.pop("silver.fails")
    assert {one: (report.verdict, report.unproven) for one, report in found.items()} == dict.fromkeys(
        found, ("complete", [])
    )
    assert "every offset of" in summary(found["bronze.t"])
    assert (failed.verdict, failed.rows, failed.ok(), failed.ok(allow_behind=True)) == ("behind", 0, False, True)
    assert failed.unread.count == 1 and failed.unread.rows == 20, "the first snapshot is not read"
    assert failed.state.state == "failed" and "it failed: " in summary(failed) and "20 rows" in summary(failed)

    send(broker, name, 10, first=20)
    (tmp_path / "in" / "2.json").write_text('{"id": 2}\n')
    found = proven(spark, plan)
    assert (found["bronze.t"].verdict, found["bronze.t"].unread.count) == ("behind", 10)
    assert f"10 records of {name} not landed yet" in summary(found["bronze.t"])
    assert "every offset" not in summary(found["bronze.t"])
    assert (found["bronze.files"].verdict, found["bronze.files"].unread.count) == ("behind", 1), "nobody has listed it"
    assert found["silver.t"].verdict == "complete", "all that its own source holds is there"
    run_well(spark, plan, "bronze.t")
    found = proven(spark, plan)
    assert found["bronze.t"].verdict == "complete"
    for one in ("silver.t", "silver.m", "silver.where"):
        assert (found[one].verdict, found[one].unread.count, found[one].unread.rows) == ("behind", 1, 10), one
        assert not found[one].ok() and found[one].ok(allow_behind=True)
    run_well(spark, plan, "silver.t", "silver.m")
    found = proven(spark, plan)
    for one in ("silver.copy", "gold.t"):
        assert (found[one].verdict, found[one].unread.count) == ("behind", 1), one


def test_a_table_that_starts_late_says_from_where_and_what_is_not_part_of_it(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    late = {"from": {"table": "bronze.t", "starting": {"version": 2}}, "decode": DECODE}
    produce(broker.bootstrap, name, 5, partitions=[0])
    first = project(
        {"bronze.t": {"from": {"kafka": name}}, "bronze.late": {"from": {"kafka": name, "starting": "latest"}}}
    )
    run_well(spark, first)
    produce(broker.bootstrap, name, 3, partitions=[0])
    run_well(spark, first)
    plan = project(
        {
            "bronze.t": {"from": {"kafka": name}},
            "bronze.late": {"from": {"kafka": name, "starting": "latest"}},
            "silver.late": late,
        }
    )
    run_well(spark, plan)
    found = proven(spark, plan)
    assert {report.verdict for report in found.values()} == {"complete"}, {r.table: r.unproven for r in found.values()}
    assert "from version 2 on as the project says (5 earlier rows are not part of it)" in summary(found["silver.late"])
    said = summary(found["bronze.late"])
    assert f"{name}-0 [5, 8) once" in said and "(5 earlier records are not part of it)" in said
    assert "every offset" not in said
    declared = project({"bronze.late": {"from": {"kafka": name}}})
    (report,) = verify(declared.tables, LocalStore())
    assert report.verdict == "partial" and "5 records are left out" in report.unproven[0]


def test_rows_from_before_the_ledger_make_a_table_partial(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    from penstock.operations.reset import plan_reset, run_reset

    name = topic(partitions=1)
    produce(broker.bootstrap, name, 5, partitions=[0])
    plan = project({"bronze.t": {"from": {"kafka": name}}})
    run_well(spark, plan)
    (table,) = plan.tables
    rows = spark.read.format("delta").load(table.uri).collect()
    schema = spark.read.format("delta").load(table.uri).schema
    shutil.rmtree(table.uri)
    shutil.rmtree(table.checkpoints)
    spark.createDataFrame(rows, schema).coalesce(1).write.format("delta").save(table.uri)
    made = plan_reset(table, LocalStore(), json.dumps({name: {"0": 5}}))
    run_reset(spark, plan, made)
    produce(broker.bootstrap, name, 2, partitions=[0])
    run_well(spark, plan)
    (report,) = verify(plan.tables, LocalStore())
    assert report.verdict == "partial" and not report.ok(allow_behind=True) and report.ok(allow_partial=True)
    assert "5 rows were in the table before its ledger began" in " ".join(report.unproven)
    assert "every offset" not in summary(report)


def test_without_a_recomputation_the_numbers_are_not_proven(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.verify.recompute.run import mark_not_made

    place = str(tmp_path / "t")
    spark.range(5).write.format("delta").save(place)
    plan = make_plan(
        tmp_path,
        "127.0.0.1:1",
        {"gold.t": {"from": {"delta": place}, "aggregate": {"keys": "id", "metrics": {"n": "count(*)"}}}},
    )
    run_well(spark, plan)
    reports = verify(plan.tables, LocalStore())
    mark_not_made(plan.tables, reports, "--no-recompute")
    assert reports[0].verdict == "partial" and "--no-recompute" in reports[0].unproven[0]


@pytest.mark.parametrize("options", [{}, {"ignore_changes": True}])
def test_a_stopped_reader_of_a_table_by_its_path_is_behind(
    spark: SparkSession, tmp_path: Path, options: dict[str, bool]
) -> None:
    place = str(tmp_path / "t")
    spark.range(5).write.format("delta").save(place)
    plan = make_plan(tmp_path, "127.0.0.1:1", {"silver.t": {"from": {"delta": place, **options}}})
    run_well(spark, plan)
    assert verify(plan.tables, LocalStore())[0].verdict == "complete"
    for _ in range(5):
        spark.range(2).write.format("delta").mode("append").save(place)
    (report,) = verify(plan.tables, LocalStore())
    assert (report.verdict, report.unread.count, report.unread.rows) == ("behind", 5, 10)
    assert "5 versions (10 rows)" in summary(report)
