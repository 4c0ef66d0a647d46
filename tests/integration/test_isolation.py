"""A record on which an expression raises is set aside, in quarantine with the error; the rest of its batch lands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import commits, rows_at, run_well, whole_chain
from tests.integration.run_replays import replayed, work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

SCHEMA = "id BIGINT NOT NULL, h BIGINT, t STRING, seq BIGINT"
COUNT = 20
ZERO, TEXT = {7, 14}, {10, 14}
"""Records with h = 0, and those whose t is no number."""
TRANSFORM = """
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

@udf("bigint")
def rate(h):
    return 1000 {operator} h

def rated(rows: DataFrame) -> DataFrame:
    return rows.withColumn("rate", rate("h"))
"""


def tables(topic: str, *, fixed: bool = False) -> dict[str, Any]:
    decode = {"json": "value", "schema": SCHEMA}
    divide = "try_divide(10, h)" if fixed else "10 / h"
    number = "try_cast(t AS INT)" if fixed else "CAST(t AS INT)"
    where = "get_json_object(value, '$.t')"
    merge = {"keys": ["id"], "sequence": f"seq + coalesce({number}, 0)", "delete_when": f"{divide} < 0"}
    return {
        "bronze.t": {"from": {"kafka": topic}},
        "silver.expect": {
            "from": {"kafka": topic},
            "decode": decode,
            "expect": [
                {"name": "rate", "check": f"coalesce({divide} > 0, true)"},
                {"name": "low", "check": f"coalesce({divide} < 9999, true)"},
                {"name": "numeric", "check": f"coalesce({number}, 1) >= 0", "action": "quarantine"},
            ],
        },
        "silver.sql": {
            "from": {"table": "bronze.t"},
            "decode": decode,
            "sql": f"SELECT *, {divide} AS rate, {number} AS n FROM t WHERE coalesce({divide} > 0, true)",
            "expect": [{"name": "small", "check": "id <> 3"}],
        },
        "silver.where": {
            "from": {"table": "bronze.t", "where": f"coalesce({number.replace('t AS', f'{where} AS')}, 1) < 99999"},
            "decode": decode,
        },
        "silver.python": {
            "from": {"table": "bronze.t"},
            "decode": decode,
            "transform": "transforms.py:rated",
            "dedupe": {"keys": ["id"]},
        },
        "silver.merged": {"from": {"kafka": topic}, "decode": decode, "write": {"merge": merge}},
        "silver.after": {"from": {"table": "silver.expect"}, "sql": "SELECT *, 100 / (id - 17) AS x FROM expect"},
    }


BAD = {
    "silver.expect": ZERO | TEXT,
    "silver.sql": ZERO | TEXT | {3},
    "silver.where": TEXT,
    "silver.python": ZERO,
    "silver.merged": ZERO | TEXT,
    "silver.after": {17},
}


@pytest.fixture
def shop(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan], tmp_path: Path
) -> Callable[..., Plan]:
    from confluent_kafka import Producer

    name = topic(2)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        made = {"id": number, "h": 0 if number in ZERO else 1 + number % 9, "seq": number}
        made["t"] = "x" if number in TEXT else str(number)
        producer.produce(name, partition=number % 2, value=json.dumps(made))
    assert producer.flush(30) == 0

    def make(*names: str, fixed: bool = False, **more: Any) -> Plan:
        (tmp_path / "transforms.py").write_text(TRANSFORM.format(operator="+" if fixed else "//"))
        chosen = {key: value for key, value in tables(name, fixed=fixed).items() if not names or key in names}
        for key, value in more.items():
            chosen[key.replace("__", ".")] |= value
        return project(chosen)

    return make


def ids(plan: Plan, name: str, suffix: str = "") -> Counter[int]:
    """Of the records that a table, or its quarantine, holds rows of: offset and partition are the number."""
    table = plan.table(name)
    assert table is not None
    rows = rows_at(table.uri + suffix)
    return Counter(row["_source"]["offset"] * 2 + row["_source"]["partition"] for row in rows)


def rejected(plan: Plan, name: str) -> dict[int, tuple[str, str]]:
    table = plan.table(name)
    assert table is not None
    return {
        row["_source"]["offset"] * 2 + row["_source"]["partition"]: (row["error_reason"], row["error_detail"])
        for row in rows_at(table.uri + "__quarantine")
    }


def once_each(plan: Plan, name: str, bad: set[int], of: set[int] | None = None) -> None:
    assert ids(plan, name, "__quarantine") == Counter(bad), name
    assert ids(plan, name) == Counter((of or set(range(COUNT))) - bad), name


def verified(plan: Plan) -> None:
    reports = verify(list(plan.tables), LocalStore())
    assert all(report.ok() for report in reports), [report for report in reports if not report.ok()]


def again(spark: SparkSession, plan: Plan, name: str, condition: str | None = None) -> Any:
    from penstock.operations.redrive import redrive

    work = work_on(spark, plan, name)
    try:
        return redrive(work, condition)
    finally:
        work.lock.close()


def test_each_poison_record_is_in_quarantine_with_its_error_and_all_others_land_whatever_raises(
    spark: SparkSession, shop: Callable[..., Plan]
) -> None:
    plan = shop()
    heard = run_well(spark, plan)
    for name, bad in BAD.items():
        of = set(range(COUNT)) - ZERO - TEXT if name == "silver.after" else None
        once_each(plan, name, bad, of)
    verified(plan)
    found = rejected(plan, "silver.expect")
    assert found[7][0] == "expectation" and found[7][1].startswith("rate: [DIVIDE_BY_ZERO]")
    assert ", low: [DIVIDE_BY_ZERO]" in found[7][1] and "numeric: [CAST_INVALID_INPUT]" in found[14][1]
    found = rejected(plan, "silver.sql")
    assert found[7][0] == found[10][0] == "transform_failed" and found[3] == ("expectation", "small")
    assert "[DIVIDE_BY_ZERO]" in found[7][1] and "10 / h" in found[7][1] and "[CAST_INVALID_INPUT]" in found[10][1]
    assert rejected(plan, "silver.where")[10][0] == "transform_failed"
    assert rejected(plan, "silver.where")[10][1].startswith("from.where: [CAST_INVALID_INPUT]")
    found = rejected(plan, "silver.python")
    assert found[7][0] == "transform_failed" and found[7][1].startswith("ZeroDivisionError: ")
    assert "transforms.py:7" in found[7][1]
    found = rejected(plan, "silver.merged")
    assert found[7][0] == found[10][0] == "transform_failed" and "CAST(t AS INT)" in found[10][1]
    assert heard.heard("2 records set aside: transform_failed (") and heard.heard("-1@3: ZeroDivisionError")


@pytest.mark.parametrize("names", [("silver.sql",), pytest.param((*BAD,), marks=pytest.mark.deep, id="all")])
def test_a_redrive_brings_them_back_when_the_definition_is_corrected(
    spark: SparkSession, shop: Callable[..., Plan], names: tuple[str, ...]
) -> None:
    run_well(spark, shop("bronze.t", *names))
    plan = shop("bronze.t", *names, fixed=True)
    for name in names:
        (done,) = again(spark, plan, name)
        if name == "silver.after":
            assert done.landed == 0 and done.reasons == {"transform_failed": 1}
            continue
        assert done.landed == len(BAD[name] - {3}), name
        once_each(plan, name, BAD[name] & {3})
    run_well(spark, plan)
    verified(plan)


@pytest.mark.deep
def test_a_replay_sets_the_same_records_aside_and_lands_those_that_a_corrected_definition_makes(
    spark: SparkSession, shop: Callable[..., Plan]
) -> None:
    from penstock.operations.replay_preview import preview

    divides = {"sql": "SELECT *, 10 / h AS r FROM input", "expect": []}
    plan = shop("silver.expect", "silver.merged", silver__expect=divides)
    heard = run_well(spark, plan)
    once_each(plan, "silver.expect", ZERO)
    once_each(plan, "silver.merged", ZERO | TEXT)
    for name in ("silver.expect", "silver.merged"):
        replayed(spark, plan, name)
        once_each(plan, name, BAD[name] & (ZERO if name == "silver.expect" else ZERO | TEXT))
        (last,) = [one.entry for one in commits(plan, name) if one.entry is not None and one.entry.kind == "fill"]
        # Of a merge a sequence that raises is found as the row is judged; only what else raises is searched for.
        searched = ZERO if name == "silver.expect" else ZERO - TEXT
        assert len(last.pins.set_aside) == len(searched)
    verified(plan)
    work = work_on(spark, plan, "silver.expect")
    try:
        with preview(work, work.head(), None, work.head().entry.after) as shown:
            assert shown.rejected is not None and shown.then.count() == COUNT - len(ZERO)
            assert {row["why"]["reason"] for row in shown.rejected.collect()} == {"transform_failed"}
    finally:
        work.lock.close()
    plan = shop("silver.merged", fixed=True)
    replayed(spark, plan, "silver.merged")
    once_each(plan, "silver.merged", set())
    assert heard.heard("set aside")


STEPS = {
    "repin": ("penstock.ledger.write_target.DeltaTableTarget", "repin", True),
    "before_append": ("penstock.ledger.write_target.DeltaTableTarget", "append", False),
    "after_append": ("penstock.ledger.write_target.DeltaTableTarget", "append", True),
    "before_add": ("penstock.tables.quarantine.Quarantine", "add", False),
    "after_add": ("penstock.tables.quarantine.Quarantine", "add", True),
}


@pytest.mark.parametrize(
    "chosen", [("repin", "after_append"), pytest.param((*STEPS,), marks=pytest.mark.deep, id="all")]
)
def test_killed_at_any_step_each_record_is_in_the_table_or_in_quarantine_once(
    spark: SparkSession,
    shop: Callable[..., Plan],
    project: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
    chosen: tuple[str, ...],
) -> None:
    """Tables that differ in nothing but where their first batch dies."""
    from importlib import import_module

    kafka = shop("silver.expect").tables[0].source
    decode = {"json": "value", "schema": SCHEMA}
    sql = "SELECT *, 10 / h AS r FROM input"
    died: set[str] = set()

    def dying(step: str, whole: Any, *, after: bool) -> Any:
        def dies(self: Any, *given: Any, **more: Any) -> Any:
            entry = next(one for one in given if hasattr(one, "pins"))
            dead = entry.table == f"silver.{step}" and step not in died
            made = whole(self, *given, **more) if after or not dead else None
            if dead:
                died.add(step)
                raise RuntimeError("killed")
            return made

        return dies

    for step in chosen:
        owner, name, after = STEPS[step]
        module, kind = owner.rsplit(".", 1)
        found = getattr(import_module(module), kind)
        monkeypatch.setattr(found, name, dying(step, getattr(found, name), after=after))
    expect = [{"name": "small", "check": "id <> 3"}]
    plan = project(
        {
            f"silver.{step}": {"from": {"kafka": kafka.topics[0]}, "decode": decode, "sql": sql, "expect": expect}
            for step in chosen
        }
    )
    run_well(spark, plan)
    assert died == set(chosen)
    for step in chosen:
        once_each(plan, f"silver.{step}", ZERO | {3})
        found = rejected(plan, f"silver.{step}")
        assert all(found[number][0] == "transform_failed" and "10 / h" in found[number][1] for number in ZERO)
        assert [
            len(entry.pins.set_aside) for entry in whole_chain(plan, f"silver.{step}") if entry.kind == "batch"
        ] == [2]
    verified(plan)


def test_rows_of_files_that_raise_are_set_aside_by_file_and_row(
    spark: SparkSession, project: Callable[..., Plan], tmp_path: Path
) -> None:
    folder = tmp_path / "landing"
    folder.mkdir()
    (folder / "a.json").write_text("\n".join(json.dumps({"id": n, "h": n % 4}) for n in range(8)))
    plan = project(
        {"silver.f": {"from": {"files": "landing", "format": "json", "schema": "id BIGINT, h BIGINT"},
                      "sql": "SELECT *, 10 / h AS r FROM input"}}
    )  # fmt: skip
    heard = run_well(spark, plan)
    table = plan.table("silver.f")
    assert table is not None
    assert Counter(row["id"] for row in rows_at(table.uri)) == Counter({1, 2, 3, 5, 6, 7})
    rows = rows_at(table.uri + "__quarantine")
    assert [row["error_reason"] for row in rows] == ["transform_failed"] * 2
    assert {json.loads(row["value"])["id"] for row in rows} == {0, 4} and heard.heard("2 records set aside")
    verified(plan)
