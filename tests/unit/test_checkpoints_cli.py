"""`checkpoints list` and `show` as a user calls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.checkpoints import group
from penstock.errors import UsageError
from penstock.ledger.checkpoint import MARKER
from penstock.plan.model import Plan
from tests.unit.hand_checkpoints import BRONZE, GOLD, SILVER, STORE, Held, make_plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


def call(plan: Plan, *words: str) -> Result:
    return CliRunner().invoke(group, [words[0], "-C", plan.root, *words[1:]], env={"COLUMNS": "100"})


def test_list_has_a_row_per_table_and_says_what_is_wrong(plan: Plan) -> None:
    Held(plan, BRONZE)
    silver = Held(plan, SILVER)
    (silver.folder / "metadata").unlink()
    lines = call(plan, "list").stdout.splitlines()
    assert [line.split()[:6] for line in lines[1:3]] == [
        [BRONZE, "1", "3", "3", "3", "yes"],
        [SILVER, "1", "3", "3", "3", "no"],
    ]
    assert lines[3].split() == [GOLD, "not", "created"]
    assert lines[4] == f"in {plan.system}/checkpoints/<table>/<generation>"
    assert f"{SILVER}: its metadata file is missing or empty" in lines
    assert any("penstock checkpoints heal silver.orders" in line for line in lines)


def test_list_answers_in_json(plan: Plan) -> None:
    silver = Held(plan, SILVER)
    silver.open()
    documents = json.loads(call(plan, "list", "--json").stdout)
    bronze, found, gold = documents["tables"]
    assert (bronze["in_step"], gold["stateful"], gold["folder"]) == (None, True, None)
    assert (found["generation"], found["in_step"], found["why"]) == (2, False, "it is missing or empty")
    assert found["leftovers"][0]["what"] == "generation 1"
    assert found["batches_kept"] == 100


def test_show_says_it_all_for_people_and_for_machines(plan: Plan) -> None:
    Held(plan, BRONZE)
    Held(plan, SILVER)
    done = call(plan, "show", SILVER)
    assert done.exit_code == 0
    told = " ".join(done.stdout.split())
    for text in (
        "reads table bronze.orders",
        "ledger ends with batch 1.3 at version 4",
        f"belongs to {SILVER}, ledger 5f0c, generation 1",
        "in step yes",
        "unchanged: that of batch 1.3",
        "a start continues with batch 4",
        "3 2023-11-14 22:13:20 yes version 3",
        "0 2023-11-14 22:13:20 yes begins at the table as of version 1",
        "planned and not committed: none",
    ):
        assert text in told, done.stdout
    found = json.loads(call(plan, "show", SILVER, "--json", "-n", "1").stdout)
    assert (found["start"]["does"], found["definition"]["kind"]) == ("go on", "unchanged")
    assert [one["batch"] for one in found["last"]] == [3]
    assert found["position"][0]["reservoirVersion"] == 4


def test_a_marker_that_a_stranger_wrote_cannot_touch_the_terminal(plan: Plan) -> None:
    silver = Held(plan, SILVER)
    marker = {"table": "\x1b[31mevil\x9b[bold]", "ledger": "x", "generation": 1}
    (silver.folder / MARKER).write_text(json.dumps(marker))
    for words in (("list",), ("show", SILVER), ("heal", SILVER, "--dry-run")):
        told = call(plan, *words).stdout
        assert "evil\\x9b[bold]" in told
        assert all(one == "\n" or one.isprintable() for one in told)


@pytest.mark.parametrize("verb", ["show", "heal", "list"])
def test_an_unknown_table_gets_a_did_you_mean(plan: Plan, verb: str) -> None:
    error = call(plan, verb, "silver.order").exception
    assert isinstance(error, UsageError) and error.hint == "did you mean 'silver.orders'?"


ODD = [
    *("", "{}", "[]", "7", '"x"', "null", "\x00\x01", "v1\n", "v1\n{}\n{}", '{"id":[]}', '{"id":7}', "[" * 5000),
    'v1\n{"batchTimestampMs":1}\n{"reservoirVersion":3}',
    'v1\n{"batchTimestampMs":-99999999999999999}\n{"orders":{"0":1}}',
    'v1\n{"batchTimestampMs":5}\n{"orders":{"0":"x"}}\n{"orders":{"0":1}}',
    '{"time":1,"definition":"d","lookups":[],"watermark":{"now":"x"}}',
    '{"time":"x","definition":[],"lookups":{"a":{}},"watermark":{"other":1}}',
    '{"read":"many","unmet:x":null,"rejected":[1]}',
    '{"table":{},"ledger":[],"generation":"x"}',
]


@pytest.mark.parametrize("file", ["metadata", MARKER, "offsets/3", "offsets/2", "commits/3", "pins/3", "fates/3"])
def test_whatever_a_file_of_it_holds_something_is_said(plan: Plan, file: str) -> None:
    Held(plan, BRONZE)
    silver = Held(plan, SILVER)
    for text in ODD:
        STORE.write(f"{silver.folder}/{file}", text)
        for words in (("list",), ("show", SILVER), ("show", SILVER, "--json")):
            done = call(plan, *words)
            assert done.exception is None, (text, done.exception)
            assert SILVER in done.stdout


def test_none_of_it_loads_spark() -> None:
    modules = ("checkpoints", "staleness", "quarantine_rows")
    code = (
        f"import sys, {', '.join(f'penstock.operations.{name}' for name in modules)}; print('pyspark' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n", done.stderr
