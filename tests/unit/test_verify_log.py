"""What the commits of a table say of themselves: their numbers must fit, their files must be there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.ledger.entry import Counts, dump
from tests.bronze_table import BronzeTable
from tests.unit.verify_table import begun, checked, fine, only


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    return begun(tmp_path)


def test_a_compaction_that_loses_a_row_is_named_by_its_version(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 120}})
    orders.table().optimize.compact()
    assert fine(checked(orders)), checked(orders).problems
    newest = orders.log / f"{orders.version():020d}.json"
    text = newest.read_text()
    newest.write_text(text.replace('\\"numRecords\\":120', '\\"numRecords\\":119'))
    (problem, *_) = checked(orders).problems
    assert problem.endswith("says that it changes no row, and puts 119 rows in the place of 120")
    assert f"version {orders.version()} " in problem


def test_a_batch_that_takes_files_out_of_a_table_that_only_grows_is_named(orders: BronzeTable) -> None:
    from deltalake import CommitProperties

    orders.batch({"orders": {0: 100}})
    assert orders.last is not None
    next_one = dump(orders._next(kind="batch", batch=orders.last.batch + 1, after=orders.last.after))
    orders.table().delete("offset = 5", commit_properties=CommitProperties(custom_metadata={"userMetadata": next_one}))
    report = checked(orders)
    assert report.verdict == "wrong"
    assert "version 2 (batch 1.2) takes 1 files out of a table that only grows" in report.problems


def test_an_entry_that_counts_other_rows_than_were_written_is_named(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    orders.batch({"orders": {0: 120}}, counts=Counts(rows=99, total=99))
    (problem,) = checked(orders).problems
    assert problem == ("version 2 (batch 1.2) counts 99 rows before it, the entry of version 1 makes that 100")


def test_an_entry_beside_the_batches_that_changes_rows_breaks_the_chain(orders: BronzeTable) -> None:
    from deltalake import CommitProperties

    orders.batch({"orders": {0: 100}})
    assert orders.last is not None
    said = dump(orders.last.carry_entry(Counts(100, 100)))
    orders.table().delete("offset = 5", commit_properties=CommitProperties(custom_metadata={"userMetadata": said}))
    report = checked(orders)
    assert report.chain is not None and report.verdict == "wrong"
    assert "changes rows, which such an entry never does" in report.chain.broken[0]
    assert list(only(report).unverifiable) == [(5, 6)]


def test_a_file_of_another_size_than_the_log_says_is_named_with_who_added_it(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 120}})
    adds = [json.loads(line) for line in (orders.log / f"{1:020d}.json").read_text().splitlines()]
    path = Path(orders.plan.uri) / next(one["add"]["path"] for one in adds if "add" in one)
    path.write_bytes(path.read_bytes() + b"x")
    problem = checked(orders).problems[0]
    assert f"data file {path.name} (100 rows, added in version 1 by batch 1.1) has " in problem


def test_a_file_that_cannot_be_read_is_named(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 120}})
    adds = [json.loads(line) for line in (orders.log / f"{1:020d}.json").read_text().splitlines()]
    path = Path(orders.plan.uri) / next(one["add"]["path"] for one in adds if "add" in one)
    path.write_bytes(b"PAR1" + b"x" * (path.stat().st_size - 8) + b"PAR1")
    report = checked(orders)
    assert report.verdict == "wrong"
    assert f"cannot be read: {path.name}: " in report.problems[0]
