"""The chain check: every verdict."""

from __future__ import annotations

import pytest

from penstock.errors import ChainBroken, Fenced
from penstock.ledger.head import Verdict, check
from tests.unit.hand_ledgers import at, entry, genesis

LAST = entry(4, at(10, 20), at(15, 20))


def test_a_batch_that_begins_where_the_last_one_ended_is_written() -> None:
    assert check(LAST, 1, 5, (at(15, 20),), (at(18, 22),)) is Verdict.WRITE


def test_the_first_batch_after_genesis_is_1() -> None:
    assert check(genesis(at(0, 0)), 1, 1, (at(0, 0),), (at(3, 3),)) is Verdict.WRITE
    with pytest.raises(ChainBroken):
        check(genesis(at(0, 0)), 1, 2, (at(0, 0),), (at(3, 3),))


def test_the_last_batch_again_with_the_same_range_is_a_retry() -> None:
    assert check(LAST, 1, 4, (at(10, 20),), (at(15, 20),)) is Verdict.RETRY


def test_the_first_batch_after_a_carried_entry_follows_it() -> None:
    carried = LAST.carry_entry(LAST.counts, 9)
    assert check(carried, 1, 5, (at(15, 20),), (at(18, 22),)) is Verdict.WRITE
    assert check(carried, 1, 4, (at(10, 20),), (at(15, 20),)) is Verdict.RETRY


def test_the_order_of_partitions_in_a_position_changes_no_verdict() -> None:
    turned = '{"orders":{"1":20,"0":15}}'
    assert check(LAST, 1, 5, (turned,), (at(18, 22),)) is Verdict.WRITE
    assert check(LAST, 1, 4, ('{"orders":{"1":20,"0":10}}',), (turned,)) is Verdict.RETRY


def test_an_entry_of_a_higher_generation_fences() -> None:
    opened = entry(0, at(15, 20), at(0, 0), generation=2, kind="open")
    with pytest.raises(Fenced, match="generation 1 was replaced by generation 2"):
        check(opened, 1, 5, (at(15, 20),), (at(18, 22),))


@pytest.mark.parametrize(
    ("what", "generation", "batch", "before", "after"),
    [
        ("a gap in the offsets", 1, 5, at(16, 20), at(18, 22)),
        ("an overlap", 1, 5, at(14, 20), at(18, 22)),
        ("a gap in the numbers", 1, 6, at(15, 20), at(18, 22)),
        ("an old number with the right range", 1, 3, at(15, 20), at(18, 22)),
        ("the same number at another end", 1, 4, at(10, 20), at(16, 20)),
        ("the same number from another start", 1, 4, at(9, 20), at(15, 20)),
        ("the right start under the last number", 1, 4, at(15, 20), at(18, 22)),
        ("a partition lost from the start", 1, 5, at(15), at(18)),
        ("a partition more at the start", 1, 5, at(15, 20, 7), at(18, 22, 9)),
        ("another topic", 1, 5, at(15, 20, topic="refunds"), at(18, 22, topic="refunds")),
        ("the whole topic again", 1, 1, at(0, 0), at(15, 20)),
        ("a generation that was never opened", 2, 5, at(15, 20), at(18, 22)),
    ],
)
def test_anything_else_is_refused(what: str, generation: int, batch: int, before: str, after: str) -> None:
    with pytest.raises(ChainBroken) as refused:
        check(LAST, generation, batch, (before,), (after,))
    assert "nothing was written" in str(refused.value), what


def test_another_number_of_sources_is_refused() -> None:
    with pytest.raises(ChainBroken):
        check(LAST, 1, 5, (at(15, 20), at(0)), (at(18, 22), at(1)))
    with pytest.raises(ChainBroken):
        check(LAST, 1, 5, (), ())
