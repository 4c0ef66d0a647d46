"""What lies in a quarantine, counted."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.operations import quarantine_rows
from penstock.operations.quarantine_rows import (
    QuarantineCounts,
    count_all,
    count_document,
    count_kinds,
    tables_with_quarantine,
)
from penstock.plan.model import Plan, TablePlan
from penstock.storage.stores import LocalStore
from tests.unit.hand_quarantines import NOON, make_plan, read_by, rejected, write

STORE = LocalStore()


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


@pytest.fixture
def silver(plan: Plan) -> TablePlan:
    table = plan.table("silver.orders")
    assert table is not None
    return table


def kinds(found: QuarantineCounts) -> dict[tuple[str, str], int]:
    return {(kind.reason, kind.about): kind.rows for kind in found.kinds}


def test_rows_are_told_apart_by_what_the_reason_is_about_and_not_by_the_record(silver: TablePlan) -> None:
    write(
        silver,
        rejected("wrong_type", 'amount: "twelve" is not of type DECIMAL(12,2)'),
        rejected("wrong_type", 'amount: "11" is not of type DECIMAL(12,2)'),
        rejected("wrong_type", "items[3].price: {} is not of type INT"),
        rejected("wrong_type", "items[14].price: {} is not of type INT"),
        rejected("malformed_json", 'not JSON, at byte 25: {"a'),
        rejected("malformed_json", 'not JSON, at byte 7: {"b'),
        rejected("expectation", "has_id, in: time"),
        rejected("not_an_object", "a JSON object is needed, not 1"),
        rejected("not_an_object", "a JSON object is needed, not 2"),
        rejected("not_utf8", "value is not UTF-8; its bytes are in value_binary", value=None, value_binary=b"\xff"),
    )
    found = count_kinds(silver, STORE)
    assert kinds(found) == {
        ("wrong_type", "amount"): 2,
        ("wrong_type", "items[…].price"): 2,
        ("malformed_json", "not JSON, at byte …"): 2,
        ("expectation", "has_id, in: time"): 1,
        ("not_an_object", ""): 2,
        ("not_utf8", "value is not UTF-8"): 1,
    }
    assert found.reasons == {
        "wrong_type": 4,
        "malformed_json": 2,
        "not_an_object": 2,
        "expectation": 1,
        "not_utf8": 1,
    }
    assert (found.rows, found.rows_of_other_kinds) == (10, 0)


def test_each_kind_has_its_first_and_last_time_and_one_of_its_newest_rows(silver: TablePlan) -> None:
    write(silver, rejected("a", "x: 1", batch=1, value="old"), rejected("b", "y"))
    late = NOON + timedelta(days=1)
    write(silver, rejected("a", "x: 2", batch=2, value="new", error_timestamp=late))
    found = count_kinds(silver, STORE)
    (kind,) = [kind for kind in found.kinds if kind.reason == "a"]
    assert (kind.first, kind.last) == (NOON, late)
    assert kind.sample is not None and kind.sample.value is not None
    assert (kind.sample.value.text, kind.sample.batch) == ("new", 2)
    assert (found.first, found.last) == (NOON, late)


def test_the_share_is_that_of_the_rows_that_the_ledger_counted_as_read(silver: TablePlan) -> None:
    read_by(silver, read=400)
    write(silver, rejected("a", "x"))
    found = count_kinds(silver, STORE)
    assert (found.read, found.share) == (400, 1 / 400)


def test_without_a_ledger_that_counts_there_is_no_share(silver: TablePlan) -> None:
    write(silver, rejected("a", "x"), rejected("a", "x"))
    assert count_kinds(silver, STORE).share is None
    read_by(silver, read=400)
    assert count_kinds(silver, STORE).share == 2 / 400
    row_counts = Path(silver.checkpoints) / "1" / "fates" / "1"
    row_counts.unlink()  # the checkpoint was made anew: its last batch is not counted yet
    assert count_kinds(silver, STORE).read is None


def test_a_share_of_only_some_batches_is_not_shown(silver: TablePlan) -> None:
    read_by(silver, read=400, batch=3)
    write(silver, rejected("a", "x"))
    row_counts = Path(silver.checkpoints) / "1" / "fates" / "3"
    row_counts.write_text('{"batches": 2, "read": 300}')
    assert count_kinds(silver, STORE).read is None


def test_rows_of_batches_that_the_table_does_not_have_are_counted_apart(silver: TablePlan) -> None:
    read_by(silver, read=10, batch=2)
    write(silver, rejected("a", "x", batch=2), rejected("a", "x", batch=3), rejected("a", "x", generation=2))
    found = count_kinds(silver, STORE)
    assert (found.rows, found.rows_ahead) == (3, 2)


def test_more_kinds_than_anyone_reads_are_counted_together(silver: TablePlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_rows, "MOST_KINDS", 2)
    write(silver, *(rejected("wrong_type", f"field_{name}: x") for name in "aabbccde"))
    found = count_kinds(silver, STORE)
    assert kinds(found) == {("wrong_type", "field_a"): 2, ("wrong_type", "field_b"): 2}
    assert (found.rows, found.rows_of_other_kinds) == (8, 4)


def test_rows_without_a_reason_are_counted_too(silver: TablePlan) -> None:
    write(silver, rejected(None, None, generation=None, batch=None))  # type: ignore[arg-type]
    found = count_kinds(silver, STORE)
    assert kinds(found) == {("", ""): 1}
    assert found.kinds[0].sample is None


def test_a_quarantine_that_is_not_there_yet_is_empty(silver: TablePlan) -> None:
    found = count_kinds(silver, STORE)
    assert (found.exists, found.rows, found.problem) == (False, 0, None)


def test_all_tables_that_can_reject_are_listed_and_one_that_once_did(plan: Plan) -> None:
    def listed() -> list[str]:
        return [table.name for table in tables_with_quarantine(plan, STORE, [])]

    assert listed() == ["silver.orders", "silver.files"]
    bronze = plan.tables[0]
    write(bronze, rejected("a", "x"))
    assert listed() == ["bronze.orders", "silver.orders", "silver.files"]


def test_a_table_goes_by_its_own_name_or_by_that_of_its_quarantine(plan: Plan) -> None:
    for name in ("silver.orders", "silver.orders__quarantine"):
        assert [table.name for table in tables_with_quarantine(plan, STORE, [name])] == ["silver.orders"]


def test_a_table_that_rejects_nothing_is_refused_by_name(plan: Plan) -> None:
    with pytest.raises(UsageError, match=r"bronze\.orders has no quarantine"):
        count_all([plan.tables[0]], STORE)


def test_one_that_cannot_be_read_leaves_the_others_alone(plan: Plan, silver: TablePlan) -> None:
    files = plan.table("silver.files")
    assert files is not None
    uri = write(silver, rejected("a", "x"))
    write(files, rejected("unreadable_file", "not JSON", _source={"file": "in/a.json", "row": None}))
    for file in Path(uri).glob("*.parquet"):
        file.unlink()
    broken, whole = count_all([silver, files], STORE)
    assert "cannot be read" in (broken.problem or "") and broken.rows == 0
    assert (whole.problem, whole.rows) == (None, 1)
    json.dumps([count_document(broken), count_document(whole)])


@pytest.mark.parametrize("feature", ["typeWidening", "vacuumProtocolCheck", "fromTheFuture"])
def test_a_feature_that_only_spark_reads_is_named(silver: TablePlan, feature: str) -> None:
    uri = write(silver, rejected("a", "x"))
    first = Path(uri) / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [feature], "writerFeatures": [feature]}
    first.write_text("\n".join(json.dumps({"protocol": features} if "protocol" in line else line) for line in lines))
    (found,) = count_all([silver], STORE)
    assert (found.problem or "").casefold().startswith(f"the table has the feature {feature}".casefold())
    assert found.hint and "sql" in found.hint


def test_another_table_in_its_place_is_no_quarantine(silver: TablePlan) -> None:
    from arro3.core import Array, DataType, Table
    from deltalake import write_deltalake

    uri = f"{silver.uri}__quarantine"
    write_deltalake(uri, Table.from_pydict({"a": Array([1], type=DataType.int64())}))
    (found,) = count_all([silver], STORE)
    assert "no column error_reason" in (found.problem or "")
