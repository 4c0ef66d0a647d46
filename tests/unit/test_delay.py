"""Growing delays, and slots of many tables."""

from __future__ import annotations

from penstock.runtime.context import LONGEST, SLOT, Backoff, slot_delay


def test_delays_grow_to_a_minute_and_begin_again_after_a_success() -> None:
    backoff = Backoff()
    delays = [backoff.next() for _ in range(12)]
    for expected, delay in zip([1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60], delays, strict=True):
        assert expected <= delay <= expected * 1.2
    assert backoff.tries == 12
    backoff.reset()
    assert backoff.next() <= 1.2


def test_a_delay_never_overflows() -> None:
    backoff = Backoff()
    backoff.tries = 100_000
    assert backoff.next() <= LONGEST * 1.2


def test_tables_of_one_trigger_begin_one_after_the_other() -> None:
    delays = [slot_delay(index, 100, 30, now=3000.0) for index in range(100)]
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert len(set(delays)) == 100
    assert max(delays) <= 10  # a third of the interval


def test_a_few_tables_wait_no_longer_than_a_batch_takes() -> None:
    assert slot_delay(1, 2, 30, now=3000.0) == SLOT


def test_a_batch_later_than_its_slot_does_not_wait() -> None:
    assert slot_delay(5, 10, 30, now=3004.0) == 0


def test_short_triggers_and_single_tables_never_wait() -> None:
    assert slot_delay(3, 10, 1, now=3000.0) == 0
    assert slot_delay(0, 1, 30, now=3000.0) == 0
