"""`penstock dlq` as a user calls it, over quarantines that hold whatever a record can hold."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.console import visible
from penstock.cli.dlq import group
from penstock.errors import Terminal, UsageError
from penstock.plan.model import Plan, TablePlan
from tests.unit.hand_quarantines import make_plan, read_by, rejected, write

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\u202e[bold red]x[/]"


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


@pytest.fixture
def silver(plan: Plan) -> TablePlan:
    table = plan.table("silver.orders")
    assert table is not None
    return table


def call(plan: Plan, *words: str) -> Result:
    return CliRunner().invoke(group, [words[0], "-C", plan.root, *words[1:]], env={"COLUMNS": "100"})


def test_list_shows_reasons_with_their_rows_and_one_of_each(plan: Plan, silver: TablePlan) -> None:
    read_by(silver, read=300)
    write(silver, rejected("wrong_type", "amount: x"), rejected("wrong_type", "order_id: x", value='{"order_id": "x"}'))
    write(silver, rejected("expectation", "has_id", value=None))
    done = call(plan, "list")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "silver.orders__quarantine  3 rows, 1.0% of 300 rows read"
    assert [line.split()[:4] for line in lines[2:5]] == [
        ["wrong_type", "2", "amount", "1"],
        ["order_id", "1", *lines[3].split()[2:4]],
        ["expectation", "1", "has_id", lines[4].split()[3]],
    ]
    assert lines[3].endswith('{"order_id": "x"}')
    assert lines[4].endswith("orders-0 offset 0")  # there is no value to show
    assert lines[-1] == "silver.files__quarantine  not made yet: no row was rejected"


def test_list_answers_in_json(plan: Plan, silver: TablePlan) -> None:
    write(silver, rejected("wrong_type", "amount: x", value=HOSTILE))
    document = json.loads(call(plan, "list", "silver.orders", "--json").stdout)
    (table,) = document["tables"]
    assert (table["rows"], table["share"], table["reasons"]) == (1, None, {"wrong_type": 1})
    assert table["first"] == "2026-03-01T12:00:00.000Z"
    (kind,) = table["kinds"]
    assert (kind["about"], kind["rows"], kind["sample"]["value"]) == ("amount", 1, HOSTILE)


def test_list_exits_3_when_a_quarantine_cannot_be_read_and_shows_the_rest(plan: Plan, silver: TablePlan) -> None:
    uri = write(silver, rejected("a", "x"))
    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    done = call(plan, "list")
    assert done.exit_code == 3
    assert "its rows cannot be read" in done.stdout
    assert "silver.files__quarantine  not made yet" in done.stdout


@pytest.mark.parametrize("words", [("show", "silver.orders"), ("show", "silver.orders", "--full"), ("list",)])
def test_a_hostile_record_cannot_touch_the_terminal(plan: Plan, silver: TablePlan, words: tuple[str, ...]) -> None:
    place = {"topic": HOSTILE, "partition": 0, "offset": 1}
    headers = [(HOSTILE, HOSTILE.encode())]
    write(silver, rejected(HOSTILE, HOSTILE, key=HOSTILE, value=HOSTILE, headers=headers, _source=place))
    shown = call(plan, *words).stdout
    assert all(one == "\n" or one.isprintable() for one in shown)
    assert "[bold red]x[/]" in shown  # nor is it taken for markup
    assert visible(HOSTILE) in shown


def test_show_has_the_place_the_reason_the_times_and_the_record(plan: Plan, silver: TablePlan) -> None:
    place = {"topic": "orders", "partition": 2, "offset": 1042}
    write(silver, rejected("expectation", "has_id", _source=place, value='{"a":1}', headers=[("h", b"v")]))
    lines = call(plan, "show", "silver.orders").stdout.splitlines()
    assert lines == [
        "silver.orders: 1 rejected row, the newest first",
        "",
        "orders-2 offset 1042  expectation",
        "  detail    has_id",
        "  rejected  2026-03-01 12:00:00 UTC, in batch 1.1",
        "  in Kafka  2026-03-01 12:00:00 UTC",
        "  key       k",
        '  value     {"a":1}',
        "  headers   h: v",
    ]


def test_long_values_are_shortened_unless_asked_for(plan: Plan, silver: TablePlan) -> None:
    text, data = "ü" * 5000, bytes(range(256)) * 20
    write(silver, rejected("a", "x", value=text), rejected("b", "y", value=None, value_binary=data, key=None))
    shown = call(plan, "show", "silver.orders").stdout
    assert "ü… (10,000 bytes)" in shown
    assert f"0x{data[:32].hex()}… (5,120 bytes)" in shown
    assert len(shown) < 1500
    full = call(plan, "show", "silver.orders", "--full").stdout
    assert text in full and f"0x{data.hex()}\n" in full


def test_json_has_the_whole_record_and_bytes_as_base64(plan: Plan, silver: TablePlan) -> None:
    text, data = HOSTILE * 300, b"\x00\xff\xfe" * 1000
    headers = [("text", b"v"), ("bytes", b"\xff"), ("none", None)]
    write(silver, rejected("a", "x", key=None, key_binary=b"\xfe", value=text, headers=headers, batch=2))
    write(silver, rejected("b", "y", value=None, value_binary=data))
    document = json.loads(call(plan, "show", "silver.orders", "--json").stdout)
    first, second = document["shown"]
    assert document["rows"] == 2
    assert (first["value"], first["value_base64"]) == (text, None)
    assert (first["key"], base64.b64decode(first["key_base64"])) == (None, b"\xfe")
    assert [(one["value"], one["value_base64"]) for one in first["headers"]] == [
        ("v", None),
        (None, "/w=="),
        (None, None),
    ]
    assert (second["value"], base64.b64decode(second["value_base64"])) == (None, data)
    assert second["source"] == {"topic": "orders", "partition": 0, "offset": 0}


def test_show_counts_all_rows_and_shows_as_many_as_asked_for(plan: Plan, silver: TablePlan) -> None:
    write(silver, *(rejected("a", "x", _source={"topic": "o", "partition": 0, "offset": n}) for n in range(30)))
    assert call(plan, "show", "silver.orders", "-n", "3").stdout.startswith("silver.orders: 3 of 30 rejected rows")
    document = json.loads(call(plan, "show", "silver.orders", "--offset", "5-9", "-n", "2", "--json").stdout)
    assert document["rows"] == 5
    assert [row["source"]["offset"] for row in document["shown"]] == [5, 6]


def test_files_are_shown_by_name(plan: Plan) -> None:
    table = plan.table("silver.files")
    assert table is not None
    unread = rejected("unreadable_file", "cut short", value=None, key=None, kafka_timestamp=None)
    write(table, {**unread, "_source": {"file": "in/a.json", "row": None}})
    write(table, {**rejected("wrong_type", "a: x"), "_source": {"file": "in/b.json", "row": 7}})
    shown = call(plan, "show", "silver.files").stdout
    assert "in/a.json  unreadable_file" in shown
    assert "in/b.json row 7  wrong_type" in shown
    only = call(plan, "show", "silver.files", "--file", "in/a.json").stdout
    assert "in/b.json" not in only and "1 rejected row" in only


def test_changes_that_a_sink_could_not_send_are_shown_by_version(plan: Plan, silver: TablePlan) -> None:
    change = rejected("null_key", "a column of its key is NULL", kafka_timestamp=None)
    write(silver, {**change, "_source": {"version": 12, "deleted": True}})
    assert "version 12 (deleted)  null_key" in call(plan, "show", "silver.orders").stdout
    error = call(plan, "show", "silver.orders", "--topic", "orders").exception
    assert isinstance(error, UsageError) and error.hint == "they have version, deleted"


def test_nothing_found_is_said(plan: Plan, silver: TablePlan) -> None:
    assert "no such row" in call(plan, "show", "silver.orders").stdout  # it was never made
    write(silver, rejected("a", "x"))
    done = call(plan, "show", "silver.orders", "--reason", "b")
    assert (done.exit_code, done.stdout) == (0, "silver.orders: no such row in its quarantine\n")
    assert json.loads(call(plan, "show", "silver.orders", "--reason", "b", "--json").stdout)["shown"] == []


@pytest.mark.parametrize(
    ("words", "kind", "said"),
    [
        (("show", "bronze.orders"), UsageError, "has no quarantine"),
        (("list", "bronze.orders"), UsageError, "has no quarantine"),
        (("show", "silver.order"), UsageError, "there is no table"),
        (("show", "silver.orders", "--since", "soon"), UsageError, "--since soon: expected a time"),
        (("show", "silver.orders", "--file", "x"), UsageError, "have no file"),
        (("show", "silver.files"), Terminal, "cannot be read"),
    ],
)
def test_wrong_use_is_refused_with_a_way_on(
    plan: Plan, silver: TablePlan, words: tuple[str, ...], kind: type[Any], said: str
) -> None:
    write(silver, rejected("a", "x"))
    files = plan.table("silver.files")
    assert files is not None
    log = Path(f"{files.uri}__quarantine") / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {"oper')
    error = call(plan, *words).exception
    assert isinstance(error, kind) and said in error.message
    assert error.hint
