"""What `penstock forget` says to wrong input, without a JVM; and its certificate as a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from penstock.cli.forget import certify
from penstock.cli.main import app
from penstock.cli.pages import certificate_page
from penstock.erasure.certificate import document
from penstock.erasure.files import OutputSearch
from penstock.erasure.forget import ErasedPlace, ErasureCommit, ErasureResult
from penstock.erasure.request import known_places
from penstock.erasure.search import lake_tables
from penstock.errors import UsageError
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from penstock.tables.suppression_list import order_of

PROJECT = """\
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:9"}
tables:
  bronze.orders:
    from: {kafka: orders}
    subjects: {customer: [{json: value, path: $.customer_id}, key], device: {json: value, path: $.device}}
"""
NAME = "ann@example.org"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "penstock.yml").write_text(PROJECT)
    return tmp_path


def refused(folder: Path, *arguments: str, text: str | None = None) -> str:
    result = CliRunner().invoke(app, ["forget", "-C", str(folder), *arguments], input=text)
    assert isinstance(result.exception, UsageError), result.output
    assert result.exception.exit_code == 2 and NAME not in str(result.exception)
    return str(result.exception)


def test_an_unknown_subject_gets_a_suggestion(folder: Path) -> None:
    assert "did you mean 'customer'?" in refused(folder, "--subject", f"custmer={NAME}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no subject is named"),
        (["--subject", NAME], "is not KEY=VALUE"),
        (["--subject", "customer="], "nothing after customer="),
        (["--subject", "customer=1", "--wait", "soon"], "--wait"),
        (["--subjects", "nowhere.txt"], "No such file"),
    ],
)
def test_what_names_nobody_is_refused(folder: Path, arguments: list[str], said: str) -> None:
    assert said in refused(folder, *arguments)


def test_a_file_is_read_line_by_line_and_a_wrong_line_is_named(folder: Path) -> None:
    listed = folder / "who.txt"
    listed.write_text(f"# people\ncustomer={NAME}\n\nnobody={NAME}\n")
    assert f"{listed}:4" in refused(folder, "--subjects", str(listed))
    listed.write_text("# nobody\n")
    assert "names no subject" in refused(folder, "--subjects", str(listed))


def test_standard_input_cannot_be_asked(folder: Path) -> None:
    assert "add --yes" in refused(folder, "--subjects", "-", text=f"customer={NAME}\n")


def test_a_project_without_subjects_says_how_to_declare_them(folder: Path) -> None:
    (folder / "penstock.yml").write_text(PROJECT.rpartition("    subjects")[0])
    assert "subjects: {customer: customer_id}" in refused(folder, "--subject", f"customer={NAME}")


def test_a_list_without_orders_is_empty(folder: Path) -> None:
    result = CliRunner().invoke(app, ["forget", "-C", str(folder), "--list"])
    assert result.exit_code == 0 and "no subject was forgotten" in result.output


@pytest.fixture
def plan(folder: Path) -> Plan:
    return build_plan(load_project(folder))


def test_every_place_that_is_searched_can_be_declared_to_hold_no_names(plan: Plan) -> None:
    """Also what an earlier definition has left: the search covers it, and its advice is --not-a-name."""
    for name in ("orders__quarantine", "orders__tombstones", "orders__quarantine.before-1"):
        log = Path(plan.lake) / "bronze" / name / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020d}.json").touch()
    searched = [table.name for table in lake_tables(plan, LocalStore())]
    assert len(searched) == 4 and "bronze.orders__tombstones" in searched
    columns = [f"{name}.Value" for name in searched]
    assert known_places(plan, LocalStore(), columns) == columns
    with pytest.raises(UsageError, match="not TABLE"):
        known_places(plan, LocalStore(), ["bronze.clicks.value"])


def done(**place: object) -> ErasureResult:
    made = ErasureResult("c1", (order_of(b"k" * 32, "customer", NAME, 1_700_000_000_000),), 1_700_000_000_000)
    made.places["bronze.orders"] = ErasedPlace("bronze.orders", ("$.customer_id of value",), **place)  # type: ignore[arg-type]
    return made


def test_a_certificate_has_numbers_and_no_name(plan: Plan) -> None:
    made = document(
        plan, done(rows=3, redacted=True, commits=[ErasureCommit(7, 1_700_000_000_000, 3, True)], decoded=12)
    )
    assert made["proven"] and made["tables"][0]["commits"][0]["version"] == 7
    shown = certificate_page(made)
    assert "Proven" in shown and "version 7" in shown and NAME not in shown and NAME not in str(made)


def test_a_certificate_without_proof_says_what_is_left(plan: Plan) -> None:
    made = document(plan, done(rows_left=2, needed_by={"silver.orders": 1}))
    assert not made["proven"]
    assert "2 rows are still there" in certificate_page(
        made
    ) and "silver.orders still needs 1 file of it" in certificate_page(made)


def test_a_page_escapes_whatever_it_is_given(plan: Plan) -> None:
    made = done(problem="<script>alert(1)</script>")
    made.outside = ['topic "<b>"']
    shown = certificate_page(document(plan, made))
    assert "<script>" not in shown and "<b>" not in shown and "&lt;script&gt;" in shown
    assert "http://" not in shown and "https://" not in shown and "src=" not in shown


def test_a_certificate_is_written_whatever_a_folder_is_called(plan: Plan, tmp_path: Path) -> None:
    made = done(rows=3)
    made.output_search = OutputSearch(foreign_tables=("lake/\udcff\u202e",))
    made.outside = ["topic \x1b[31m"]
    written = certify(plan, made, tmp_path / "kept" / "proof.html", Console(quiet=True))
    for folder in (Path(plan.system) / "forget" / "certificates" / "c1", tmp_path / "kept" / "proof"):
        text = folder.with_suffix(".json").read_text(encoding="utf-8")
        assert json.loads(text) == written and "\x1b" not in text and "\u202e" not in text
        page = folder.with_suffix(".html").read_text(encoding="utf-8")
        assert "lake/\\udcff\\u202e" in page and "topic \\x1b[31m" in page


def test_the_steps_of_a_forget_name_tables_and_no_person(folder: Path) -> None:
    from penstock.erasure.forget_plan import plan_forget
    from penstock.erasure.request import Name

    planned = plan_forget(build_plan(load_project(folder)), LocalStore(), [Name("customer", NAME)])
    texts = [step.describe() for step in planned.steps]
    assert texts[0] == "add 1 name to the suppression list, by hash"
    assert "erase rows, in one commit per table: bronze.orders" in texts
    assert texts[-1].startswith("prove it") and NAME not in repr(planned) + "".join(texts)
