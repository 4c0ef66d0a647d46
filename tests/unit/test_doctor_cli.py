"""`doctor` as a user calls it, over a lake whose broker is away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli import doctor
from penstock.cli.doctor import doctor_view
from penstock.doctor import topics
from penstock.doctor.check import REASONS, Check, CheckSubject
from penstock.errors import SpecError, UsageError
from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from tests.bronze_table import BronzeTable

CANARY = "hunter2-canary"
PROJECT = f"""
name: shop
lake: ./lake
kafka:
  bootstrap: 127.0.0.1:1
  security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: me, password: {CANARY}}}
tables:
  bronze.orders: {{from: {{kafka: orders}}}}
  silver.orders: {{from: {{table: bronze.orders}}}}
"""


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TIMEOUT", 0.05)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "penstock.yml"
    file.write_text(PROJECT)
    file.chmod(0o644)
    plan = build_plan(load_project(tmp_path))
    BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}}).batch({"orders": {0: 50}})
    return tmp_path


def call(folder: Path, *words: str) -> Result:
    app = Typer()
    app.command()(doctor.command)
    return CliRunner().invoke(app, ["-C", str(folder), *words])


def test_red_comes_first_and_the_exit_code_is_1(shop: Path) -> None:
    done = call(shop)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("red  ")
    words = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    order = ["red", "warning", "unknown", "note"]
    assert words[:-1] == sorted(words[:-1], key=order.index)
    assert lines[-1].startswith("shop: 2 red, ")
    assert "  the project: Kafka at 127.0.0.1:1 does not answer" in done.stdout


def test_a_secret_is_said_by_its_line_and_never_shown(shop: Path) -> None:
    for words in ((), ("--all",), ("--json",)):
        done = call(shop, *words)
        assert f"{shop}/penstock.yml:6 (kafka.security.password: a value)" in done.stdout
        assert CANARY not in done.output


def test_what_is_fine_is_shown_on_request(shop: Path) -> None:
    assert "versions.java" not in call(shop).stdout
    assert "fine  versions.java" in call(shop, "--all").stdout


def test_one_broker_hides_much_and_is_said_once(shop: Path) -> None:
    away = [line for line in call(shop).stdout.splitlines() if line.startswith("unknown  Kafka at 127.0.0.1:1")]
    assert len(away) == 1


def test_json_is_one_document_with_every_check(shop: Path) -> None:
    done = call(shop, "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert (found["project"], found["healthy"]) == ("shop", False)
    assert sum(found["counts"].values()) == len(found["checks"])
    assert all(set(check) == {"id", "subject", "level", "found", "why", "fix"} for check in found["checks"])
    assert {check["subject"] for check in found["checks"]} == {"the project", "bronze.orders", "silver.orders"}
    assert all(check["fix"] for check in found["checks"] if check["level"] in ("red", "warn"))
    assert all(check["why"] == REASONS[check["id"]] for check in found["checks"])


def test_only_the_named_tables_are_looked_at(shop: Path) -> None:
    found = json.loads(call(shop, "silver.orders", "--json").stdout)
    assert {check["subject"] for check in found["checks"]} == {"the project", "silver.orders"}
    assert not any(check["id"] == "kafka.answers" for check in found["checks"])  # it reads no topic


def test_a_wrong_table_or_project_is_wrong_use(shop: Path, tmp_path: Path) -> None:
    error = call(shop, "bronze.order").exception
    assert isinstance(error, UsageError)
    assert error.hint == "did you mean 'bronze.orders'?"
    assert isinstance(call(tmp_path / "nowhere").exception, SpecError)


def shown(*checks: Check) -> str:
    console = Console(width=10_000, highlight=False)
    with console.capture() as captured:
        console.print(doctor_view("shop", checks))
    return captured.get()


def test_the_same_finding_of_many_tables_is_one() -> None:
    text = shown(*(CheckSubject("table.log", f"bronze.t{n}").warn(f"{n} commits", "do this") for n in range(12)))
    assert text.count("do this") == 1
    assert "bronze.t4: 4 commits" in text and "bronze.t5" not in text
    assert "and 7 more: `--json` has all" in text
    assert text.splitlines()[-1] == "shop: 12 warnings"


def test_what_a_log_says_does_not_steer_the_terminal() -> None:
    text = shown(CheckSubject("table.foreign", "bronze.orders").red("version 1 (\x1b]0;owned\x07[bold]x)", "a\x1b[2Jb"))
    assert "\x1b]0" not in text and "\x1b[2J" not in text and "\x07" not in text
    assert "[bold]x" in text
