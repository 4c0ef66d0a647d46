"""The end of the ledger: the last entry and what others committed after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import ChainBroken, Conflict, Fenced, TableChanged
from penstock.ledger.commit import confirm, must_confirm
from penstock.ledger.entry import Counts, Kind
from penstock.ledger.head import LedgerHead, advance, position_at, read_head, refuse_foreign_changes, refuse_gap
from penstock.verify.ledger_walk import read_chain
from tests.unit.hand_ledgers import HandLog, at, entry

ONE = entry(1, at(0, 0), at(5, 5))
TWO = entry(2, at(5, 5), at(9, 9), rows=10, total=10, seen=1)


@pytest.fixture
def hand(tmp_path: Path) -> HandLog:
    made = HandLog(tmp_path / "orders")
    made.begin(at(0, 0))
    made.batch(ONE)
    return made


def tail_of(hand: HandLog) -> LedgerHead:
    tail = read_head(hand.log)
    assert tail is not None
    return tail


def test_a_folder_without_a_log_has_no_ledger(tmp_path: Path) -> None:
    assert read_head(HandLog(tmp_path / "new").log) is None


def test_a_table_without_an_entry_is_refused(tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "by-hand")
    hand.commit("CREATE TABLE")
    hand.commit("WRITE", adds=1, note=entry(1, at(0), at(3), table="bronze.other"))
    with pytest.raises(TableChanged, match="without a ledger entry"):
        read_head(hand.log)


def test_the_tail_is_found_behind_the_commits_of_others(hand: HandLog) -> None:
    hand.batch(TWO)
    hand.commit("OPTIMIZE", adds=1, removes=2, change=False)
    hand.commit("SET TBLPROPERTIES")
    hand.commit("WRITE", adds=1)
    hand.commit("VACUUM START")
    tail = tail_of(hand)
    assert (tail.entry, tail.commit.version, tail.version) == (TWO, 2, 6)
    assert [commit.operation for commit in tail.later] == ["OPTIMIZE", "SET TBLPROPERTIES", "WRITE", "VACUUM START"]
    assert [commit.version for commit in refuse_foreign_changes(tail, hand.log)] == [5]


def test_a_log_whose_beginning_is_gone_still_has_its_tail(hand: HandLog) -> None:
    hand.batch(TWO)
    hand.path(0).unlink()
    hand.path(1).unlink()
    assert tail_of(hand).entry == TWO


def test_advancing_takes_up_new_entries_and_the_commits_after_them(hand: HandLog) -> None:
    tail = tail_of(hand)
    assert advance(tail, hand.log) == tail
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    assert [commit.version for commit in advance(tail, hand.log).later] == [2]
    hand.batch(TWO)
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    tail = advance(tail, hand.log)
    assert (tail.entry, [commit.version for commit in tail.later]) == (TWO, [4])
    assert tail == tail_of(hand)


def test_an_entry_repeated_by_auto_compaction_is_counted_once(hand: HandLog) -> None:
    tail = tail_of(hand)
    hand.batch(TWO)
    hand.commit("OPTIMIZE", adds=1, removes=3, change=False, note=TWO)
    for found in (advance(tail, hand.log), tail_of(hand)):
        assert found.entry == TWO
        assert found.version == 3
        assert not refuse_foreign_changes(found, hand.log)


def test_rows_are_counted_once_when_auto_compaction_repeats_an_entry(hand: HandLog) -> None:
    hand.batch(TWO)
    hand.commit("OPTIMIZE", adds=1, removes=3, change=False, note=TWO, rows=40)
    assert tail_of(hand).counts == Counts(rows=10, total=20)


def test_a_carried_entry_counts_the_rows_of_its_batch_once(hand: HandLog) -> None:
    hand.batch(TWO)
    tail = tail_of(hand)
    hand.commit("WRITE", note=TWO.carry_entry(tail.counts, tail.version))
    for found in (advance(tail, hand.log), tail_of(hand)):
        assert found.entry.kind == "carry"
        assert found.commit.version == 3
        assert found.counts == Counts(rows=10, total=20)


@pytest.mark.parametrize(("operation", "removes", "total"), [("WRITE", 0, 30), ("WRITE", 1, 20), ("UPDATE", 1, 20)])
def test_a_redrive_counts_rows_that_it_adds_and_none_that_it_marks_or_leaves(
    hand: HandLog, operation: str, removes: int, total: int
) -> None:
    hand.batch(TWO)
    redrive = TWO.with_new_id(kind="redrive", counts=tail_of(hand).counts)
    hand.commit(operation, adds=1, removes=removes, note=redrive)
    assert tail_of(hand).counts == Counts(rows=10, total=total)


@pytest.mark.parametrize(
    ("operation", "adds", "removes"), [("DELETE", 0, 1), ("WRITE", 1, 1), ("MERGE", 1, 1), ("TRUNCATE", 0, 2)]
)
def test_rows_removed_after_the_last_entry_are_refused(hand: HandLog, operation: str, adds: int, removes: int) -> None:
    hand.commit(operation, adds=adds, removes=removes)
    with pytest.raises(TableChanged, match=rf"version 2 \({operation}\)"):
        refuse_foreign_changes(tail_of(hand), hand.log)


def test_a_table_replaced_by_hand_is_refused(hand: HandLog) -> None:
    hand.commit("CREATE OR REPLACE TABLE AS SELECT", adds=1)
    with pytest.raises(TableChanged):
        refuse_foreign_changes(tail_of(hand), hand.log)


def test_a_restore_is_refused_with_the_range_that_is_gone(hand: HandLog) -> None:
    hand.batch(TWO)
    hand.batch(entry(3, at(9, 9), at(9, 12)))
    hand.commit("RESTORE", adds=0, removes=2, parameters={"version": 1, "timestamp": None})
    with pytest.raises(TableChanged) as refused:
        refuse_foreign_changes(tail_of(hand), hand.log)
    assert "no longer holds orders-0 [5, 9), orders-1 [5, 12)" in str(refused.value)
    assert "--to version:1" in str(refused.value)


def test_a_removal_is_still_refused_when_compaction_followed_it(hand: HandLog) -> None:
    hand.commit("DELETE", removes=1)
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    with pytest.raises(TableChanged):
        refuse_foreign_changes(tail_of(hand), hand.log)


@pytest.mark.parametrize(
    ("operation", "removes", "parameters"), [("DELETE", 1, None), ("RESTORE", 1, {"version": 0, "timestamp": None})]
)
def test_a_removal_that_slipped_in_while_a_batch_was_written_is_not_forgotten(
    hand: HandLog, operation: str, removes: int, parameters: dict[str, object] | None
) -> None:
    """The writer looked at version 1, then somebody removed rows, then the batch was committed after that."""
    tail = tail_of(hand)
    hand.commit(operation, removes=removes, parameters=parameters)
    hand.batch(TWO)
    confirmed = confirm(tail, hand.log, TWO)
    assert confirmed is not None
    with pytest.raises(TableChanged, match="version 2"):
        refuse_foreign_changes(confirmed, hand.log)
    with pytest.raises(TableChanged, match="version 2"):  # and a start finds it, too
        refuse_foreign_changes(tail_of(hand), hand.log)


def test_an_append_that_slipped_in_while_a_batch_was_written_is_reported(hand: HandLog) -> None:
    tail = tail_of(hand)
    hand.commit("WRITE", adds=1)
    hand.batch(TWO)
    confirmed = confirm(tail, hand.log, TWO)
    assert confirmed is not None
    assert [commit.version for commit in refuse_foreign_changes(confirmed, hand.log)] == [2]


def test_a_log_that_was_cut_behind_the_tail_is_refused(hand: HandLog) -> None:
    """The folder was replaced by an older copy under a running query."""
    hand.batch(TWO)
    tail = tail_of(hand)
    hand.path(2).unlink()
    with pytest.raises(TableChanged):
        advance(tail, hand.log)


def test_a_batch_committed_twice_is_refused(hand: HandLog) -> None:
    """Two writers without a common lock: the rows are there twice."""
    hand.batch(TWO)
    tail = tail_of(hand)
    hand.batch(TWO)
    with pytest.raises(TableChanged):
        refuse_foreign_changes(advance(tail, hand.log), hand.log)


def test_an_entry_of_a_later_format_is_refused_not_overlooked(hand: HandLog) -> None:
    """A newer Penstock wrote it: to go on from the entry before would read everything since then twice."""
    from penstock.errors import Terminal
    from penstock.ledger.entry import dump

    hand.commit("WRITE", adds=1, note=dump(TWO).replace('"penstock":1', '"penstock":2'))
    with pytest.raises(Terminal):
        read_head(hand.log)


def test_confirming_finds_the_entry_only_after_the_tail(hand: HandLog) -> None:
    tail = tail_of(hand)
    assert confirm(tail, hand.log, ONE) is None
    assert confirm(tail, hand.log, TWO) is None
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    hand.batch(TWO)
    confirmed = confirm(tail, hand.log, TWO)
    assert confirmed is not None
    assert confirmed.commit.version == 3


def test_the_position_at_a_version_is_that_of_the_last_entry_before_it(hand: HandLog) -> None:
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    hand.batch(TWO)
    assert position_at(hand.log, 2) == ONE
    assert position_at(hand.log, 3) == TWO
    hand.path(1).unlink()
    assert position_at(hand.log, 2) is None


@pytest.mark.parametrize("kind", ["carry", "redrive", "forget"])
def test_an_entry_beside_the_batches_does_not_take_the_position_back(hand: HandLog, kind: Kind) -> None:
    """Its writer, on a store without locks, had not seen the batch that was committed just before."""
    before = tail_of(hand)
    hand.batch(TWO)
    hand.commit("OPTIMIZE", adds=1, removes=2, change=False)
    stale = entry(1, at(0, 0), at(5, 5), kind=kind, seen=1)
    hand.commit("WRITE", adds=1, note=stale)
    for tail in (tail_of(hand), advance(before, hand.log)):
        assert (tail.entry, tail.commit.version, tail.version) == (TWO, 2, 4)
        assert not refuse_foreign_changes(tail, hand.log)
    assert position_at(hand.log, 4) == TWO
    for tail in (tail_of(hand), before):
        refuse_gap(tail, hand.log)
    assert not read_chain(hand.log, 4, lambda _: None).broken
    three = entry(3, at(9, 9), at(12, 9), seen=4)
    hand.batch(three)
    assert tail_of(hand).entry == three
    refuse_gap(tail_of(hand), hand.log)
    hand.commit("WRITE", note=entry(3, at(9, 9), at(12, 9), kind=kind, seen=5))
    assert (tail_of(hand).entry.kind, tail_of(hand).commit.version) == (kind, 6)


def test_an_entry_with_the_number_of_another_is_not_confirmed_by_that(hand: HandLog) -> None:
    tail = tail_of(hand)
    hand.batch(replace(TWO, id="a"))
    assert confirm(tail, hand.log, replace(TWO, id="b")) is None
    with pytest.raises(Conflict, match=r"batch 1\.2 in version 2"):
        must_confirm(tail, hand.log, replace(TWO, id="b"))
    assert must_confirm(tail, hand.log, replace(TWO, id="a")).entry.id == "a"
    hand.commit("WRITE", note=entry(0, at(9, 9), at(9, 9), kind="open", generation=2))
    with pytest.raises(Fenced):
        must_confirm(tail, hand.log, replace(TWO, id="b"))


def test_of_several_entries_that_came_first_the_first_is_named(hand: HandLog) -> None:
    """The commit that took the place of ours, and the one that opened the generation; not what came beside or later."""
    tail, ours = tail_of(hand), replace(TWO, id="b")
    hand.commit("WRITE", note=entry(1, at(0, 0), at(5, 5), kind="redrive", seen=1))
    hand.batch(replace(TWO, id="a"))
    hand.batch(entry(3, at(9, 9), at(12, 9)))
    with pytest.raises(Conflict) as conflict:
        must_confirm(tail, hand.log, ours)
    assert conflict.value.message.endswith("batch 1.2 in version 3")
    hand.commit("WRITE", note=entry(0, at(9, 9), at(9, 9), kind="open", generation=2))
    hand.batch(entry(1, at(9, 9), at(12, 9), generation=2))
    hand.commit("WRITE", note=entry(3, at(9, 9), at(12, 9), kind="carry", seen=4))
    with pytest.raises(Fenced) as fenced:
        must_confirm(tail, hand.log, ours)
    assert fenced.value.message.endswith("generation 2 in version 5")
    hand.commit("WRITE", note=entry(1, at(0, 0), at(5, 5), kind="redrive", seen=1))
    with pytest.raises(Fenced):
        must_confirm(tail, hand.log, ours)


def test_a_commit_that_nobody_replaced_and_that_is_not_there_breaks_the_chain(hand: HandLog) -> None:
    with pytest.raises(ChainBroken, match="the log does not hold it"):
        must_confirm(tail_of(hand), hand.log, TWO)
