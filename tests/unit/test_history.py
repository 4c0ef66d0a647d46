from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ledger.position import Range
from penstock.operations.history import history
from penstock.storage.stores import LocalStore
from tests.bronze_table import BronzeTable, table_plan


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    table = BronzeTable(table_plan(str(tmp_path / "orders")), {"orders": "id-1"}).genesis({"orders": {0: 0, 1: 10}})
    table.batch({"orders": {0: 100, 1: 12}})
    table.append([("orders", 0, 7)])
    table.delete("offset = 7")
    table.open({"orders": {0: 90, 1: 20}}, "reset by hand")
    table.commit(None, "OPTIMIZE")
    table.restore(1)
    return table


def test_commits_come_newest_first_with_who_made_them(orders: BronzeTable) -> None:
    lines = history(orders.plan, LocalStore())
    assert [(line.version, line.origin, line.kind) for line in lines] == [
        (6, "foreign change", None),
        (5, "maintenance", None),
        (4, "ledger", "open"),
        (3, "foreign change", None),
        (2, "foreign append", None),
        (1, "ledger", "batch"),
        (0, "ledger", "genesis"),
    ]


def test_a_batch_shows_its_rows_files_and_the_offsets_that_it_read(orders: BronzeTable) -> None:
    batch = history(orders.plan, LocalStore())[5]
    assert (batch.generation, batch.batch, batch.rows, batch.files_added) == (1, 1, 102, 1)
    assert batch.read == (Range("orders", 0, 0, 100), Range("orders", 1, 10, 12))


def test_an_opened_generation_shows_its_note_and_a_restore_its_version(orders: BronzeTable) -> None:
    lines = history(orders.plan, LocalStore())
    assert (lines[2].generation, lines[2].batch, lines[2].note) == (2, 0, "reset by hand")
    assert lines[0].note == "back to version 1"


def test_the_limit_keeps_the_newest(orders: BronzeTable) -> None:
    assert [line.version for line in history(orders.plan, LocalStore(), 2)] == [6, 5]


def test_a_table_that_is_not_there_has_no_history(tmp_path: Path) -> None:
    assert history(table_plan(str(tmp_path / "none")), LocalStore()) == []
