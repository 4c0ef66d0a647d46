"""`optimize` and `vacuum` as a user calls them, as far as they need no Spark: until something is to be done."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli import optimize, vacuum
from penstock.cli.console import size_text
from penstock.cli.plan import maintenance_facts
from penstock.errors import UsageError
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from tests.bronze_table import BronzeTable
from tests.unit.project_file import AWAY

PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
  bronze.clicks: {from: {kafka: clicks}}
  silver.orders: {from: {table: bronze.orders}, decode: {json: value, schema: id BIGINT}}
maintenance:
  optimize: {every: 1 hour, target_size: 128MiB}
  vacuum: {retain: 1 day, replay_window: 5 days, external_readers: [{name: bi, table: bronze.orders, lag: 6 days}]}
"""
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "penstock.yml").write_text(PROJECT)
    return build_plan(load_project(tmp_path))


@pytest.fixture
def orders(plan: Plan) -> BronzeTable:
    made = BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}})
    for number in range(1, 7):
        made.batch({"orders": {0: number * 10}})
    return made


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("penstock.spark.session.spark_session", refuse)


def call(module: Any, plan: Plan, *words: str) -> Result:
    app = Typer()
    app.command()(module.command)
    return CliRunner().invoke(app, ["-C", plan.root, *words], env={"COLUMNS": "100"})


def test_optimize_says_in_numbers_what_it_would_do(plan: Plan, orders: BronzeTable) -> None:
    done = call(optimize, plan, "--dry-run")
    assert done.exit_code == 0
    assert "6 files as larger ones: " in done.stdout and "about 1 left" in done.stdout
    assert done.stdout.count("not created yet") == 3, "also the quarantine of silver.orders"
    assert "6 files, " in done.stdout.splitlines()[-1] and "to rewrite" in done.stdout
    document = json.loads(call(optimize, plan, "bronze.orders", "--dry-run", "--json").stdout)
    (table,) = document["tables"]
    (step,) = table["steps"]
    assert (table["files"], step["kind"], step["files"], step["left"]) == (6, "compact", 6, 1)
    assert (document["done"], document["ok"], table["files_after"]) == (False, True, None)


def test_optimize_has_nothing_to_do_without_spark(plan: Plan) -> None:
    BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}}).batch({"orders": {0: 10}})
    done = call(optimize, plan, "bronze.orders", "--yes")
    assert done.exit_code == 0
    assert "nothing to do" in done.stdout


def test_nothing_is_written_if_the_answer_is_no(plan: Plan, orders: BronzeTable) -> None:
    before = orders.version()
    app = Typer()
    app.command()(optimize.command)
    done = CliRunner().invoke(app, ["-C", plan.root], input="n\n")
    assert done.exit_code == 1 and orders.version() == before


@pytest.mark.parametrize("module", [optimize, vacuum])
def test_a_log_that_cannot_be_read_is_said_and_the_others_are_looked_at(
    module: Any, plan: Plan, orders: BronzeTable
) -> None:
    log = Path(plan.tables[1].uri) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{not json")
    done = call(module, plan, "--dry-run")
    assert done.exit_code == 3
    assert "its log cannot be read" in done.stdout and "bronze.orders" in done.stdout


@pytest.mark.parametrize("module", [optimize, vacuum])
def test_an_unknown_table_gets_a_did_you_mean(plan: Plan, module: Any) -> None:
    error = call(module, plan, "bronze.order").exception
    assert isinstance(error, UsageError) and error.hint == "did you mean 'bronze.orders'?"


def test_vacuum_says_who_needs_what_and_starts_no_spark_if_no_file_can_go(plan: Plan, orders: BronzeTable) -> None:
    done = call(vacuum, plan, "--retain", "0s", "--yes")
    assert done.exit_code == 0
    text = " ".join(done.stdout.split())
    assert "bi reads it from outside the project, up to 6d behind" in text
    assert "the replay window of 5d keeps all that can be read again" in text
    assert "silver.orders is not made yet, and begins at version 6" in text
    assert "no file to delete" in text
    writing = "whoever is writing or reading now has an hour and the longest batch"
    assert writing not in text, "its batches would wait"
    assert writing in " ".join(call(vacuum, plan, "--retain", "1s", "--yes").stdout.split())
    document = json.loads(call(vacuum, plan, "bronze.orders", "--json", "--dry-run").stdout)
    (table,) = document["tables"]
    assert table["needs"][0]["who"] == "bi" and table["files"] == 0
    before = time.strptime(table["removed_before"], "%Y-%m-%dT%H:%M:%SZ")
    assert abs(time.time() - 6 * 86400 - time.mktime(before) + time.timezone) < 4000, "the oldest need counts"


def test_a_file_that_could_go_is_a_reason_to_ask_spark(plan: Plan, orders: BronzeTable) -> None:
    stray = Path(plan.tables[0].uri) / "part-stray.parquet"
    stray.write_bytes(b"x")
    old = time.time() - 30 * 86400
    os.utime(stray, (old, old))
    done = call(vacuum, plan, "bronze.orders", "--dry-run")
    assert "Spark was started" in str(done.exception)


@pytest.mark.parametrize(
    ("text", "said"),
    [("7", "of what?"), ("-1h", "is not a duration"), ("soon", "is not a duration"), ("9999 weeks", "longer than")],
)
def test_a_retention_that_is_none_is_refused(text: str, said: str, plan: Plan) -> None:
    error = call(vacuum, plan, f"--retain={text}").exception
    assert isinstance(error, UsageError) and said in error.message and error.exit_code == 2


def test_plan_says_how_files_are_looked_after(plan: Plan) -> None:
    ((name, said),) = maintenance_facts(plan.maintenance)
    assert name == "maintenance"
    assert said == (
        "optimize every 1h to files of 128 MiB; vacuum every 1d (1d kept, replay window 5d, bi up to 6d behind "
        "bronze.orders)"
    )


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (256 << 20, "256 MiB")])
def test_sizes_are_short(count: int, text: str) -> None:
    assert size_text(count) == text
