"""The page of `verify`: the same document as JSON, and nothing that a stranger wrote becomes a part of it."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli import verify
from penstock.cli.verify_page import el, page
from penstock.errors import UsageError
from penstock.storage.stores import LocalStore
from penstock.verify import table as verify_table
from penstock.verify.document import VerifyRequest, audit_document
from penstock.verify.recompute import run as again
from penstock.verify.report import Differing, Proof, Value
from tests.bronze_table import BronzeTable, plan_of, table_plan
from tests.unit.project_file import AWAY

HOSTILE = "<script>alert(1)</script>\"'&\x1b[31m‮"
PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
"""
)


class Read(HTMLParser):
    """Its elements, and all text that a person sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify_table, "BROKER_TIMEOUT", 0.05)


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Of a table with whatever can be wrong, under names that somebody chose to do harm."""
    table = BronzeTable(table_plan(str(tmp_path / "lake" / "orders"), name="bronze.orders"), {"orders": "id-1"})
    table.genesis({"orders": {0: 0}}).batch({"orders": {0: 9}}, [("orders", 0, o) for o in (0, 1, 1, 3, 40)])
    table.batch({"orders": {0: 12}}, [(HOSTILE, 0, 5)])
    (report,) = verify_table.verify([table.plan], LocalStore())
    values = (Value(HOSTILE, HOSTILE, None),)
    report.checks = [
        Proof(
            name="numbers",
            held="gold.t version 1",
            against=HOSTILE,
            outcome="differs",
            said=HOSTILE,
            unit="groups",
            compared=1,
            of=1,
            differing=60,
            differences=[Differing("changed", {HOSTILE: HOSTILE, "kind": None}, values)] * 60,
            remarks=[HOSTILE],
            commands=[f"penstock sql '{HOSTILE}'"],
        )
    ]
    report.notes.append(HOSTILE)
    report.hint = HOSTILE
    plan = plan_of(tmp_path, table.plan)
    return audit_document(plan, [table.plan], [report], VerifyRequest((HOSTILE,), deep=True))


def test_nothing_of_a_stranger_becomes_a_part_of_the_page(document: dict[str, Any]) -> None:
    read = Read(page(document))
    assert not {tag for tag, _ in read.tags} & {"script", "img", "link", "iframe", "object", "form", "base", "svg"}
    for _, attributes in read.tags:
        assert set(attributes) <= {"charset", "http-equiv", "content", "name", "class", "id", "href", "lang"}
        assert (attributes.get("href") or "#").startswith("#")
    assert "<script>alert(1)</script>\"'&\\x1b[31m\\u202e" in read.text
    assert "\x1b" not in read.text and "‮" not in read.text


def test_the_page_has_what_an_auditor_asks_for(document: dict[str, Any]) -> None:
    text = " ".join(Read(page(document)).text.split())
    assert "Verification of test" in text and "Does not hold: 1 WRONG" in text
    for part in (
        document["checked_at"],
        "penstock verify",
        f"pyspark {document['versions']['spark']}".removeprefix("py"),
        "bronze.orders",
        "version 2, batch 1.2",
        "orders-0 [40, 41)",
        "penstock verify bronze.orders --deep",
        "penstock history bronze.orders -n 0",
        "What this does not prove",
        "and 10 more: --json names them",
    ):
        assert part in text, part
    assert "http://" not in text and "https://" not in text


def test_an_attribute_is_escaped_too() -> None:
    assert el("a", "x", href='"><b>', class_="k") == '<a href="&quot;&gt;&lt;b&gt;" class="k">x</a>'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    (tmp_path / "penstock.yml").write_text(PROJECT)
    plan = build_plan(load_project(tmp_path))
    BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}}).batch({"orders": {0: 5}})
    return tmp_path


def call(project: Path, *words: str) -> Result:
    app = Typer()
    app.command()(verify.command)
    return CliRunner().invoke(app, ["-C", str(project), *words], env={"COLUMNS": "100"})


def test_the_page_is_written_beside_the_answer(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(again, "check_in", lambda *_, **__: pytest.fail("nothing here needs Spark"))
    done = call(project, "--report", str(project / "report.html"), "--json", "--allow-partial")
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["ok"] is True and document["complete"] is False
    assert document["tables"][0]["proofs"][0]["check"] == "ledger"
    assert document["command"] == f"penstock verify --allow-partial --report {project / 'report.html'}"
    assert "Holds" in (project / "report.html").read_text()
    assert (project / "report.html").stat().st_mode & 0o044
    assert sorted(path.name for path in project.iterdir()) == ["lake", "penstock.yml", "report.html"]


@pytest.mark.parametrize("where", ["", "nowhere/report.html"])
def test_a_page_that_cannot_be_written_is_said_before_the_work(
    project: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(verify_table, "verify", lambda *_: pytest.fail("the work had begun"))
    error = call(project, "--report", str(project / where)).exception
    assert isinstance(error, UsageError) and error.exit_code == 2
    assert "--report" in error.message


def test_a_page_that_was_there_stays_if_the_work_fails(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "report.html").write_text("the last one")
    monkeypatch.setattr(verify_table, "verify", lambda *_: 1 / 0)
    assert isinstance(call(project, "--report", str(project / "report.html")).exception, ZeroDivisionError)
    assert (project / "report.html").read_text() == "the last one"
    assert sorted(path.name for path in project.iterdir()) == ["lake", "penstock.yml", "report.html"]


def test_all_and_none_cannot_be_asked_for_at_once(project: Path) -> None:
    assert isinstance(call(project, "--deep", "--no-recompute").exception, UsageError)
