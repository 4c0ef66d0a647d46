"""What strangers wrote (in commits, ledgers, records, files and errors) on the terminal of every verb that runs without
a JVM: it is shown as it is, obeyed by no terminal, never read as markup, and starts no line of its own."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli import forget, generate, optimize, replay, vacuum
from penstock.cli.console import Bar, TerminalConsole, error_text, facts_view
from penstock.cli.dlq import render_redrive_result
from penstock.cli.history import history_view
from penstock.cli.main import app, main
from penstock.cli.run import RunView
from penstock.cli.session import VerbSession
from penstock.dev.generate import EventTopic
from penstock.errors import Terminal
from penstock.ledger import checkpoint
from penstock.ledger.head import Verdict
from penstock.ledger.position import Version
from penstock.ledger.row_counts import READ, UNMET
from penstock.ledger.writer import Written
from penstock.maintenance.optimize import OptimizeResult
from penstock.maintenance.vacuum import VacuumResult
from penstock.operations import status as status_ops
from penstock.operations.history import history
from penstock.operations.redrive import RedriveResult
from penstock.operations.replay_preview import ReplayPreview, RowDifference, RowSample
from penstock.operations.status import RunnerStatus, write_state
from penstock.plan.build import build_plan
from penstock.plan.model import Plan, TablePlan
from penstock.runtime.context import Result
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from penstock.tables.suppression_list import ForgetOrder, SuppressionList, dump
from penstock.verify import table as verify_ops
from tests.bronze_table import BronzeTable
from tests.unit.hand_ledgers import HandLog, entry
from tests.unit.hand_quarantines import rejected, write
from tests.unit.project_file import AWAY

HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u200b\x9b31m[bold]x[/nope]:smile:\nforged line"
FAR = 10**18
"""Milliseconds: no calendar has that time."""
PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}, subjects: {customer: key}}
  silver.orders:
    from: {table: bronze.orders}
    decode: {json: value, schema: "order_id BIGINT"}
    expect: [{name: has_id, check: order_id IS NOT NULL}]
  bronze.broken: {from: {kafka: broken}}
  bronze.files: {from: {files: ./in, format: json}}
"""
)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A lake in which every text that others may write is hostile."""
    monkeypatch.setattr(status_ops, "BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr(verify_ops, "BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr("penstock.doctor.topics.TIMEOUT", 0.05)
    monkeypatch.setattr("penstock.spark.session.spark_session", _no_spark)
    (tmp_path / "penstock.yml").write_text(PROJECT)
    (tmp_path / "in").mkdir()
    plan, store = build_plan(load_project(tmp_path)), LocalStore()
    orders, silver, broken, files = plan.tables
    table = BronzeTable(orders, {"orders": "id-1"}).genesis({"orders": {0: 0}}).batch({"orders": {0: 12}})
    table.append([(HOSTILE, 0, 7)])
    table.commit(None, HOSTILE)
    table.open({"orders": {0: 10}}, HOSTILE)
    _rewrite(table.log / f"{table.commit(None, f'{HOSTILE} far'):020d}.json", timestamp=FAR)
    write_state(store, plan.system, "bronze.orders", RunnerStatus("failed", HOSTILE, HOSTILE))
    log = Path(broken.uri) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text(f"{HOSTILE}{{")
    hostile_row = rejected(HOSTILE, HOSTILE, key=HOSTILE, value=HOSTILE, headers=[(HOSTILE, HOSTILE.encode())])
    write(silver, {**hostile_row, "_source": {"topic": HOSTILE, "partition": 0, "offset": 0}})
    store.write(files.added_columns_path, json.dumps({"columns": HOSTILE, "left_out": [HOSTILE]}))
    store.write(f"{plan.system}/checkpoints/{HOSTILE.replace('/', '')}/1/offsets/0", "v1")
    _land_silver(silver, str(table.table().metadata().id))
    assert table.last is not None
    folder = checkpoint.checkpoint_folder(orders.checkpoints, table.last)
    store.write(f"{folder}/{checkpoint.MARKER}", json.dumps({"table": HOSTILE, "ledger": HOSTILE, "generation": 1}))
    store.write(f"{folder}/metadata", json.dumps({"id": HOSTILE}))
    assert plan.forget is not None
    suppressed = SuppressionList(plan.forget, store)
    order = replace(suppressed.add("customer", "ann"), subject=HOSTILE, hash="0" * 64, time_ms=FAR)
    store.write(f"{suppressed.folder}/orders/hostile.json", dump(order))
    return plan


def _land_silver(silver: TablePlan, upstream_id: str) -> None:
    """A batch that read upstream up to version 1, with a hostile note."""
    log, before, after = HandLog(Path(silver.uri), silver.name), *(str(Version(upstream_id, n, -1)) for n in (0, 1))
    subscription = {"table": "bronze.orders"}
    first = replace(entry(0, before, before, kind="genesis", table=silver.name), subscription=subscription)
    log.commit("CREATE TABLE AS SELECT", note=first)
    log.batch(replace(entry(1, before, after, table=silver.name), subscription=subscription, note=HOSTILE))


def _no_spark(*_: Any, **__: Any) -> Any:
    raise Terminal(HOSTILE, where=HOSTILE, hint=HOSTILE)


def _rewrite(path: Path, **changed: Any) -> None:
    info = json.loads(path.read_text())["commitInfo"]
    path.write_text(json.dumps({"commitInfo": {**info, **changed}}) + "\n")


def harmless(text: str) -> str:
    """The text, of which a terminal obeys nothing but the ends of lines."""
    assert not [char for char in text if char != "\n" and not _shown(char)], ascii(text)
    return text


def _shown(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def invoke(plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Both outputs of a verb as a process prints them: with the error that ends it."""
    monkeypatch.setattr(sys, "argv", ["penstock", "-C", plan.root, *words])
    monkeypatch.setenv("COLUMNS", "300")
    with pytest.raises(SystemExit):
        main()
    printed = capsys.readouterr()
    return harmless(printed.out) + harmless(printed.err)


SHOWN = "[bold]x[/nope]:smile:"
VERBS = {
    "history bronze.orders": "foreign append",
    "history bronze.broken": "bronze.broken",
    "status": SHOWN,
    "verify bronze.orders": SHOWN,
    "verify bronze.broken": "bronze.broken",
    "doctor": SHOWN,
    "optimize --dry-run": "bronze.broken",
    "vacuum --dry-run": "bronze.broken",
    "checkpoints list": SHOWN.replace("/", ""),
    "checkpoints show bronze.orders": SHOWN,
    "checkpoints heal bronze.orders --dry-run": "bronze.orders",
    "checkpoints reset silver.orders --to source:0 --dry-run": "silver.orders",
    "dlq list": SHOWN,
    "dlq show silver.orders --full": SHOWN,
    "dlq redrive silver.orders --dry-run": SHOWN,
    "replay silver.orders --dry-run": SHOWN,
    "rewind bronze.orders --version 1 --dry-run": SHOWN,
    "plan": SHOWN,
    "validate": "is valid",
    "jars list": "spark",
    "forget --list": "customer",
}
MESSAGES = ("status", "doctor", "dlq redrive", "replay", "rewind")
"""They print messages of errors, which have lines of their own."""


@pytest.mark.parametrize("words", VERBS)
def test_no_verb_lets_a_text_of_a_stranger_steer_the_terminal(
    words: str, plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = invoke(plan, monkeypatch, capsys, *words.split())
    assert VERBS[words] in printed
    if not words.startswith(MESSAGES):
        assert not [line for line in printed.splitlines() if line.strip().startswith("forged line")]


def test_history_shows_operations_and_notes_as_escapes_and_a_time_that_no_calendar_has(plan: Plan) -> None:
    console = Console(file=io.StringIO(), width=1000)
    console.print(history_view("bronze.orders", history(plan.tables[0], LocalStore())))
    lines = harmless(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    newest, opened, operation = lines[1:4]
    escaped = "\\x1b]0;owned\\x07\\x1b[2J\\u202e\\u200b\\x9b31m[bold]x[/nope]:smile:\\nforged line"
    assert str(FAR) in newest and f"{escaped} far" in newest
    assert escaped in opened and escaped in operation
    document = CliRunner().invoke(app, ["history", "-C", plan.root, "bronze.orders", "--json"]).stdout
    assert json.loads(harmless(document))["commits"][2]["operation"] == HOSTILE


def test_a_wrong_project_file_and_a_new_folder_are_shown_harmlessly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / HOSTILE.replace("/", "")
    for _ in range(2):  # the second time the files are there already
        done = CliRunner().invoke(app, ["init", str(folder)])
        harmless(done.output)
    (folder / "penstock.yml").write_text(f"name: shop\n{json.dumps(HOSTILE)}: 1\nlake: {json.dumps(HOSTILE)}\n")
    done = CliRunner().invoke(app, ["validate", "-C", str(folder)])
    assert done.exit_code == 2 and "[bold]x" in harmless(done.output)
    monkeypatch.setattr(sys, "argv", ["penstock", "plan", "-C", str(folder)])
    with pytest.raises(SystemExit):
        main()
    assert "[bold]x" in harmless(capsys.readouterr().err)


def test_an_unexpected_error_is_shown_harmlessly(
    plan: Plan, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr("penstock.operations.status.status", fail)
    assert "RuntimeError: \\x1b]0;owned" in invoke(plan, monkeypatch, capsys, "status")


def test_a_topic_of_the_development_broker_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    for created in (True, False):
        generate.report_topic(EventTopic(name=HOSTILE, partitions=3, created=created), 4)
    assert "[bold]x[/nope]:smile:" in harmless(capsys.readouterr().err)


def test_views_are_harmless_before_a_console_makes_them_so() -> None:
    """Printed by a console of rich, which reads markup and lets everything pass."""
    error = Terminal(HOSTILE, where=HOSTILE, hint=HOSTILE)
    row = {HOSTILE: HOSTILE, "id": 1}
    samples = (RowSample("added", None, row), RowSample("changed", row, {**row, HOSTILE: "y"}))
    difference = RowDifference((), 1, 0, 1, 2, samples=samples, columns={"new": [HOSTILE]})
    run_console = Console(file=io.StringIO(), width=300)
    run_view = RunView(run_console, ["bronze.orders"])
    run_view.batch("bronze.orders", Written(1, 1, Verdict.WRITE, 1, 0, (), {READ: 2, f"{UNMET}{HOSTILE}": 1}), 0.5)
    run_view.set_lag({"bronze.orders": "[bold]310"})
    run_view.message("bronze.orders", HOSTILE)
    run_view.failed("bronze.orders", error)
    run_view.summary(Result({"bronze.orders": "failed"}, {"bronze.orders": error}))
    harmless(run_console.file.getvalue())  # type: ignore[attr-defined]
    views: list[Any] = [
        error_text(error),
        facts_view([(HOSTILE, HOSTILE)]),
        render_redrive_result(RedriveResult("r", 2, 1, 1, {HOSTILE: 1})),
        forget.render_orders([ForgetOrder(HOSTILE, "0" * 40, 3, FAR, "k")], {}),
        optimize.render_result(OptimizeResult(errors={"t": error})),
        vacuum.render_result(VacuumResult(errors={"t": error})),
        replay.render_preview(ReplayPreview(difference, {HOSTILE: 1}, {})),
        run_view,
    ]
    for view in views:
        console = Console(file=io.StringIO(), width=300)
        console.print(view)
        assert "[bold]" in harmless(console.file.getvalue())  # type: ignore[attr-defined]


def test_a_console_makes_harmless_what_a_view_forgot() -> None:
    console = TerminalConsole()
    console.file, console.width = io.StringIO(), 300
    console.print(HOSTILE)
    session = VerbSession(None, console.status(""))  # type: ignore[arg-type]
    session.tell("bronze.orders", "[/nope]")
    with Bar() as bar:
        bar.step("bronze.orders", "[/nope]", 0.5)
    assert "[bold]x[/nope]:smile:" in harmless(console.file.getvalue())  # type: ignore[attr-defined]
