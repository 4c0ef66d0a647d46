"""The pages of `verify` and `forget`: the same documents as JSON, and nothing that a stranger wrote becomes a part of
them."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from jinja2 import UndefinedError
from typer import Typer
from typer.testing import CliRunner, Result

from penstock.cli import verify
from penstock.cli.console import visible
from penstock.cli.pages import certificate_page, verify_page
from penstock.erasure import certificate as erasure_certificate
from penstock.erasure.files import OutputSearch
from penstock.erasure.forget import ErasedPlace, ErasureCommit, ErasureResult
from penstock.erasure.readers import ReaderProgress
from penstock.erasure.search import SearchFindings
from penstock.errors import UsageError
from penstock.ledger.row_counts import RowBalance
from penstock.storage.stores import LocalStore
from penstock.tables.suppression_list import order_of
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
    """Its elements, each closed in its turn, and all text that a person sees."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.style = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self.text += " " if tag == "td" else ""

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            self.style += data
        else:
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
    report.conserved = RowBalance(1000, 0, 980, 15, 0, 0, forgotten=5)
    report.notes.append(HOSTILE)
    report.hint = HOSTILE
    plan = plan_of(tmp_path, table.plan)
    return audit_document(plan, [table.plan], [report], VerifyRequest((HOSTILE,), deep=True))


@pytest.fixture
def certificate(tmp_path: Path) -> dict[str, Any]:
    """Of a forget that is not complete, with every part that its page can have."""
    order = order_of(b"k" * 32, "customer", "ann@example.org", 1_700_000_000_000)
    done = ErasureResult("c1", (order,), 1_700_000_000_000, ended_ms=1_700_000_009_000)
    done.places["bronze.orders"] = ErasedPlace(
        "bronze.orders",
        ("$.customer_id of value", "key"),
        rows=1_203,
        rows_marked_deleted=1,
        files=2,
        commits=[ErasureCommit(7, 1_700_000_001_000, 1_203, True)],
        removed_files=4,
        removed_bytes=123_456,
        log_rewritten=2,
        log_removed=1,
        needed_by={HOSTILE: 3},
        decoded=12,
        rows_left=5,
        log_files=9,
        log_left=("_delta_log/7.json",),
    )
    done.places["silver.orders"] = ErasedPlace("silver.orders", problem=HOSTILE)
    done.readers = [
        ReaderProgress("silver.orders", "bronze.orders", 7),
        ReaderProgress("gold.sales", "silver.orders", 8, HOSTILE),
    ]
    done.output_search = OutputSearch(88, ("lake/run.log",), ("lake/other",))
    done.search = SearchFindings(
        files=1_234, bytes=9_876, same={("gold.sales", f"amount {n}"): n for n in range(1, 211)}
    )
    done.search.unreadable.append("lake/broken.parquet")
    done.not_names = ("silver.orders.quantity",)
    done.undeclared = ("gold.totals",)
    done.outside = ["topic orders"]
    return erasure_certificate.document(plan_of(tmp_path, table_plan(str(tmp_path / "lake" / "orders"))), done)


def poisoned(part: Any, text: str) -> Any:
    """The document with `text` for whatever is not one of our own words."""
    if isinstance(part, dict):
        return {key: value if key in ("verdict", "outcome") else poisoned(value, text) for key, value in part.items()}
    if isinstance(part, list):
        return [poisoned(one, text) for one in part]
    return text if isinstance(part, str) else part


def assert_harmless(page: str) -> Read:
    read = Read(page)
    assert not {tag for tag, _ in read.tags} & {"script", "img", "link", "iframe", "object", "form", "base", "svg", "b"}
    for _, attributes in read.tags:
        allowed = {"charset", "http-equiv", "content", "name", "class", "id", "href", "lang", "data-column"}
        assert set(attributes) <= allowed
        assert (attributes.get("href") or "#").startswith("#")
    assert "javascript:" not in page
    assert all(line == visible(line) for line in page.split("\n"))
    page.encode()  # without lone surrogates
    (policy,) = [one["content"] for _, one in read.tags if one.get("http-equiv") == "Content-Security-Policy"]
    hashed = b64encode(sha256(read.style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in read.style and "@import" not in read.style
    return read


TEXTS = {
    "script": "<script>alert(1)</script>",
    "attribute": '"><img src=x onerror=alert(1)>',
    "apostrophe": "' onmouseover='alert(1)",
    "template": "{{ 7 * 7 }}{% raw %}{# x #}",
    "end of style": "</style></title></pre><b>",
    "control": "\x1b[31m\x00\x07\r\n\t\x9b",
    "direction": "\u202egpj.exe\u2066",
    "invisible": "a\u200b\ufeff\u3164\U000e0041b",
    "lone surrogate": "a\udc80\ud800b",
    "entity": "&lt;b&gt;&#0;",
    "long": "x" * 10_000,
    "empty": "",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_value_becomes_a_part_of_a_page(document: dict[str, Any], certificate: dict[str, Any], text: str) -> None:
    for page in (verify_page(poisoned(document, text)), certificate_page(poisoned(certificate, text))):
        assert assert_harmless(page).text.count(visible(text)) > 20


def test_hostile_names_are_escaped_in_text_and_in_attributes(
    document: dict[str, Any], certificate: dict[str, Any]
) -> None:
    shown = "<script>alert(1)</script>\"'&\\x1b[31m\\u202e"
    read = assert_harmless(verify_page(document))
    assert shown in read.text and ("td", {"data-column": shown}) in read.tags
    assert shown in assert_harmless(certificate_page(certificate)).text


def test_what_a_page_needs_and_a_document_lacks_is_an_error(
    document: dict[str, Any], certificate: dict[str, Any]
) -> None:
    del document["limits"], certificate["orders"][0]["hash"]
    with pytest.raises(UndefinedError, match="limits"):
        verify_page(document)
    with pytest.raises(UndefinedError, match="hash"):
        certificate_page(certificate)


def test_commands_that_write_no_page_start_without_the_templates() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from penstock.cli.main import app; "
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0; "
        "import penstock.cli.status, penstock.cli.verify, penstock.cli.forget, penstock.cli.pages; "
        "print('jinja2' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_the_page_has_what_an_auditor_asks_for(document: dict[str, Any]) -> None:
    text = " ".join(Read(verify_page(document)).text.split())
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
        "2 times instead of 1",
        "1,000 read = 980 written + 15 in quarantine + 5 forgotten",
    ):
        assert part in text, part
    assert "http://" not in text and "https://" not in text


def test_differences_of_one_check_may_have_different_keys(document: dict[str, Any]) -> None:
    (check,) = document["tables"][0]["checks"]
    check["differences"] = [
        {"kind": "doubled", "keys": {"id": "1", "seq": "7"}, "values": []},
        {"kind": "doubled", "keys": {"id": "", "current": None}, "values": []},
    ]
    text = " ".join(Read(verify_page(document)).text.split())
    assert "doubled 1 7" in text and "doubled empty text NULL" in text


def test_the_certificate_has_what_an_auditor_asks_for(certificate: dict[str, Any]) -> None:
    text = " ".join(Read(certificate_page(certificate)).text.split())
    assert "Not complete" in text and "What is left to do" in text
    for part in (
        *certificate["problems"],
        *certificate["how"],
        *certificate["search"]["forms"],
        *(certificate[key] for key in ("id", "project", "lake", "began", "ended", "command")),
        *certificate["orders"][0].values(),
        *(f"{name} {version}" for name, version in certificate["versions"].items()),
        "$.customer_id of value, key 1,204 deleted 2 4 123,456 3",
        "version 7 2023-11-14T22:13:21Z 1,203",
        "bronze.orders 12 5 9 1",
        "1,234 files, 9,876 bytes. The name was overwritten in 1 log.",
        "gold.sales amount 200 200",
        "and 10 more places",
        "silver.orders bronze.orders 7 yes",
        "silver.orders.quantity",
        "gold.totals",
        "lake/other",
        "topic orders",
    ):
        assert visible(part) in text, part


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
    monkeypatch.setattr(again, "run_checks_in", lambda *_, **__: pytest.fail("nothing here needs Spark"))
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
