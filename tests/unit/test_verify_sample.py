"""What `verify` looks at, and what it holds for a mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.plan.build import build_plan
from penstock.plan.model import TablePlan
from penstock.spec.load import load_project
from penstock.verify.derived_tables import applicable_check, pending_check
from penstock.verify.document import groups_query, quote_name
from penstock.verify.recompute.diff import ALL_UP_TO, SAMPLE_SIZE, hashable, sample_of, unsteady_metrics
from penstock.verify.report import Differing, Value


def test_few_are_all_looked_at_and_of_many_about_a_hundred() -> None:
    assert sample_of(ALL_UP_TO, 7, deep=False).whole
    assert sample_of(10**9, 7, deep=True).whole
    for rows in (ALL_UP_TO + 1, 5_213, 10**9):
        sample = sample_of(rows, 7, deep=False)
        assert SAMPLE_SIZE <= rows / sample.every <= 2 * SAMPLE_SIZE


def test_the_same_version_has_the_same_sample_and_the_next_another() -> None:
    first, again, next_ = (sample_of(5_000, version, deep=False).condition(["k0"]) for version in (7, 7, 8))
    assert first == again == "pmod(xxhash64(7L, k0), 50L) = 0"
    assert next_ != first


def test_keys_whose_equals_have_other_hashes_are_not_sampled_by_them() -> None:
    assert hashable("k0", "string") == "k0"
    assert hashable("k0", "double") == "IF(k0 = 0, CAST(0 AS double), k0)"
    assert hashable("k0", "string collate UNICODE_CI") is None
    assert hashable("k0", "struct<a:double>") is None


@pytest.mark.parametrize(
    ("expression", "steady"),
    [
        ("count(*)", True),
        ("sum(amount)", True),
        ("approx_count_distinct(who)", True),
        ("count(DISTINCT first_name)", True),
        ("max(`first`)", True),
        ("FIRST (who)", False),
        ("array_join(collect_set(who), ',')", False),
        ("max_by(status, ts)", False),
        ("percentile_approx(amount, 0.5)", False),
        ("max(current_date - day)", False),
        ("max(datediff(now(), ts))", False),
    ],
)
def test_metrics_that_may_be_others_each_time_are_known(expression: str, steady: bool) -> None:
    assert unsteady_metrics({"m": expression}) == ([] if steady else ["m"])


MERGED = {"from": {"kafka": "c"}, "decode": {"json": "value", "schema": "id BIGINT, n INT"}}
FEED = {"write": {"merge": {"keys": ["id"], "sequence": "n"}, "change_feed": True}}


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, TablePlan]:
    follow = {"changes": "silver.c"}
    made: dict[str, Any] = {
        "silver.c": {**MERGED, **FEED},
        "silver.copy": {"from": follow, "write": {"merge": {}}},
        "silver.history": {"from": follow, "write": {"merge": {"history": "scd2"}}},
        "silver.own": {"from": follow, "sql": "SELECT * FROM c", "write": {"merge": {}}},
        "silver.rules": {"from": follow, "expect": [{"name": "n", "check": "n > 0"}], "write": {"merge": {}}},
        "silver.newest": {"from": follow, "write": {"merge": {"sequence": "n"}}},
        "silver.rows": {"from": follow, "sql": "SELECT * FROM c", "write": {"source": False}},
        "audit.c": {"from": follow, "audit": {}},
        "gold.c": {
            "from": follow,
            "aggregate": {
                "keys": ["odd name"],
                "window": {"time": "ts", "every": "1 hour"},
                "metrics": {"n": "count_if(n = 'it''s')"},
            },
        },
    }
    sinks = {"out": {"from": follow, "to": {"redis": "redis://127.0.0.1:1"}}}
    document = {"name": "t", "lake": "./lake", "kafka": {"bootstrap": "b:1"}, "tables": made, "sinks": sinks}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    return {table.name: table for table in build_plan(load_project(tmp_path)).tables}


def test_what_can_be_compared_is_known_before_spark_is_started(tables: dict[str, TablePlan]) -> None:
    assert {name: applicable_check(table) for name, table in tables.items()} == {
        "silver.c": "merge",
        "silver.copy": "copy",
        "silver.history": "copy",
        "silver.own": "merge",
        "silver.rules": "merge",
        "silver.newest": "merge",
        "silver.rows": None,
        "audit.c": "changes",
        "gold.c": "numbers",
        "out": None,
    }


def test_what_cannot_be_compared_says_why(tables: dict[str, TablePlan]) -> None:
    said = {name: check.said for name, table in tables.items() if (check := pending_check(table, 3)) is not None}
    assert said["gold.c"] == "the numbers are not computed again"
    for merged in ("silver.c", "silver.own", "silver.rules", "silver.newest"):
        assert said[merged] == "its changes are not folded again"
    assert said["silver.rows"].endswith("its rows tell changes, as its own sql or transform makes them")
    assert said["out"].endswith("redis://127.0.0.1:1 is not read")


def test_a_command_repeats_the_numbers_by_other_means(tables: dict[str, TablePlan]) -> None:
    assert quote_name("plain_1") == "plain_1" and quote_name("a`b") == "`a``b`"
    (command,) = groups_query(tables["gold.c"], 4)
    assert command.startswith(
        "penstock sql 'SELECT window.start AS window_start, window.end AS window_end, `odd name`, "
    )
    assert "FROM silver.c VERSION AS OF 4 GROUP BY window(ts, '\"'\"'3600000 milliseconds'\"'\"', " in command


def test_a_difference_reads_as_a_sentence() -> None:
    values = (Value("n", "2", "1"), Value("total", None, "3.50"))
    assert str(Differing("changed", {"kind": None}, values)) == (
        "kind NULL: n is 2, should be 1, total is NULL, should be 3.50"
    )
    assert str(Differing("missing", {"a": "x", "b": "y"})) == "a x, b y: is missing"
