"""Which records make a batch fail: found by halves, in few runs."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from penstock.tables.failing_rows import (
    FailTogether,
    Failure,
    TooManyFailures,
    failure_of_exception,
    failure_of_traceback,
    find_failing,
    is_committed,
)
from tests.unit.hand_ledgers import HandLog, at, entry

SEED = 1811


class Runs:
    """Records of which some fail, each by itself, or `sums` that fail together."""

    def __init__(self, bad: set[int], together: tuple[int, int] | None = None) -> None:
        self.bad, self.together, self.count = bad, together, 0

    def __call__(self, first: int, end: int) -> Failure | None:
        self.count += 1
        for number in sorted(self.bad):
            if first <= number < end:
                return Failure("X", f"record {number}")
        if self.together is not None and first <= self.together[0] and self.together[1] < end:
            return Failure("SUM", "overflow")
        return None


def test_exactly_the_failing_records_are_found_with_their_own_errors_in_about_log_n_runs_each() -> None:
    chance = random.Random(SEED)
    for _ in range(300):
        count = chance.randint(1, 5000)
        bad = set(chance.sample(range(count), chance.randint(1, min(count, 12))))
        runs = Runs(bad)
        failure = runs(0, count)
        assert failure is not None
        found = find_failing(count, runs, failure, 100)
        assert [one.number for one in found] == sorted(bad)
        assert all(one.failure.message == f"record {one.number}" for one in found)
        assert runs.count <= 2 * len(bad) * (math.ceil(math.log2(count + 1)) + 2)


def test_more_failing_records_than_allowed_end_the_search_with_the_first_one() -> None:
    runs = Runs(set(range(10_000)))
    with pytest.raises(TooManyFailures) as many:
        find_failing(10_000, runs, Failure("X", ""), 100)
    assert many.value.failing[0].number == 0 and runs.count < 400
    assert len(find_failing(10, Runs({3, 4}), Failure("X", ""), 2)) == 2


def test_records_that_fail_only_together_are_told_as_the_smallest_range_that_fails() -> None:
    chance = random.Random(SEED)
    for _ in range(100):
        count = chance.randint(2, 3000)
        first, last = sorted(chance.sample(range(count), 2))
        with pytest.raises(FailTogether) as some:
            find_failing(count, Runs(set(), (first, last)), Failure("SUM", ""), 100)
        assert (some.value.first, some.value.end) == (first, last + 1)


def test_a_traceback_is_told_by_its_last_line_and_the_frames_of_the_users_own_files() -> None:
    text = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/lib/python3.11/site-packages/pyspark/worker.py", line 1980, in main
    process()
  File "/project/transforms.py", line 30, in rated
    return rate(h)
  File "/project/helpers.py", line 7, in rate
    return 10 // h
           ~~~^^~~
ZeroDivisionError: integer division or modulo by zero
of: a record
"""
    failure = failure_of_traceback(text)
    assert failure.name == "ZeroDivisionError"
    assert failure.full == (
        "ZeroDivisionError: integer division or modulo by zero "
        "(/project/helpers.py:7; called from /project/transforms.py:30)"
    )


def test_an_exception_of_this_process_names_where_it_was_raised() -> None:
    try:
        int("x")
    except ValueError as error:
        failure = failure_of_exception(error)
    assert failure.name == "ValueError" and failure.full.startswith("ValueError: invalid literal")
    assert "test_isolation_search.py:" in failure.full


def test_the_entry_that_opened_a_generation_is_not_the_commit_of_its_fill(tmp_path: Path) -> None:
    """A fill keeps what the opening entry had seen of the log, and has its number. Taken for committed, a replay of a
    folder with a file that cannot be read would end there instead of setting the file aside."""
    hand = HandLog(tmp_path / "t")
    hand.begin(at(0))
    batch = entry(1, at(0), at(5), seen=0)
    assert not is_committed(hand.log, batch)
    seen = hand.batch(batch)
    assert is_committed(hand.log, batch)
    opened = entry(0, at(5), at(5), generation=2, kind="open", seen=seen)
    hand.commit("WRITE", note=opened)
    fill = opened.next_entry("fill")
    assert fill.key == opened.key and fill.seen == seen
    assert not is_committed(hand.log, fill)
    hand.commit("WRITE", note=fill, adds=1, removes=1)
    assert is_committed(hand.log, fill)
