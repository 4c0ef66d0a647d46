"""`status`, `history` and `verify` as a user calls them, over a lake whose broker is away."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli import history, status, verify
from penstock.errors import UsageError
from penstock.operations import status as status_ops
from penstock.operations.status import RunnerStatus, write_state
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.verify import table as verify_ops
from tests.bronze_table import BronzeTable
from tests.unit.project_file import AWAY

PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
  bronze.clicks: {from: {kafka: clicks}, columns: {offset: kafka_offset}}
"""
)


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_ops, "BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr(verify_ops, "BROKER_TIMEOUT", 0.05)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "penstock.yml").write_text(PROJECT)
    return build_plan(load_project(tmp_path))


@pytest.fixture
def orders(plan: Plan) -> BronzeTable:
    return BronzeTable(plan.tables[0]).genesis({"orders": {0: 0, 1: 10}}).batch({"orders": {0: 1200, 1: 12}})


@pytest.fixture
def clicks(plan: Plan) -> BronzeTable:
    return BronzeTable(plan.tables[1]).genesis({"clicks": {0: 0}}).batch({"clicks": {0: 5}})


def call(module: Any, plan: Plan, *words: str) -> Result:
    app = Typer()
    app.command()(module.command)
    return CliRunner().invoke(app, ["-C", plan.root, *words], env={"COLUMNS": "100"})


def test_status_has_a_row_per_table_and_says_why_the_lag_is_unknown(plan: Plan, orders: BronzeTable) -> None:
    from penstock.storage.stores import LocalStore

    write_state(LocalStore(), plan.system, "bronze.orders", RunnerStatus("failed", "the disk is full", "make room"))
    done = call(status, plan)
    assert done.exit_code == 0
    for text in ("bronze.orders", "failed", "1.1", "1,202", "unknown", "the disk is full", "-> make room"):
        assert text in done.output
    assert "bronze.clicks  not created" in done.output
    assert "lag unknown: Kafka at 127.0.0.1:1 does not answer" in " ".join(done.output.split())


def test_status_answers_in_json(plan: Plan, orders: BronzeTable) -> None:
    document = json.loads(call(status, plan, "bronze.orders", "--json").stdout)
    (table,) = document["tables"]
    assert (table["table"], table["state"], table["rows"], table["lag"]) == ("bronze.orders", "stopped", 1202, None)
    assert table["partitions"][1] == {"topic": "orders", "partition": 1, "position": 12, "end": None, "lag": None}


@pytest.mark.parametrize("module", [status, history, verify])
def test_an_unknown_table_gets_a_did_you_mean(plan: Plan, module: Any) -> None:
    error = call(module, plan, "bronze.order").exception
    assert isinstance(error, UsageError)
    assert error.hint == "did you mean 'bronze.orders'?"


def test_history_shows_what_each_commit_read(plan: Plan, orders: BronzeTable) -> None:
    orders.delete("offset = 5")
    lines = call(history, plan, "bronze.orders").stdout.splitlines()
    assert "foreign change (DELETE)" in lines[1]
    assert "orders 0 [0, 1200), 1 [10, 12)" in lines[2]
    assert 'starts at {"orders":{"0":0,"1":10}}' in lines[3]


def test_history_of_a_table_that_is_not_there_says_so(plan: Plan) -> None:
    assert "not created yet" in call(history, plan, "bronze.clicks").stdout


def test_history_answers_in_json(plan: Plan, orders: BronzeTable) -> None:
    document = json.loads(call(history, plan, "bronze.orders", "--limit", "1", "--json").stdout)
    (commit,) = document["commits"]
    assert (commit["kind"], commit["rows"], commit["read"][0]["end"]) == ("batch", 1202, 1200)


def test_verify_without_a_broker_is_partial_and_exits_1_unless_that_is_allowed(
    plan: Plan, orders: BronzeTable, clicks: BronzeTable
) -> None:
    done = call(verify, plan)
    assert done.exit_code == 1
    told = " ".join(done.stdout.split())
    assert (
        "bronze.orders partial: 1,202 rows, orders-0 [0, 1200), orders-1 [10, 12) once; how much is unread is not"
        in told
    )
    assert "bronze.clicks partial: 5 rows, clicks-0 [0, 5) once; how much is unread is not known" in told
    assert "every offset" not in told
    assert call(verify, plan, "--allow-behind").exit_code == 1
    assert call(verify, plan, "--allow-partial").exit_code == 0


def test_verify_names_what_is_wrong_and_exits_1(plan: Plan, orders: BronzeTable, clicks: BronzeTable) -> None:
    clicks.batch({"clicks": {0: 9}}, [("clicks", 0, o) for o in (5, 6, 6, 8, 40)])
    done = call(verify, plan)
    assert done.exit_code == 1
    told = " ".join(done.stdout.split())
    assert "bronze.clicks WRONG: 10 rows" in told
    assert "doubled 1 offset: clicks-0 [6, 7) 2 times" in told
    assert "unexpected 1 offset: clicks-0 [40, 41)" in told
    assert "not proven 1 offset: clicks-0 [7, 8)" in told
    assert "bronze.orders partial" in told


def test_a_gap_that_cannot_be_verified_is_an_exit_code_of_its_own_choice(plan: Plan, clicks: BronzeTable) -> None:
    clicks.batch({"clicks": {0: 9}}, [("clicks", 0, o) for o in (5, 6, 8)])
    assert call(verify, plan, "bronze.clicks").exit_code == 1
    assert call(verify, plan, "bronze.clicks", "--allow-unverifiable").exit_code == 0


def test_verify_answers_in_json_with_every_wrong_offset(plan: Plan, clicks: BronzeTable) -> None:
    clicks.batch({"clicks": {0: 9}}, [("clicks", 0, o) for o in (5, 6, 6, 8)])
    done = call(verify, plan, "bronze.clicks", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 1
    assert document["complete"] is False
    (partition,) = document["tables"][0]["partitions"]
    assert partition["doubled"] == [{"start": 6, "end": 7, "times": 2, "expected": 1}]
    assert partition["unverifiable"]["spans"] == [[7, 8]]


def test_verify_of_a_table_that_is_not_there_is_not_complete(plan: Plan) -> None:
    done = call(verify, plan, "bronze.orders")
    assert done.exit_code == 1
    assert "not created yet" in done.stdout
