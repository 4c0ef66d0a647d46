"""`stream` as written, and in the plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from penstock.plan.model import TablePlan
from tests.unit.project_file import HEAD, load, one, problems

TABLES = """\
tables:
  bronze.orders: {from: {kafka: orders}}
  silver.orders: {from: {table: bronze.orders}, decode: {json: value, schema: "id BIGINT"}}
  silver.payments: {from: {table: bronze.orders}, decode: {json: value, schema: "id BIGINT"}}
  gold.t:
"""
FUNCTIONS = """\
def alone(orders): ...
def joined(orders, payments): ...
"""


def gold(*lines: str, head: str = HEAD) -> str:
    """The first line is line 9."""
    return head + TABLES + "".join(f"    {line}\n" for line in lines)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text(FUNCTIONS)
    return tmp_path


def planned(folder: Path, *lines: str) -> TablePlan:
    table = build_plan(load(folder, gold(*lines))).table("gold.t")
    assert table is not None
    return table


def test_a_function_reads_several_tables_by_the_names_of_its_arguments(folder: Path) -> None:
    table = planned(
        folder, "from: {table: silver.orders}", "stream: s.py:joined", "streams: {payments: silver.payments}"
    )
    assert table.stream is not None
    assert [(name, source.table) for name, source in table.stream.inputs.items()] == [
        ("orders", "silver.orders"),
        ("payments", "silver.payments"),
    ]
    assert (table.stream.output, table.upstream) == ("append", ("silver.orders", "silver.payments"))


def test_an_input_may_be_a_path_or_a_whole_source(folder: Path) -> None:
    begin = ("from: {table: silver.orders, starting: {version: 3}}", "stream: s.py:joined")
    elsewhere = planned(folder, *begin, "streams: {payments: ./elsewhere}")
    filtered = planned(folder, *begin, "streams: {payments: {table: silver.payments, where: id > 1}}")
    assert elsewhere.stream is not None and filtered.stream is not None
    assert elsewhere.stream.inputs["payments"].uri == str(folder / "elsewhere")
    assert filtered.stream.inputs["payments"].where == "id > 1"
    assert elsewhere.definition != filtered.definition


def test_another_text_of_the_function_is_another_definition(folder: Path) -> None:
    lines = ("from: {table: silver.orders}", "stream: s.py:alone", "output: complete")
    before = planned(folder, *lines).definition
    assert planned(folder, *lines, "trigger: 1h").definition == before
    (folder / "s.py").write_text(FUNCTIONS + "\n")
    assert planned(folder, *lines).definition != before


@pytest.mark.parametrize(
    ("lines", "said", "hint"),
    [
        (["stream: s.py:alone", "output: update"], "does not say by which columns", "aggregate"),
        (["stream: s.py:alone", "output: often"], "is not a output mode", "append"),
        (["output: append"], "'output' belongs to 'stream'", "write stream:"),
        (["streams: {payments: silver.payments}"], "'streams' belongs to 'stream'", "write stream:"),
        (["stream: s.py:alone", "sql: SELECT 1"], "has no sql of its own", "in the function"),
        (["stream: s.py:alone", "expect: [{name: a, check: b}]"], "has no expect of its own", "a table after it"),
        (["stream: s.py:alone", "dedupe: {keys: id}"], "has no dedupe of its own", ""),
        (["stream: s.py:alone", "decode: {json: a, schema: b INT}"], "has no decode of its own", ""),
        (["stream: s.py:joined"], "does not take the rows and then each stream", "write def joined(orders)"),
        (["stream: s.py:alone", "streams: {payments: silver.payments}"], "each stream by name", "orders, payments)"),
        (["stream: s.py:other"], "has no function 'other'", ""),
        (["stream: s.py:joined", "streams: {payments: silver.payment}"], "there is no table", "'silver.payments'?"),
        (["stream: s.py:joined", "streams: {payments: {kafka: p}}"], "reads tables", "land the topic"),
        (["stream: s.py:joined", "streams: [a]"], "needs a mapping", "streams: {"),
        (["stream: s.py:alone", "streams: {orders: silver.payments}"], "what the rows of `from` are called", "another"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(lines: list[str], said: str, hint: str, folder: Path) -> None:
    found = problems(folder, gold("from: {table: silver.orders}", *lines))
    assert any(said in problem.message and hint in (problem.hint or "") for problem in found), found


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{kafka: orders}", "a stream function reads tables"),
        ("{table: silver.orders, starting: latest}", "cannot start at the latest"),
    ],
)
def test_a_source_that_spark_cannot_begin_with_is_refused(source: str, said: str, folder: Path) -> None:
    assert said in one(problems(folder, gold(f"from: {source}", "stream: s.py:alone"))).message


def test_a_table_that_is_written_anew_in_every_batch_has_no_readers_of_additions(folder: Path) -> None:
    text = gold("from: {table: silver.orders}", "stream: s.py:alone", "output: complete")
    table = problems(folder, text + "  after: {from: {table: gold.t}}\n")
    assert "rewrites all its rows" in one(table).message
    sink = problems(folder, text + "sinks:\n  out: {from: {table: gold.t}, to: {kafka: x}}\n")
    assert "rewrites all its rows" in one(sink).message


def test_state_needs_a_lake_that_is_a_folder(folder: Path) -> None:
    head = HEAD.replace("./lake", "s3a://bucket/lake")
    found = one(problems(folder, gold("from: {table: silver.orders}", "stream: s.py:alone", head=head)))
    assert "needs a lake on a local folder" in found.message
    assert found.line == 10


def test_a_circle_through_a_second_input_is_found(folder: Path) -> None:
    (folder / "s.py").write_text("def f(a, b): ...\n")
    text = HEAD + (
        "tables:\n  a: {from: {kafka: t}}\n  b: {from: {table: c}}\n"
        "  c: {from: {table: a}, stream: 's.py:f', streams: {b: b}}\n"
    )
    assert "a circle: b -> c -> b" in one(problems(folder, text)).message
