"""`new_fields` of records: unknown fields become columns, are kept in one, left out, or stop the table."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal
from penstock.ledger.entry import dump
from penstock.storage.stores import LocalStore
from penstock.tables import new_fields
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.table import verify
from tests.integration.run_plan import commits, produce, rows, rows_at, run, run_well, whole_chain
from tests.integration.run_replays import content, replayed, work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = "silver.t"
ROOT = Path(__file__).parents[2]


def tables(topic: str, new_fields: str | None = "add", **more: Any) -> dict[str, Any]:
    decode = {"json": "value", "schema": "id BIGINT NOT NULL", **({"new_fields": new_fields} if new_fields else {})}
    return {TABLE: {"from": {"kafka": topic}, "decode": decode, **more}}


def send(broker: Any, topic: str, *records: Any) -> None:
    for record in records:
        produce(broker.bootstrap, topic, 1, value=record if isinstance(record, str) else json.dumps(record))


def found(plan: Any, *columns: str, name: str = TABLE) -> dict[int, Any]:
    made = {row["id"]: tuple(row.get(column) for column in columns) for row in rows(plan, name)}
    assert len(made) == len(rows(plan, name))
    return {key: value[0] if len(columns) == 1 else value for key, value in made.items()}


def test_new_fields_of_records_become_columns(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic()
    below = {"from": {"table": TABLE}, "write": {"schema": "evolve"}, "expect": [{"name": "any", "check": "id >= 0"}]}
    plan = project({**tables(name), "gold.t": below})
    send(broker, name, {"id": 1}, {"id": 2, "nothing": None, "empty": [], "also": {"x": {}}})
    run_well(spark, plan)
    assert set(rows(plan, TABLE)[0]) == {"id", "_rescued", "_source"}
    send(
        broker,
        name,
        {"id": 3, "n": 1, "mixed": {"a": 1}, "in": {"deep": "x"}, "list": [{"y": 1}]},
        {"id": 4, "n": 2.5, "mixed": [True], "ID": 7, "a b": 8, "_source": 9, "in": {"bad name": 1, "deep": "z"}},
        {"id": "x", "rejected": 1},
        '{"id": 5, "n": 3, "nothing": "now it has one"}',
    )
    heard = run_well(spark, plan)
    assert heard.heard(
        "columns evolved: new in STRUCT<DEEP:STRING>, new list ARRAY<STRUCT<Y:BIGINT>>, new mixed STRING"
    )
    assert heard.heard("kept in _rescued: ID, _source, a b, in.bad name")
    assert heard.heard("mixed has values of several kinds (object, array)")
    expected = {
        1: (None, None, None, None),
        2: (None, None, None, None),
        3: (1.0, '{"a": 1}', {"deep": "x"}, None),
        4: (2.5, "[true]", {"deep": "z"}, None),
        5: (3.0, None, None, "now it has one"),
    }
    for table in (TABLE, "gold.t"):
        assert found(plan, "n", "mixed", "in", "nothing", name=table) == expected
    assert "rejected" not in rows(plan, TABLE)[0]
    rescued = {key: json.loads(text) for key, text in found(plan, "_rescued").items() if text}
    assert rescued[4] == {"ID": 7, "a b": 8, "_source": 9, "in.bad name": 1}
    assert rescued[2] == {"nothing": None, "empty": [], "also": {"x": {}}}
    (rejected,) = rows_at(f"{plan.table(TABLE).uri}__quarantine")
    assert (rejected["value"], rejected["error_reason"]) == ('{"id": "x", "rejected": 1}', "wrong_type")
    send(broker, name, {"id": 6, "in": {"bad name": 2, "deep": "w", "more": 1}, "list": [{"y": 1}, {"z": 2}]})
    heard = run_well(spark, plan)
    assert heard.heard("new in.more BIGINT, new list.element.z BIGINT")
    assert found(plan, "in")[6] == {"deep": "w", "more": 1}
    assert [item["z"] for item in found(plan, "list")[6]] == [None, 2]
    assert [one.verdict for one in verify(plan.tables, LocalStore())] == ["complete", "complete"]


def test_without_new_fields_a_batch_is_read_once(
    spark: SparkSession, broker: Any, topic: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = topic()
    looks: list[int] = []
    whole = new_fields.infer_json
    monkeypatch.setattr(new_fields, "infer_json", lambda texts: (looks.append(1), whole(texts))[1])
    monkeypatch.setattr(new_fields, "MOST_ADDED", 3)
    plan = project(tables(name))
    send(broker, name, {"id": 1, "a": 1, "in": {"x": 1}, "z": 1}, {"id": 2, "a": 1, "in": {"x": 2}, "z": 2})
    heard = run_well(spark, plan)
    assert looks == [1]  # all fields of a batch at once
    assert heard.heard("WARNING: the records have brought more than 3 fields")
    assert found(plan, "a", "in") == {1: (1, {"x": 1}), 2: (1, {"x": 2})}
    random_names = [{"id": 10 + number, f"k{random.random()}": number, "in": {f"r{number}": 1}} for number in range(5)]
    send(broker, name, *random_names)
    run_well(spark, plan)
    assert looks == [1]  # no more columns are added, so nothing is looked for
    rescued = {key: json.loads(text) for key, text in found(plan, "_rescued").items() if text}
    assert rescued[1] == {"z": 1}
    for record in random_names:
        (key,) = (key for key in record if key.startswith("k"))
        assert rescued[record["id"]] == {key: record[key], f"in.r{record['id'] - 10}": 1}
    assert set(rows(plan, TABLE)[0]) == {"id", "a", "in", "_rescued", "_source"}


@pytest.mark.deep
def test_a_redriven_record_brings_its_new_fields_as_one_of_a_batch_does(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    from penstock.operations.redrive import redrive

    name = topic()
    decode = {"json": "value", "schema": "id BIGINT NOT NULL, n BIGINT NOT NULL", "new_fields": "add"}
    plan = project({TABLE: {"from": {"kafka": name}, "decode": decode}})
    send(broker, name, {"id": 1, "x": "new", "in": {"y": 1}}, {"id": 2, "n": 2}, {"id": "?", "z": 1})
    run_well(spark, plan)
    assert set(rows(plan, TABLE)[0]) == {"id", "n", "_rescued", "_source"}
    plan = project({TABLE: {"from": {"kafka": name}, "decode": {**decode, "schema": "id BIGINT NOT NULL, n BIGINT"}}})
    work = work_on(spark, plan, TABLE)
    try:
        (done,) = redrive(work, None)
    finally:
        work.lock.close()
    assert (done.landed, done.reasons) == (1, {"wrong_type": 1})
    send(broker, name, {"id": 3, "x": "later"})
    run_well(spark, plan)
    whole_chain(plan, TABLE)
    assert found(plan, "x", "in", "_rescued") == {
        1: ("new", {"y": 1}, None),
        2: (None, None, None),
        3: ("later", None, None),
    }
    assert not verify(plan.tables, LocalStore())[0].problems


STEPS = [
    (new_fields.GrownSchema, "keep", False),
    (new_fields.GrownSchema, "keep", True),
    (new_fields, "settle_columns", False),
    (new_fields, "settle_columns", True),
]


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.deep if index in (0, 2) else ()) for index, step in enumerate(STEPS)]
)
def test_a_crash_between_new_columns_and_the_rows_changes_nothing(
    step: tuple[Any, str, bool],
    spark: SparkSession,
    broker: Any,
    topic: Any,
    project: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner, step_name, after = step
    name = topic()
    plan = project(tables(name))
    send(broker, name, {"id": 1})
    run_well(spark, plan)
    send(broker, name, {"id": 2, "b": 1, "a": "x"}, {"id": 3, "b": {"x": 1}, "a b": 1})
    times: list[int] = []
    whole = getattr(owner, step_name)

    def dies(*given: Any, **more: Any) -> Any:
        times.append(1)
        if after:
            whole(*given, **more)
        raise RuntimeError("killed")

    monkeypatch.setattr(owner, step_name, dies)
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_UNEXPLAINED", 1)
    assert run(spark, plan).errors
    assert times
    monkeypatch.undo()
    run_well(spark, plan)
    assert found(plan, "a", "b") == {1: (None, None), 2: ("x", "1"), 3: (None, '{"x": 1}')}
    assert list(rows(plan, TABLE)[0])[:3] == ["id", "_rescued", "_source"]
    whole_chain(plan, TABLE)
    assert [one.verdict for one in verify(plan.tables, LocalStore())] == ["complete"]


@pytest.mark.deep
def test_rescue_ignore_and_fail(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    send(broker, name, {"id": 1, "x": 1})
    plan = project(
        {
            "silver.rescue": tables(name, "rescue")[TABLE],
            "silver.ignore": tables(name, "ignore")[TABLE],
            "silver.plain": tables(name, None)[TABLE],
            "silver.fail": tables(name, "fail")[TABLE],
        }
    )
    heard = run(spark, plan)
    assert set(heard.errors) == {"silver.fail"}
    error = heard.errors["silver.fail"]
    assert isinstance(error, Terminal) and "does not name: x" in error.message
    assert rows(plan, "silver.fail") == []
    assert found(plan, "_rescued", name="silver.rescue") == {1: '{"x":1}'}
    assert set(rows(plan, "silver.ignore")[0]) == set(rows(plan, "silver.plain")[0]) == {"id", "_source"}
    assert plan.table("silver.ignore").definition == plan.table("silver.plain").definition


@pytest.mark.deep
def test_a_replay_adds_the_fields_that_were_ignored(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic()
    send(broker, name, {"id": 1, "x": 1}, {"id": 2, "y": {"z": [1]}})
    run_well(spark, project(tables(name, "ignore", write={"schema": "evolve"})))
    plan = project(tables(name))
    send(broker, name, {"id": 3, "w": 1})
    run_well(spark, plan)
    assert found(plan, "x", "w") == {1: (None, None), 2: (None, None), 3: (None, 1)}
    replayed(spark, plan, TABLE)
    assert found(plan, "x", "w", "y") == {1: (1, None, None), 2: (None, None, {"z": [1]}), 3: (None, 1, None)}
    before = content(plan, TABLE)
    replayed(spark, plan, TABLE)
    assert content(plan, TABLE) == before
    send(broker, name, {"id": 4, "v": True})
    run_well(spark, plan)
    assert found(plan, "v")[4] is True


def test_a_name_that_is_too_long_for_a_column_is_kept_aside(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name, long = topic(), "k" * 60_000
    plan = project(tables(name))
    send(broker, name, {"id": 1, long: 1, "fine": 2})
    run_well(spark, plan)
    assert found(plan, "fine", "_rescued") == {1: (2, f'{{"{long}":1}}')}


@pytest.mark.deep
def test_a_name_that_the_transform_makes_is_kept_aside(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project(tables(name, sql="SELECT *, id * 2 AS twice FROM input"))
    send(broker, name, {"id": 1})
    run_well(spark, plan)
    send(broker, name, {"id": 2, "twice": "mine", "fine": 1})
    run_well(spark, plan)
    assert found(plan, "twice", "fine", "_rescued") == {1: (2, None, None), 2: (4, 1, '{"twice":"mine"}')}


@pytest.mark.deep
def test_behind_a_transform_only_rows_of_records_with_empty_new_fields_are_excused(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project(tables(name, sql="SELECT *, id * 2 AS twice FROM input"))
    send(broker, name, {"id": 1, "o": {}}, {"id": 2}, {"id": 3, "x": "null"})
    run_well(spark, plan)
    send(broker, name, {"id": 4, "o": {"a": 1}, "x": "y"})
    run_well(spark, plan)

    def contents() -> tuple[str, int]:
        reports = verify(plan.tables, LocalStore())
        run_checks_in(spark, plan, tables_to_check(plan.tables, reports, deep=True), LocalStore(), deep=True)
        (check,) = (one for one in reports[0].checks if one.name == "contents")
        return check.outcome, check.differing

    assert contents()[0] == "stale"  # of the first record o was rescued, and is a column now
    there = spark.read.format("delta").load(plan.tables[0].uri)
    forged = [row.asDict(True) | ({"twice": 99} if row["id"] == 2 else {}) for row in there.collect()]
    rewritten = spark.createDataFrame([tuple(row.values()) for row in forged], there.schema)
    rewritten.write.format("delta").mode("overwrite").option("dataChange", "false").save(plan.tables[0].uri)
    assert contents()[0] == "differs"


def test_empty_fields_of_files_that_became_columns_make_a_table_with_a_transform_stale_not_wrong(
    spark: SparkSession, project: Any, tmp_path: Path
) -> None:
    source = {"files": "in", "format": "json", "schema": "id BIGINT", "new_fields": "add"}
    plan = project({TABLE: {"from": source, "sql": "SELECT *, id * 2 AS twice FROM input"}})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id":1,"o":{}}\n{"id":2,"l":[ ]}\n{"id":3,"x":null}\n{"id":4}\n')
    run_well(spark, plan)
    (tmp_path / "in" / "b.json").write_text('{"id":5,"o":{"a":1},"l":[{"b":1}],"x":"v"}\n')
    run_well(spark, plan)
    assert ("contents", "stale") in looked(spark, plan)


CHILD = """
import os, signal, sys
from pathlib import Path
from penstock.tables import new_fields
from penstock.ledger.write_target import DeltaTableTarget
from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from tests.integration.run_plan import Heard

owner = {"keep": new_fields.GrownSchema, "settle_columns": new_fields, "append": DeltaTableTarget}[sys.argv[2]]
whole = getattr(owner, sys.argv[2])

def dies(*given, **more):
    if sys.argv[3] == "after":
        whole(*given, **more)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(owner, sys.argv[2], dies)
from penstock.spark.session import spark_session
from penstock.plan.build import select_tables
from penstock.runtime.runner import run_in
plan = build_plan(load_project(Path(sys.argv[1])))
with spark_session(plan) as spark:
    run_in(spark, plan, select_tables(plan, []), Heard(), once=True)
"""


def sigkill(root: Path, step: str, moment: str) -> None:
    made = subprocess.run(
        [sys.executable, "-c", CHILD, str(root), step, moment],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=300,
    )
    assert made.returncode == -signal.SIGKILL, made.stderr.decode()[-2000:]


@pytest.mark.deep
def test_kill_9_at_every_step_of_new_columns(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    name = topic()
    plan = project(tables(name))
    send(broker, name, {"id": 0})
    run_well(spark, plan)
    steps = [(step, moment) for step in ("keep", "settle_columns", "append") for moment in ("before", "after")]
    for number, (step, moment) in enumerate(steps, start=1):
        send(broker, name, {"id": number, f"f{number}": number, f"m{number}": []}, {"id": -number, f"m{number}": "x"})
        send(broker, name, {"id": 100 + number, f"f{number}": {"a": 1}}, {"id": "bad", "never": number})
        sigkill(tmp_path, step, moment)
        run_well(spark, plan)
        assert found(plan, f"f{number}")[number] == str(number)
    whole_chain(plan, TABLE)
    wanted = {0, *range(1, 7), *range(-6, 0), *range(101, 107)}
    assert set(found(plan, "id")) == wanted
    for number in range(1, 7):
        assert found(plan, f"f{number}")[100 + number] == '{"a": 1}'
        assert found(plan, f"m{number}")[-number] == "x"
    assert "never" not in rows(plan, TABLE)[0]
    assert len(rows_at(f"{plan.table(TABLE).uri}__quarantine")) == len(steps)
    assert [one.verdict for one in verify(plan.tables, LocalStore())] == ["complete"]


def nested(depth: int, *, lists: bool = False) -> str:
    return "[" * depth + "1" + "]" * depth if lists else '{"a":' * depth + "1" + "}" * depth


def looked(spark: SparkSession, plan: Any) -> list[tuple[str, str]]:
    """What a deep verification says of each table."""
    reports = verify(plan.tables, LocalStore())
    run_checks_in(spark, plan, tables_to_check(plan.tables, reports, deep=True), LocalStore(), deep=True)
    return [(check.name, check.outcome) for report in reports for check in report.checks]


@pytest.mark.deep
def test_names_and_depths_that_no_column_can_have_do_not_stop_a_table(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    plan = project(tables(name, write={"change_feed": True}))
    deep = [29, 30, 31, 32, 200, 997]
    for number, depth in enumerate(deep):
        send(broker, name, f'{{"id":{number},"x{depth}":{nested(depth)},"l{depth}":{nested(depth, lists=True)}}}')
    odd = {"ıd": 2, "İD": 3, "_change_type": "x", "_commit_version": 1, "_Commit_Timestamp": 2, "_metadata": {"a": 1}}
    send(broker, name, json.dumps({"id": 100, **odd, "fine": 1}, ensure_ascii=False))
    heard = run_well(spark, plan)
    assert heard.heard("nested deeper than 30 levels")
    made = {row["id"]: row for row in rows(plan, TABLE)}
    assert json.loads(made[100]["_rescued"]) == odd
    assert made[100]["fine"] == 1
    for number, depth in enumerate(deep):
        value, where = made[number][f"x{depth}"], 0
        while isinstance(value, dict):
            value, where = value["a"], where + 1
        assert (where, value) == ((depth, 1) if depth <= 30 else (30, nested(depth - 30)))
        value = made[number][f"l{depth}"]
        assert value == nested(depth, lists=True) if depth > 30 else isinstance(value, list)
    send(broker, name, {"id": 101, "later": 1})
    run_well(spark, plan)
    assert found(plan, "later")[101] == 1
    assert {outcome for _, outcome in looked(spark, plan)} == {"same"}


@pytest.mark.parametrize("merged", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_verify_compares_the_columns_that_records_brought(
    merged: bool, spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    merge = {"write": {"merge": {"keys": ["id"], "sequence": "_source.offset"}}} if merged else {}
    plan = project(tables(name, **merge))
    send(broker, name, {"id": 1, "n": 1, "in": {"a": 1, "b": None, "c": []}}, {"id": 2, "e": [], "o": {}, "z": None})
    run_well(spark, plan)
    send(
        broker, name, {"id": 3, "n": 2, "in": {"b": 1.5, "c": [1]}, "e": [1], "o": {"x": 1}, "z": "z", "a b": {"c": 1}}
    )
    run_well(spark, plan)
    assert {outcome for _, outcome in looked(spark, plan)} == {"same"}
    uri = plan.table(TABLE).uri
    last = [one.entry for one in commits(plan, TABLE) if one.entry is not None][-1]
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", dump(replace(last, kind="carry")))
    try:
        spark.sql(f"UPDATE delta.`{uri}` SET n = 7 WHERE id = 3")
    finally:
        spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    assert "differs" in {outcome for _, outcome in looked(spark, plan)}
