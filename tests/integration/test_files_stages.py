"""Rows of files through the stages of a table, and on to the tables that read it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import make_plan, rows, rows_at, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.deep
def test_files_through_silver_to_gold(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "silver.orders": {
            "from": {"files": "in", "format": "json", "schema": "id BIGINT NOT NULL, kind STRING, amount DECIMAL(9,2)"},
            "sql": "SELECT id, kind, amount * 2 AS twice, _source FROM input",
            "expect": [{"name": "positive", "check": "twice > 0"}],
            "dedupe": {"keys": ["id"]},
        },
        "gold.kinds": {
            "from": {"table": "silver.orders"},
            "aggregate": {"keys": ["kind"], "metrics": {"n": "count(*)", "total": "sum(twice)"}},
        },
    }
    plan = make_plan(tmp_path, "127.0.0.1:1", tables)
    folder = tmp_path / "in"
    folder.mkdir()
    for file in range(3):
        records = [
            {"id": n, "kind": "ab"[n % 2], "amount": -1 if n == 3 else 1.5} for n in range(file * 4, file * 4 + 6)
        ]
        (folder / f"{file}.json").write_text("".join(json.dumps(record) + "\n" for record in records) + "{}\n")
    run_well(spark, plan)
    run_well(spark, plan)
    assert sorted(row["id"] for row in rows(plan, "silver.orders")) == [n for n in range(14) if n != 3]
    gold = {row["kind"]: (row["n"], float(row["total"])) for row in rows(plan, "gold.kinds")}
    assert gold == {"a": (7, 21.0), "b": (6, 18.0)}
    table = plan.table("silver.orders")
    assert table is not None
    reasons = Counter(row["error_reason"] for row in rows_at(f"{table.uri}__quarantine"))
    assert reasons == Counter({"missing_field": 3, "expectation": 1})
    for report in verify(plan.tables, LocalStore()):
        assert not report.problems, report.problems


def test_every_kind_of_bad_line_has_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    bad = {
        '{"id": 1': "malformed_json",
        '{"id": "x"}': "wrong_type",
        '{"id": 1} more': "trailing_data",
        "[1]": "not_an_object",
        '{"name": "x"}': "missing_field",
        '{"id": 1e300}': "out_of_range",
    }
    tables = {"t": {"from": {"files": "in", "format": "json", "schema": "id BIGINT NOT NULL, name STRING"}}}
    plan = make_plan(tmp_path, "127.0.0.1:1", tables)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(['{"id": 7}', *bad]) + "\n")
    run_well(spark, plan)
    assert [row["id"] for row in rows(plan, "t")] == [7]
    found = {row["value"]: row["error_reason"] for row in rows_at(f"{plan.tables[0].uri}__quarantine")}
    assert found == bad


@pytest.mark.deep
def test_rows_of_parquet_with_expectations_and_a_payload_to_decode(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "typed": {
            "from": {"files": "in", "format": "parquet"},
            "expect": [{"name": "named", "check": "value IS NOT NULL"}],
        },
        "decoded": {
            "from": {"files": "in", "format": "parquet"},
            "decode": {"json": "value", "schema": "n BIGINT", "keep": ["id"]},
        },
    }
    plan = make_plan(tmp_path, "127.0.0.1:1", tables)
    made = tmp_path / "in"
    values = [(1, '{"n": 1}'), (2, None), (3, "no json")]
    spark.createDataFrame(values, "id BIGINT, value STRING").coalesce(1).write.parquet(str(made))
    run_well(spark, plan)
    assert sorted(row["id"] for row in rows(plan, "typed")) == [1, 3]
    assert [(row["id"], row["n"]) for row in rows(plan, "decoded")] == [(1, 1)]
    for name, reasons in (("typed", ["expectation"]), ("decoded", ["malformed_json", "no_value"])):
        table = plan.table(name)
        assert table is not None
        assert sorted(row["error_reason"] for row in rows_at(f"{table.uri}__quarantine")) == reasons
    assert {row["_source"]["row"] for row in rows(plan, "typed")} == {0, 2}


def test_a_table_over_files_can_be_tested(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.testing import table_under_test

    tables = {
        "t": {
            "from": {"files": "in", "format": "json", "schema": "id BIGINT"},
            "expect": [{"name": "even", "check": "id % 2 = 0"}],
        }
    }
    make_plan(tmp_path, "127.0.0.1:1", tables)
    with table_under_test(tmp_path, "t", spark=spark) as table:
        outcome = table.run([{"value": {"id": 1}}, {"value": {"id": 2}}, {"value": "no"}])
    assert [row["id"] for row in outcome.written] == [2]
    assert sorted(row["error_reason"] for row in outcome.quarantined) == ["expectation", "malformed_json"]


@pytest.mark.deep
def test_json_documents_over_several_lines(spark: SparkSession, tmp_path: Path) -> None:
    source = {"files": "in", "format": "json", "schema": "id BIGINT, amount DECIMAL(38,20)", "new_fields": "add"}
    plan = make_plan(tmp_path, "127.0.0.1:1", {"t": {"from": {**source, "options": {"multiLine": True}}}})
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('[\n {"id": 1,\n  "amount": 0.12345678901234567891},\n {"id": "x"}, {"id": 3}]\n')
    (folder / "b.json").write_text('\ufeff{\n "id": 4,\n "more": {"x": 1}\n}')
    (folder / "c.json").write_text('[{"id": 5}')
    (folder / "d.json").write_text("[]")
    (folder / "e.json").write_text("")
    run_well(spark, plan)
    found = {row["id"]: row for row in rows(plan, "t")}
    assert set(found) == {1, 3, 4}
    assert str(found[1]["amount"]) == "0.12345678901234567891"
    assert found[4]["more"] == {"x": 1}
    assert [(row["_source"]["file"], row["_source"]["row"]) for row in (found[1], found[3], found[4])] == [
        ("in/a.json", 0),
        ("in/a.json", 2),
        ("in/b.json", 0),
    ]
    rejected = rows_at(f"{plan.tables[0].uri}__quarantine")
    assert sorted((row["_source"]["file"], row["_source"]["row"], row["error_reason"]) for row in rejected) == [
        ("in/a.json", 1, "wrong_type"),
        ("in/c.json", 0, "malformed_json"),
    ]
