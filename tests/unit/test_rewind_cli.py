"""`penstock rewind` with what people give it by mistake, and what it says before it does anything. Without a JVM."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError
from tests.unit.hand_ledgers import HandLog, at, entry

PROJECT = """\
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:1"}
tables:
  bronze.orders:
    from: {kafka: orders}
  silver.orders:
    from: {table: bronze.orders}
    decode: {json: value, schema: "id BIGINT"}
"""


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    (tmp_path / "penstock.yml").write_text(PROJECT)
    bronze = HandLog(tmp_path / "lake/bronze/orders")
    bronze.begin(at(0))
    for number in range(1, 5):
        bronze.batch(entry(number, at((number - 1) * 10), at(number * 10), total=(number - 1) * 10))
    silver = HandLog(tmp_path / "lake/silver/orders", "silver.orders")
    read = [version(0), version(4)]
    first = entry(0, read[0], read[0], kind="genesis", table="silver.orders")
    silver.commit("CREATE TABLE AS SELECT", note=replace(first, subscription={"table": "bronze.orders"}))
    silver.batch(replace(entry(1, *read, table="silver.orders"), subscription={"table": "bronze.orders"}))

    def tell(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["-C", str(tmp_path), "rewind", *arguments], env={"COLUMNS": "400"})
        if isinstance(done.exception, PenstockError):
            return done.exception.exit_code, str(done.exception)
        return done.exit_code, " ".join(done.output.split())

    return tell


def version(number: int) -> str:
    about = {"sourceVersion": 1, "reservoirId": "table-id", "reservoirVersion": number, "index": -1}
    return json.dumps({**about, "isStartingVersion": False})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bronze.order", "--version", "2"), "bronze.orders"),
        (("bronze.orders",), "--version N, or --before TIME"),
        (("bronze.orders", "--version", "2", "--before", "1h"), "--version N, or --before TIME"),
        (("bronze.orders", "--before", "yesterday"), "--before yesterday: expected a time"),
        (("bronze.orders", "--before", "2001-01-01"), "no version from before 2001-01-01"),
        (("bronze.orders", "--version", "9"), "its newest is 4"),
        (("bronze.orders", "--version", "4"), "nothing to undo"),
        (("bronze.orders", "--version", "2"), "silver.orders has read up to version 3"),
        (("bronze.orders", "--abort"), "no rewind of bronze.orders is open"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_write(
    told: Callable[..., tuple[int, str]], arguments: tuple[str, ...], words: str
) -> None:
    code, said = told(*arguments)
    assert code == 2 and words in said


def test_what_it_will_do_is_said_before_it_asks(told: Callable[..., tuple[int, str]]) -> None:
    code, said = told("bronze.orders", "--version", "3")
    assert "back to version 3" in said and "40 now, 30 then" in said and "orders-0 [30, 40)" in said
    assert "silver.orders has read up to version 3: it skips what is undone" in said
    assert "1. stop silver.orders" in said and "2. restore bronze.orders to version 3" in said
    assert "Continue?" in said and code == 1
    code, said = told("bronze.orders", "--version", "2", "--cascade")
    assert "silver.orders has read up to version 3: it is rebuilt" in said
    assert "1. restore bronze.orders to version 2" in said and "2. rebuild silver.orders from bronze.orders" in said
