from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise

import pytest

from penstock.ledger.spans import Spans
from penstock.verify.coordinates import Expected, runs


def test_spans_that_touch_or_overlap_become_one() -> None:
    assert list(Spans([(0, 5), (5, 9), (20, 22), (21, 30), (40, 40)])) == [(0, 9), (20, 30)]


def test_spans_may_be_added_in_any_order() -> None:
    assert list(Spans([(20, 30), (0, 5), (4, 21)])) == [(0, 30)]


@pytest.mark.parametrize("seed", range(30))
def test_spans_behave_as_sets_of_offsets(seed: int) -> None:
    random.seed(seed)

    def some() -> tuple[Spans, set[int]]:
        spans, offsets = Spans(), set[int]()
        for _ in range(random.randrange(12)):
            start = random.randrange(60)
            end = start + random.randrange(8)
            spans.add(start, end)
            offsets.update(range(start, end))
        return spans, offsets

    (one, set_one), (other, set_other) = some(), some()
    pairs = ((one | other, set_one | set_other), (one & other, set_one & set_other), (one - other, set_one - set_other))
    for spans, offsets in pairs:
        assert {o for start, end in spans for o in range(start, end)} == offsets
        assert spans.size == len(offsets)
        assert spans == Spans((o, o + 1) for o in sorted(offsets))


@pytest.mark.parametrize("seed", range(30))
def test_the_runs_of_a_bitmap_are_its_ones(seed: int) -> None:
    bits = random.Random(seed).getrandbits(64) if seed else (1 << 64) - 1
    assert [i for start, end in runs(bits) for i in range(start, end)] == [i for i in range(64) if bits >> i & 1]


def test_what_is_read_again_is_expected_twice() -> None:
    expected = Expected()
    for start, end in ((0, 10), (10, 20), (5, 15), (8, 9)):
        expected.add(("orders", 0), start, end, "id")
    assert [list(level) for level in expected.levels["orders", 0]] == [[(0, 20)], [(5, 15)], [(8, 9)]]


def test_what_is_removed_is_expected_one_time_less() -> None:
    expected = Expected()
    for start, end in ((0, 10), (5, 15)):
        expected.add(("orders", 0), start, end, "id")
    expected.remove(("orders", 0), Spans([(0, 7)]))
    assert [list(level) for level in expected.levels["orders", 0]] == [[(5, 15)], [(7, 10)]]


def test_multisets_are_added_as_a_whole() -> None:
    chance = random.Random(4)
    for _ in range(200):
        made, counted = Expected(), Counter[int]()
        for _ in range(chance.randrange(1, 5)):
            given = [Spans((n, n + chance.randrange(4)) for n in sorted(chance.sample(range(40), 6))) for _ in range(2)]
            made.add_all({("t", 0): given})
            counted.update(offset for level in given for span in level for offset in range(*span))
        found = Counter(offset for level in made.levels["t", 0] for span in level for offset in range(*span))
        assert found == counted
        assert all(not (later - earlier) for earlier, later in pairwise(made.levels["t", 0]))


def test_many_spans_cost_no_more_than_their_number() -> None:
    made = Expected()
    began = time.process_time()
    for first in (0, 4):
        made.add_all({("t", 0): [Spans((n, n + 2) for n in range(first, 1_000_000, 8))]})
    assert len(made.levels["t", 0][0]) == 250_000
    assert time.process_time() - began < 10
