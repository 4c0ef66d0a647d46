"""Reading a Delta log: whose commit is it, and did rows go with it?"""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.ledger.delta_log import Origin
from tests.unit.hand_ledgers import HandLog, at, entry


@pytest.fixture
def hand(tmp_path: Path) -> HandLog:
    return HandLog(tmp_path / "orders")


def origin(hand: HandLog, version: int) -> Origin:
    commit = hand.log.commit(version)
    assert commit is not None
    return commit.origin


def test_a_commit_with_an_entry_of_the_table_is_the_ledgers(hand: HandLog) -> None:
    first = hand.begin(at(0, 0))
    hand.batch(entry(1, at(0, 0), at(5, 5)))
    found = hand.log.since(-1)
    assert [commit.origin for commit in found] == [Origin.LEDGER, Origin.LEDGER]
    assert found[0].entry == first
    assert (found[0].table_id, found[1].table_id) == ("table-id", None)
    assert (found[1].rows, found[1].files_added, found[1].bytes) == (10, 1, 100)


def test_rows_come_from_deltas_metrics_before_the_files_statistics(hand: HandLog) -> None:
    version = hand.commit("WRITE", adds=2, rows=10, metrics={"numOutputRows": "17"})
    commit = hand.log.commit(version)
    assert commit is not None
    assert commit.rows == 17


@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG"])
def test_compaction_changes_no_row(hand: HandLog, operation: str) -> None:
    version = hand.commit(operation, adds=1, removes=5, change=False)
    assert origin(hand, version) is Origin.MAINTENANCE


@pytest.mark.parametrize("operation", ["SET TBLPROPERTIES", "VACUUM START", "VACUUM END", "ADD COLUMNS"])
def test_a_commit_without_files_changes_no_row(hand: HandLog, operation: str) -> None:
    assert origin(hand, hand.commit(operation)) is Origin.MAINTENANCE


def test_rows_added_by_others_are_a_foreign_append(hand: HandLog) -> None:
    assert origin(hand, hand.commit("WRITE", adds=1)) is Origin.FOREIGN_APPEND
    assert origin(hand, hand.commit("STREAMING UPDATE", adds=1, note="a job")) is Origin.FOREIGN_APPEND


@pytest.mark.parametrize(
    ("operation", "adds", "removes"),
    [("DELETE", 0, 1), ("DELETE", 1, 1), ("UPDATE", 1, 1), ("MERGE", 2, 1), ("WRITE", 1, 3), ("TRUNCATE", 0, 4)],
)
def test_rows_removed_by_others_are_a_foreign_change(hand: HandLog, operation: str, adds: int, removes: int) -> None:
    assert origin(hand, hand.commit(operation, adds=adds, removes=removes)) is Origin.FOREIGN_CHANGE


def test_a_restore_is_a_foreign_change_even_if_it_says_an_entry_again(hand: HandLog) -> None:
    version = hand.commit("RESTORE", adds=1, note=entry(1, at(0), at(5)), parameters={"version": 3, "timestamp": None})
    commit = hand.log.commit(version)
    assert commit is not None
    assert (commit.origin, commit.restored_to) == (Origin.FOREIGN_CHANGE, 3)


def test_an_entry_of_another_table_is_not_ours(hand: HandLog) -> None:
    version = hand.commit("WRITE", adds=1, note=entry(1, at(0), at(5), table="bronze.other"))
    commit = hand.log.commit(version)
    assert commit is not None
    assert (commit.origin, commit.entry) == (Origin.FOREIGN_APPEND, None)


def test_line_separators_within_a_value_do_not_cut_an_action(hand: HandLog) -> None:
    """JSON leaves U+2028 and U+0085 as they are; only the newline ends an action in a Delta log."""
    version = hand.commit("WRITE", adds=1, note="a\u2028b\u2029c\x85de")
    assert origin(hand, version) is Origin.FOREIGN_APPEND


def test_versions_are_those_of_commit_files_only(hand: HandLog) -> None:
    hand.begin(at(0))
    hand.batch(entry(1, at(0), at(5)))
    folder = hand.path(0).parent
    for name in (
        "00000000000000000001.checkpoint.parquet",
        "00000000000000000001.crc",
        ".00000000000000000002.json.tmp",
        "_last_checkpoint",
        "00000000000000000000.00000000000000000001.compacted.json",
    ):
        (folder / name).write_text("")
    assert hand.log.versions() == [0, 1]


def test_no_folder_means_no_table(tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "empty")
    assert hand.log.versions() == []
    assert hand.log.commit(0) is None
    assert list(hand.log.backwards()) == []
