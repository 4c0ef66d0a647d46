"""What is not set aside: too many records, records that fail only together, checks that shall fail, aggregates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock.errors import Terminal
from penstock.operations.causes import explain
from penstock.testing import table_under_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DECODE = {"json": "value", "schema": "id BIGINT, h BIGINT"}
DIVIDE = "SELECT *, 10 / h AS r FROM orders"
FAILS = [{"name": "rate", "check": "10 / h > 0", "action": "fail"}]
TABLES: dict[str, Any] = {
    "bronze.orders": {"from": {"kafka": "orders"}},
    "silver.two": {"from": {"table": "bronze.orders"}, "decode": DECODE, "sql": DIVIDE, "max_failed_records": 2},
    "silver.off": {"from": {"table": "bronze.orders"}, "decode": DECODE, "sql": DIVIDE, "max_failed_records": 0},
    "silver.sum": {
        "from": {"table": "bronze.orders"},
        "decode": DECODE,
        "sql": "SELECT *, sum(id * 4611686018427387000) OVER () AS s FROM orders",
    },
    "silver.fail": {"from": {"table": "bronze.orders"}, "decode": DECODE, "expect": FAILS},
    "silver.foreign": {
        "from": {"delta": "/nowhere"},
        "sql": "SELECT *, 10 / h AS r FROM input",
        "write": {"source": False},
    },
    "gold.sums": {
        "from": {"table": "silver.two"},
        "aggregate": {"keys": ["id"], "metrics": {"n": "count(*)", "total": "sum(h * 4611686018427387904)"}},
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    foreign = {**TABLES["silver.foreign"], "from": {"delta": str(tmp_path / "foreign")}}
    document = {
        "name": "shop",
        "lake": "./lake",
        "kafka": {"bootstrap": "127.0.0.1:1"},
        "tables": {**TABLES, "silver.foreign": foreign},
    }
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return tmp_path


def given(*heights: int) -> list[dict[str, Any]]:
    return [{"value": {"id": number, "h": height}} for number, height in enumerate(heights)]


def test_as_many_records_as_allowed_are_set_aside_and_one_more_stops_the_table_with_the_first(
    spark: SparkSession, folder: Path
) -> None:
    with table_under_test(folder, "silver.two", spark=spark) as table:
        outcome = table.run(given(1, 0, 2, 0, 5))
        assert [row["id"] for row in outcome.written] == [0, 2, 4] and outcome.read == 5
        assert [row["error_reason"] for row in outcome.quarantined] == ["transform_failed"] * 2
        with pytest.raises(Terminal, match=r"more than 2 of 4 records.* test-0@6: \[DIVIDE_BY_ZERO\].*10 / h"):
            table.run(given(1, 0, 0, 0))
        assert len(table.rows()) == 3
    with table_under_test(folder, "silver.off", spark=spark) as table:
        with pytest.raises(Exception) as raised:
            table.run(given(1, 0))
        cause = explain(raised.value, "silver.off", "log")
        assert isinstance(cause, Terminal) and "[DIVIDE_BY_ZERO]" in cause.message and "10 / h" in cause.message


@pytest.mark.deep
def test_records_that_fail_only_together_stop_the_table_with_the_smallest_range(
    spark: SparkSession, folder: Path
) -> None:
    with table_under_test(folder, "silver.sum", spark=spark) as table:
        told = r"no single record fails, but 2 records.* from test-0@1 to test-0@2: .*OVERFLOW"
        with pytest.raises(Terminal, match=told):
            table.run(given(1, 1, 1))
        assert table.rows() == []


def test_a_check_that_raises_stops_the_table_if_its_action_is_to_fail_and_names_the_record(
    spark: SparkSession, folder: Path
) -> None:
    with table_under_test(folder, "silver.fail", spark=spark) as table:
        assert len(table.run(given(1, 2)).written) == 2
        with pytest.raises(Exception) as raised:
            table.run(given(1, 0))
    cause = explain(raised.value, "silver.fail", "log")
    assert isinstance(cause, Terminal) and cause.message.startswith("expectation rate failed: 10 / h > 0; at ")
    assert '"offset":3' in cause.message and "[DIVIDE_BY_ZERO]" in cause.message


def test_rows_without_coordinates_are_set_aside_by_their_content(spark: SparkSession, folder: Path) -> None:
    schemas = {"source": "id BIGINT, h BIGINT"}
    with table_under_test(folder, "silver.foreign", schemas=schemas, spark=spark) as table:
        outcome = table.run([{"id": 1, "h": 0}, {"id": 2, "h": 1}, {"id": 1, "h": 0}, {"id": 3, "h": 5}])
    assert sorted(row["id"] for row in outcome.written) == [2, 3] and outcome.read == 4
    assert [row["error_reason"] for row in outcome.quarantined] == ["transform_failed"] * 2


def test_an_aggregate_that_overflows_names_the_group_and_the_metric(spark: SparkSession, folder: Path) -> None:
    with table_under_test(folder, "gold.sums", spark=spark) as table:
        table.run([{"id": 1, "h": 1}, {"id": 2, "h": 1}])
        with pytest.raises(Terminal, match=r"in the group id = 2, total: sum\(h \* .*OVERFLOW"):
            table.run([{"id": 1, "h": 0}, {"id": 2, "h": 1}, {"id": 3, "h": 1}])
        assert len(table.rows()) == 2
