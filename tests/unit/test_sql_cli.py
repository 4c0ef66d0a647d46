"""What `sql` and `shell` answer without a JVM, and how they show what they found."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer import Typer
from typer.testing import CliRunner

from penstock.cli import shell, sql
from penstock.cli.shell import statements
from penstock.cli.sql import _text
from penstock.cli.sql_output import _field, rows_view
from penstock.errors import PenstockError, UsageError
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.sql.versions import TableCatalog
from tests.unit.project_file import AWAY

PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
  silver.orders:
    from: {table: bronze.orders}
    decode: {json: value, schema: "id BIGINT"}
sinks:
  orders_out: {from: {table: silver.orders}, to: {kafka: out}}
"""
)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "penstock.yml").write_text(PROJECT)
    return build_plan(load_project(tmp_path))


@pytest.fixture
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no Java to be found, whatever would start one fails in another way."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")


def refused(plan: Plan, *words: str, given: str = "") -> PenstockError:
    app = Typer()
    app.command()(sql.command)
    done = CliRunner().invoke(app, ["-C", plan.root, *words], input=given)
    assert isinstance(done.exception, UsageError), (done.exception, done.output)
    assert not done.stdout
    return done.exception


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "there is no query"),
        (["  \n"], "there is no query"),
        (["-"], "there is no query"),
        (["SELECT 1", "-f", "x.sql"], "two queries"),
        (["-f", "x.sql"], "x.sql cannot be read"),
        (["SELECT 1", "--json", "--csv"], "--csv and --json"),
    ],
)
def test_wrong_use_is_an_error_without_a_jvm(plan: Plan, no_jvm: None, words: list[str], message: str) -> None:
    assert message in refused(plan, *words).message


def test_the_query_may_come_from_a_file_or_from_standard_input(
    plan: Plan, no_jvm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "SELECT *\nFROM silver.orders VERSION AS OF 7"
    (tmp_path / "q.sql").write_text(query)
    assert _text(None, tmp_path / "q.sql") == query
    monkeypatch.setattr(sys, "stdin", io.StringIO(query))
    assert _text("-", None) == query
    (tmp_path / "q.sql").write_bytes(b"SELECT '\xff'")
    assert "not UTF-8" in refused(plan, "-f", str(tmp_path / "q.sql")).message


def test_an_unknown_table_gets_a_did_you_mean_and_the_list(plan: Plan) -> None:
    def hint(*parts: str) -> str | None:
        with pytest.raises(UsageError, match="there is no table") as raised:
            TableCatalog(plan).find(parts, "")
        return raised.value.hint

    names = "bronze.orders, orders_out, silver.orders, silver.orders__quarantine"
    assert hint("silver", "ordrs") == f"did you mean 'silver.orders'? The tables are: {names}"
    assert str(hint("Orders")).startswith("did you mean 'bronze.orders'?")
    assert hint("zzz") == f"the tables are: {names}"


def test_tables_are_found_whatever_their_capitals_and_with_the_quarantine_that_they_may_have_had(plan: Plan) -> None:
    names = TableCatalog(plan)
    assert names.find(["Silver", "ORDERS"], "").uri == f"{plan.lake}/silver/orders"
    assert names.find(["bronze", "orders__quarantine"], "").uri == f"{plan.lake}/bronze/orders__quarantine"
    assert names.find(["orders_out"], "").uri == f"{plan.lake}/_penstock/sinks/orders_out"
    with pytest.raises(UsageError, match=r"no table 'delta\./etc'"):
        names.find(["delta", "/etc"], "")


def shown(width: int | None, columns: list[tuple[str, str]], *rows: tuple[str | None, ...]) -> str:
    out = io.StringIO()
    Console(file=out, width=width or 1000).print(rows_view(columns, rows, width))
    return out.getvalue()


def test_a_table_never_leaves_the_terminal() -> None:
    columns = [("id", "bigint"), ("text", "string"), ("other", "string")]
    row = ("1", "x" * 200, "y" * 50)
    for width in (44, 60, 120):
        lines = shown(width, columns, row).splitlines()
        assert max(map(len, lines)) <= width
        assert "│  1 │ xxx" in lines[3] and "x… │ y" in lines[3]
    assert "x" * 200 in shown(None, columns, row)


def test_where_a_table_would_not_fit_each_value_has_a_line_of_its_own() -> None:
    columns = [(f"column_{number}", "string") for number in range(20)]
    text = shown(80, columns, tuple("v" * 30 for _ in columns), tuple(None for _ in columns))
    assert "row 1\n" in text and "row 2\n" in text
    assert f"  column_19  {'v' * 30}\n" in text
    assert text.count("NULL") == 20


def test_what_would_steer_a_terminal_is_shown_instead() -> None:
    text = shown(100, [("a\x1b[1m", "string")], ("red \x1b[31m\r\n\u202e[bold]",))
    assert "\x1b" not in text and "\u202e" not in text
    assert r"red \x1b[31m\r\n\u202e[bold]" in text and r"a\x1b[1m" in text


def test_no_row_and_no_column_are_shown_as_such() -> None:
    assert "id" in shown(80, [("id", "bigint")])
    assert shown(80, []).strip() == "no columns"


@pytest.mark.parametrize(
    ("value", "field"),
    [(None, ""), ("", '""'), ("a", "a"), ("a,b", '"a,b"'), ('a"b', '"a""b"'), ("a\nb", '"a\nb"'), (" a", '" a"')],
)
def test_csv_tells_null_from_nothing(value: str | None, field: str) -> None:
    assert _field(value) == field


def typed(*lines: str) -> list[str]:
    """With a simpler idea of where a statement ends than Spark has."""

    def cut(text: str) -> tuple[list[str], str]:
        *done, rest = text.split(";")
        return [f"{statement};" for statement in done], rest.strip() and rest

    left: Any = iter(lines)
    return list(statements(lambda _: next(left, None), cut))


def test_lines_become_statements_and_commands_need_no_semicolon() -> None:
    assert typed("\\d", "select 1", "  , 2; select 3;", "tables", "\\d silver.orders;") == [
        "\\d",
        "select 1\n  , 2;",
        "select 3;",
        "tables",
        "\\d silver.orders;",
    ]
    assert typed("select 'a", "tables", "';") == ["select 'a\ntables\n';"]
    assert typed("select 1 -- no end") == ["select 1 -- no end"]
    assert typed("", " ") == []


@pytest.mark.parametrize("command", [sql.command, shell.command])
def test_help_lists_the_options(command: Callable[..., None]) -> None:
    app = Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0 and "--tombstones" in done.output


def test_what_answers_without_a_jvm_loads_no_spark() -> None:
    import subprocess

    code = "import sys, penstock.cli.sql, penstock.cli.shell, penstock.sql.versions; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
