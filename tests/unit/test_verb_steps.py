"""Verbs are data first: what `--dry-run` lists are the steps that are carried out. All without a JVM."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.cli.session import steps_view
from penstock.maintenance.tables import maintained_tables
from penstock.maintenance.vacuum import DropOldCheckpoints, TableVacuum, VacuumPlan
from penstock.operations.redrive import RedrivePlan
from penstock.operations.reset import ResetPlan, plan_reset, run_reset
from penstock.operations.rewind_plan import plan_abort
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import HandLog, at, entry
from tests.unit.test_rewind_cli import PROJECT, version


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """bronze.orders with four batches; silver.orders has read three of them."""
    gold = "  gold.orders: {from: {table: silver.orders}, sql: SELECT id FROM input}\n"
    (tmp_path / "penstock.yml").write_text(PROJECT + gold)
    bronze = HandLog(tmp_path / "lake/bronze/orders")
    bronze.begin(at(0))
    for number in range(1, 5):
        bronze.batch(entry(number, at((number - 1) * 10), at(number * 10), total=(number - 1) * 10))
    for name, source in (("silver", "bronze"), ("gold", "silver")):
        log, table = HandLog(tmp_path / f"lake/{name}/orders", f"{name}.orders"), f"{name}.orders"
        read = {"table": f"{source}.orders"}
        first = replace(entry(0, version(0), version(0), kind="genesis", table=table), subscription=read)
        log.commit("CREATE TABLE AS SELECT", note=first)
        log.batch(replace(entry(1, version(0), version(2), table=table), subscription=read))
    return build_plan(load_project(tmp_path))


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where a session would be opened, for what it would show first."""
    opened: list[str] = []

    @contextmanager
    def refuse(*_: Any, **__: Any) -> Any:
        opened.append("session")
        raise AssertionError("Spark was started")
        yield

    monkeypatch.setattr("penstock.spark.session.spark_session", refuse)
    return opened


def printed(plan: Plan, *words: str) -> str:
    done = CliRunner().invoke(app, ["-C", plan.root, *words], env={"COLUMNS": "300"})
    return " ".join(done.output.split())


def texts(steps: Any) -> list[str]:
    return [step.describe() for step in steps]


def test_a_replay_lists_the_rebuild_of_every_table_of_the_cascade(plan: Plan, no_session: list[str]) -> None:
    said = printed(plan, "replay", "silver.orders", "--cascade", "--dry-run")
    assert "1. rebuild silver.orders from bronze.orders up to version 1" in said
    assert "2. rebuild gold.orders from silver.orders as it is then" in said and "3." not in said
    assert no_session, "only the comparison of rows needs Spark, after the steps were printed"


def test_a_rewind_lists_stops_before_the_restore(plan: Plan, no_session: list[str]) -> None:
    said = printed(plan, "rewind", "bronze.orders", "--version", "3", "--dry-run")
    stop, restore = said.index("1. stop silver.orders"), said.index("2. restore bronze.orders to version 3")
    assert stop < restore


def test_a_reset_lists_its_generation_and_its_checkpoint_and_starts_nothing(
    plan: Plan, no_session: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.operations.reset.table_id", lambda *_: "table-id")
    said = printed(plan, "checkpoints", "reset", "silver.orders", "--to", "earliest", "--dry-run")
    assert "1. silver.orders: open a generation at the table as of version 4" in said
    assert "2. silver.orders: make the checkpoint of that generation" in said and not no_session
    planned = plan_reset(plan.tables[1], LocalStore(), "earliest")
    assert texts(replace(planned, starts_over=("bronze.orders",)).steps)[0].startswith(
        "silver.orders: empty it, and open"
    )


def test_an_abort_lists_where_the_table_continues(plan: Plan, tmp_path: Path, no_session: list[str]) -> None:
    shutil.rmtree(tmp_path / "lake/bronze/orders")
    log = HandLog(tmp_path / "lake/bronze/orders")
    log.begin(at(40))
    pending = {"replay": {"since": 1, "position": [at(40)], "at": None}}
    log.commit("WRITE", note=replace(entry(0, at(40), at(40), generation=2, kind="open"), pending=pending))
    (step,) = plan_abort("replay", plan.tables[0], LocalStore()).steps
    assert step.position == (at(40),)
    said = printed(plan, "replay", "bronze.orders", "--abort", "--dry-run")
    assert "1. bronze.orders: open a generation at" in said and not no_session
    answer = CliRunner().invoke(app, ["-C", plan.root, "replay", "bronze.orders", "--abort", "--dry-run", "--json"])
    assert json.loads(answer.stdout)["aborted"] is False


def test_a_redrive_lists_its_rows_by_reason(plan: Plan) -> None:
    planned = RedrivePlan(plan.tables[1], None, {"expectation": 1, "decode": 2000})
    assert texts(planned.steps) == [
        "silver.orders: run 2,000 rejected rows again: decode",
        "silver.orders: run 1 rejected row again: expectation",
    ]
    assert "finish the redrive" in texts(replace(planned, cut_off=True).steps)[0]
    assert replace(planned, rows={}, cut_off=True).steps == ()


def test_a_vacuum_lists_files_before_checkpoints_table_by_table(plan: Plan) -> None:
    bronze, silver = plan.tables[:2]
    own, aside = maintained_tables(silver)
    tasks = (
        TableVacuum(maintained_tables(bronze)[0], bronze, files=("a",), bytes=7),
        TableVacuum(own, silver, remember_ms=86_400_000, files=("b", "c")),
        TableVacuum(aside, silver),
    )
    planned = VacuumPlan(tasks, (DropOldCheckpoints(bronze, ("x/1", "x/2")),), None)
    assert texts(planned.steps) == [
        "bronze.orders: delete 1 file",
        "bronze.orders: delete 2 checkpoints of old generations",
        "silver.orders: remember removed files for 1d from now on",
        "silver.orders: delete 2 files",
    ]


def test_steps_are_numbered_and_harmless(plan: Plan) -> None:
    planned = RedrivePlan(plan.tables[1], None, {"\x1b[2Jgone": 1})
    assert steps_view(planned.steps).plain.splitlines()[0] == "steps:" and "\x1b" not in steps_view(planned.steps).plain
    assert steps_view([]).plain == "steps: none"


def test_a_reset_carries_out_the_steps_that_it_lists(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    module = "penstock.operations.reset"
    done: list[Any] = []
    for name in ("session_store", "TableSession", "Sources", "JvmLock"):
        monkeypatch.setattr(f"{module}.{name}", MagicMock())
    monkeypatch.setattr(f"{module}.table_locks", lambda *_: nullcontext())
    monkeypatch.setattr(f"{module}._open_generation", lambda _work, _plan, step: done.append(step) or "head")
    monkeypatch.setattr(f"{module}._make_checkpoint", lambda *given: done.append(given[-1]))
    planned = ResetPlan(plan.tables[0], "earliest", None, at(0))
    opened, _ = planned.steps
    session: Any = None
    assert run_reset(session, plan, planned) == "head" and done == [opened, "head"]
    done.clear()
    monkeypatch.setattr(ResetPlan, "steps", property(lambda _: (opened,)))
    run_reset(session, plan, planned)
    assert done == [opened], "a step that is not listed is not carried out"
