"""`verify` after decisions of a person: what was accepted is listed, and is no loss."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.kafka.client import TopicInfo
from penstock.ledger.position import Range
from penstock.operations.broker import PartitionLag, TopicOffsets
from penstock.plan.sources import KafkaSource, StartingPlan
from penstock.verify.unread import unread_of_topics
from tests.bronze_table import BronzeTable
from tests.unit.verify_table import begun, checked, fine, only


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    return begun(tmp_path)


def test_a_range_that_was_skipped_by_decision_is_listed_and_no_gap(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100, 1: 30}})
    orders.open({"orders": {0: 150, 1: 30}}, "reset --to earliest").batch({"orders": {0: 160}})
    report = checked(orders)
    assert fine(report)
    assert report.chain is not None
    (accepted,) = report.chain.accepted
    assert accepted.skipped == (Range("orders", 0, 100, 150),)
    assert (accepted.generation, accepted.note) == (2, "reset --to earliest")


def test_a_range_that_was_read_again_by_decision_is_expected_twice(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).open({"orders": {0: 60, 1: 10}})
    orders.batch({"orders": {0: 80}}).batch({"orders": {0: 120}})
    report = checked(orders)
    assert fine(report)
    assert report.rows == 160
    assert report.chain is not None
    assert report.chain.accepted[0].reread == (Range("orders", 0, 60, 100),)


def test_new_topics_and_partitions_begin_where_the_entry_says(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100, 2: 20}})  # partition 2 is new: from 0
    orders.open({"orders": {0: 100, 1: 10, 2: 20}, "clicks": {0: 7}}, "new topics clicks")
    orders.batch({"clicks": {0: 9}})
    report = checked(orders)
    assert fine(report)
    assert report.rows == 122
    assert report.chain is not None
    assert report.chain.accepted[0].skipped == ()


def test_a_restore_that_nobody_decided_about_is_a_problem(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 150}})
    version = orders.restore(1)
    report = checked(orders)
    assert report.verdict == "wrong"
    assert report.problems == [f"version {version} (RESTORE) changed rows outside Penstock and awaits a decision"]
    assert list(only(report).unverifiable) == [(100, 150)]


def test_a_restore_and_a_reset_to_that_version_give_a_complete_table(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 150}})
    orders.restore(1)
    orders.open({"orders": {0: 100, 1: 10}}, "reset --to version:1").batch({"orders": {0: 170}})
    report = checked(orders)
    assert fine(report)
    assert report.rows == 170


def test_a_restore_accepted_as_it_is_leaves_its_loss_listed(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 150}})
    orders.restore(1)
    orders.open({"orders": {0: 150, 1: 10}}, "reset --to ledger").batch({"orders": {0: 170}})
    report = checked(orders)
    assert fine(report)
    assert report.chain is not None
    assert report.chain.accepted[0].skipped == (Range("orders", 0, 100, 150),)


def test_a_delete_that_was_accepted_is_told_from_a_loss_before_it(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}, [("orders", 0, o) for o in range(100) if o != 5])
    version = orders.delete("offset >= 20 AND offset < 30")
    orders.open({"orders": {0: 100, 1: 10}}, "reset --to ledger").batch({"orders": {0: 120}})
    report = checked(orders)
    assert report.verdict == "partial"
    assert list(only(report).unverifiable) == [(5, 6)]
    assert report.chain is not None
    assert report.chain.accepted[0].skipped == (Range("orders", 0, 20, 30),)
    assert (
        report.notes[0]
        == f"version {version} (DELETE) changed rows outside Penstock, accepted in version {version + 1}"
    )


def test_rows_deleted_by_hand_and_read_again_are_expected_once(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    orders.delete("offset >= 60")
    orders.open({"orders": {0: 60, 1: 10}}, "to read them again").batch({"orders": {0: 100}})
    report = checked(orders)
    assert fine(report)
    assert report.rows == 100


def test_what_an_accepted_delete_removed_is_unverifiable_once_vacuum_took_the_files(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    before = set(Path(orders.plan.uri).glob("*.parquet"))
    orders.delete("offset = 20")
    for path in before:
        path.unlink()
    orders.open({"orders": {0: 100, 1: 10}}, "reset --to ledger")
    report = checked(orders)
    assert report.verdict == "partial"
    assert list(only(report).unverifiable) == [(20, 21)]


def test_a_topic_whose_beginning_is_not_decided_yet_is_not_proven(orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    entry, known = orders.last, {name: TopicInfo(f"id of {name}", (0,)) for name in ("orders", "new")}
    held = TopicOffsets(known, {"orders": {0: 0}, "new": {0: 0}}, {"orders": {0: 100}, "new": {0: 7}})
    assert entry is not None and isinstance(orders.plan.source, KafkaSource)
    both = replace(orders.plan.source, topics=("orders", "new"))
    here = [PartitionLag("orders", 0, 100, 100)]
    assert unread_of_topics(both, entry, here, held).count == 7, "from its first record"
    late = unread_of_topics(replace(both, starting=StartingPlan("latest")), entry, here, held)
    assert (late.count, late.unknown) == (None, "the next start decides where new begins")
    one = replace(both, topics=("orders",), starting=StartingPlan("latest"))
    assert unread_of_topics(one, entry, here, held).count == 0
