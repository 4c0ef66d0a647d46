"""`verify` without a broker: what the ledger and the rows say of each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.ledger.entry import Counts, dump
from penstock.storage.stores import LocalStore
from penstock.verify import table as verify_table
from tests.bronze_table import BronzeTable, table_plan
from tests.unit.verify_table import begun, checked, fine, only


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    return begun(tmp_path)


def test_a_table_that_holds_what_its_ledger_says_is_right_but_not_complete_without_a_broker(
    orders: BronzeTable,
) -> None:
    orders.batch({"orders": {0: 100, 1: 30}}).batch({"orders": {0: 150}}).carry()
    report = checked(orders)
    assert fine(report)
    assert report.rows == 170
    assert report.behind is None
    assert "does not answer" in (report.broker_problem or "")
    assert report.chain is not None
    assert (report.chain.entries, report.chain.batches, report.chain.from_genesis) == (3, 2, True)


def test_a_gap_without_a_broker_is_unverifiable(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}, [("orders", 0, o) for o in range(100) if o not in (0, 50, 51, 99)])
    report = checked(orders)
    assert report.verdict == "partial"
    assert list(only(report).unverifiable) == [(0, 1), (50, 52), (99, 100)]
    assert not report.ok() and report.ok(allow_partial=True)


def test_a_partition_that_is_missing_as_a_whole_is_a_gap(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100, 1: 30}}, [("orders", 0, o) for o in range(100)])
    assert list(only(checked(orders), 1).unverifiable) == [(10, 30)]


def test_a_doubled_row_is_named(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}, [("orders", 0, o) for o in [*range(100), 42, 42, 99]])
    report = checked(orders)
    assert report.verdict == "wrong"
    assert [(d.start, d.end, d.times) for d in only(report).doubled] == [(42, 43, 3), (99, 100, 2)]


def test_rows_before_the_start_and_after_the_position_are_unexpected(orders: BronzeTable) -> None:
    orders.batch({"orders": {1: 30}}, [("orders", 1, o) for o in [9, *range(10, 30), 30]] + [("other", 0, 0)])
    report = checked(orders)
    assert report.verdict == "wrong"
    assert list(only(report, 1).unexpected) == [(9, 10), (30, 31)]
    assert [one.key for one in report.partitions if one.unexpected] == [("orders", 1), ("other", 0)]


def test_a_foreign_append_is_noted_and_its_rows_are_unexpected(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 10}})
    version = orders.append([("orders", 0, 3), ("orders", 0, 500), (None, None, None)])  # type: ignore[list-item]
    report = checked(orders)
    assert report.verdict == "wrong"
    assert report.notes == [f"version {version} (WRITE) added 3 rows that are not in the ledger"]
    assert report.rows_without_coordinates == 1
    assert list(only(report).unexpected) == [(500, 501)]
    assert [(d.start, d.times) for d in only(report).doubled] == [(3, 2)]


def test_a_batch_that_does_not_start_where_the_last_ended_breaks_the_chain(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100, 1: 30}})
    orders.batch({"orders": {0: 200, 1: 30}}, before=('{"orders":{"0":110,"1":30}}',))
    report = checked(orders)
    assert report.chain is not None
    assert report.chain.broken == [
        "version 2 (batch 1.2) does not start where 1.1 ended: orders-0 ended at 100, starts at 110"
    ]
    assert report.verdict == "wrong"


def test_a_batch_number_that_is_left_out_breaks_the_chain(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    orders.last = replace(orders.last, batch=4)  # type: ignore[type-var]
    orders.batch({"orders": {0: 110}})
    chain = checked(orders).chain
    assert chain is not None
    assert chain.broken == ["version 2 (batch 1.5) follows 1.1"]


def test_a_batch_written_twice_is_named_by_chain_and_rows(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    assert orders.last is not None
    orders.append([("orders", 0, o) for o in range(100)], dump(orders.last))
    report = checked(orders)
    assert report.chain is not None
    assert report.chain.broken == ["version 2 (batch 1.1) was already written in version 1"]
    assert [(d.start, d.end, d.times) for d in only(report).doubled] == [(0, 100, 2)]


def test_a_compaction_that_repeats_an_entry_is_no_second_batch(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 50}}).batch({"orders": {0: 100}})
    assert orders.last is not None
    from deltalake import CommitProperties

    orders.table().optimize.compact(
        commit_properties=CommitProperties(custom_metadata={"userMetadata": dump(orders.last)})
    )
    orders.batch({"orders": {0: 120}})
    assert fine(checked(orders))


def test_an_entry_of_another_ledger_breaks_the_chain(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    orders.batch({"orders": {0: 110}}, ledger="ledger-2")
    chain = checked(orders).chain
    assert chain is not None
    assert "another ledger" in chain.broken[0]


def test_a_log_that_was_cleaned_up_says_from_where_on_the_chain_is_known(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100, 1: 30}}).batch({"orders": {0: 150}}).batch({"orders": {0: 170}})
    _clean_up(orders, 2)
    report = checked(orders)
    assert report.verdict == "partial"
    assert report.chain is not None
    assert (report.chain.first_version, report.chain.from_genesis) == (2, False)
    assert "known from version 2 on" in report.doubts[0]


def test_a_log_that_was_cleaned_up_does_not_matter_where_the_rows_prove_all_since_the_table_began(
    orders: BronzeTable,
) -> None:
    began = ('{"orders":{"0":0,"1":10}}',)
    orders.batch({"orders": {0: 100, 1: 30}}).batch({"orders": {0: 150}}, began=began).batch({"orders": {0: 170}})
    _clean_up(orders, 2)
    report = checked(orders)
    assert fine(report), report.unproven
    assert "proven by its rows" in report.notes[0]


def test_after_a_cleaned_up_log_rows_missing_since_the_table_began_are_not_proven(orders: BronzeTable) -> None:
    began = ('{"orders":{"0":0,"1":10}}',)
    orders.batch({"orders": {0: 100}}, [("orders", 0, o) for o in range(3, 100)])
    orders.batch({"orders": {0: 150}}, began=began).batch({"orders": {0: 170}})
    _clean_up(orders, 2)
    report = checked(orders)
    assert report.verdict == "partial"
    assert list(only(report).unverifiable) == [(0, 3)]


def test_after_a_cleaned_up_log_rows_missing_at_the_head_are_seen_by_the_count(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}, [("orders", 0, o) for o in range(3, 100)])
    orders.batch({"orders": {0: 150}}, counts=Counts(rows=100, total=100))
    orders.batch({"orders": {0: 170}}, counts=Counts(rows=50, total=150))
    _clean_up(orders, 2)
    report = checked(orders)
    assert report.verdict == "partial"
    assert "the ledger counted 170 rows, the table holds 167" in report.doubts


def test_a_table_that_was_there_before_its_ledger_is_left_alone(tmp_path: Path) -> None:
    table = BronzeTable(table_plan(str(tmp_path / "orders")), {"orders": "id-1"}).genesis({"orders": {0: 0}})
    genesis = table.log / f"{0:020d}.json"
    text = genesis.read_text()
    genesis.write_text(text.replace('"userMetadata"', '"otherMetadata"'))
    table.append([("orders", 0, 1), ("orders", 0, 1), (None, None, None)])  # type: ignore[list-item]
    assert table.last is not None
    table.commit(dump(table.last))
    table.batch({"orders": {0: 20}})
    report = checked(table)
    assert report.doubts == ["3 rows were in the table before its ledger began: they were not looked into"]
    assert report.verdict == "partial"


def test_a_table_that_is_not_there_is_not_created_yet(tmp_path: Path) -> None:
    (report,) = verify_table.verify([table_plan(str(tmp_path / "none"))], LocalStore())
    assert report.verdict == "not created"
    assert not report.ok(allow_partial=True)


def test_a_table_without_a_ledger_is_a_problem(tmp_path: Path) -> None:
    table = BronzeTable(table_plan(str(tmp_path / "orders"))).genesis({"orders": {0: 0}})
    (report,) = verify_table.verify([table_plan(table.plan.uri, name="bronze.other")], LocalStore())
    assert report.verdict == "wrong"
    assert "without a ledger entry" in report.problems[0]


def test_a_data_file_that_is_gone_is_a_problem(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    for path in Path(orders.plan.uri).glob("*.parquet"):
        path.unlink()
    report = checked(orders)
    assert report.verdict == "wrong"
    assert "(100 rows, added in version 1 by batch 1.1) is not there" in report.problems[0]
    assert "cannot be read" in report.problems[1]


def test_a_stream_that_goes_on_does_not_disturb_the_answer(
    orders: BronzeTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.batch({"orders": {0: 100}})
    ask = verify_table.fetch_offsets

    def meanwhile(*args: object, **more: object) -> object:
        orders.batch({"orders": {0: 150}})
        return ask(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(verify_table, "fetch_offsets", meanwhile)
    report = checked(orders)
    assert fine(report)
    assert (report.version, report.rows) == (1, 100)


def _clean_up(table: BronzeTable, first: int) -> None:
    """What Delta's log retention does: a checkpoint, and the older commits removed."""
    table.table().create_checkpoint()
    for version in range(first):
        (table.log / f"{version:020d}.json").unlink()
