"""The last entry has to follow the one before it, as far as the log still tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import TableChanged
from penstock.ledger.head import read_head, refuse_gap
from tests.unit.hand_ledgers import HandLog, at, entry


def look(hand: HandLog) -> None:
    tail = read_head(hand.log)
    assert tail is not None
    refuse_gap(tail, hand.log)


@pytest.fixture
def hand(tmp_path: Path) -> HandLog:
    made = HandLog(tmp_path / "orders")
    made.begin(at(0, 0))
    return made


def test_entries_that_follow_each_other_are_fine(hand: HandLog) -> None:
    look(hand)
    one = entry(1, at(0, 0), at(5, 5))
    hand.batch(one)
    look(hand)
    hand.commit("OPTIMIZE", adds=1, removes=1, change=False)
    hand.commit("WRITE", note=one.carry_entry(one.counts, 2))
    look(hand)
    hand.commit("WRITE", note=entry(0, at(5, 5), at(2, 2), generation=2, kind="open"))
    look(hand)
    hand.batch(entry(1, at(2, 2), at(5, 5), generation=2))
    look(hand)


def test_a_batch_written_into_an_older_copy_is_refused(hand: HandLog) -> None:
    hand.batch(entry(1, at(0, 0), at(5, 5)))
    hand.batch(entry(7, at(30, 30), at(35, 35)))
    with pytest.raises(TableChanged, match=r"batch 1\.7 begins at"):
        look(hand)


def test_a_table_made_anew_by_a_batch_is_refused(tmp_path: Path) -> None:
    hand = HandLog(tmp_path / "orders")
    hand.batch(entry(7, at(30, 30), at(35, 35)))
    with pytest.raises(TableChanged, match="there is no entry before it"):
        look(hand)


def test_a_log_whose_beginning_was_cleaned_up_tells_nothing_and_is_fine(hand: HandLog) -> None:
    hand.batch(entry(1, at(0, 0), at(5, 5)))
    hand.batch(entry(2, at(5, 5), at(9, 9)))
    hand.path(0).unlink()
    hand.path(1).unlink()
    look(hand)
