"""Does a table keep up, from batches and lags written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.doctor.backlog import (
    Backlog,
    Point,
    Runner,
    Trend,
    batches,
    check_trend,
    point,
    sample_batches,
    sla,
    trend_of,
)
from penstock.doctor.table_log import RecentBatch, RecentCommits
from penstock.plan.model import TriggerPlan

NOW = 1_800_000_000_000
EVERY_30S = TriggerPlan("interval", 30.0)
SLA_1H = TriggerPlan("interval", 1200.0, "", 3600.0)


def took(*seconds: float) -> RecentCommits:
    """Batches that took so long, newest first."""
    made = [
        RecentBatch(n, 1, n, NOW - round(s * 1000) - n * 60_000, NOW - n * 60_000, 10, ("{}",), ("{}",))
        for n, s in enumerate(seconds)
    ]
    return RecentCommits(tuple(made), commits=len(made))


def runner(trigger: TriggerPlan = EVERY_30S, *, alive: bool = True) -> Runner:
    return Runner("bronze.orders", trigger, alive, "max_per_trigger: 200000")


def test_batches_that_take_longer_than_the_trigger_are_warned_of() -> None:
    check = batches(runner(), took(45, 44, 45, 46, 300))
    assert check.level == "warn"
    assert check.found == (
        "a batch takes 45 s, the longest of the last 5 took 5 min; the trigger is 30 s, so they run back to back"
    )
    assert "write trigger: 2m" in check.fix


def test_a_single_slow_batch_says_nothing() -> None:
    assert batches(runner(), took(3, 2, 600, 3, 2)).level == "ok"


def test_a_few_batches_are_not_judged() -> None:
    assert batches(runner(), took(45, 46)).level == "ok"


def test_a_batch_that_takes_more_than_a_third_of_the_sla_is_warned_of() -> None:
    check = batches(runner(SLA_1H), took(*[1300] * 5))
    assert (check.level, "a third of the SLA is 20 min" in check.found) == ("warn", True)
    assert batches(runner(SLA_1H), took(*[600] * 5)).level == "ok"


def test_without_an_interval_there_is_nothing_to_hold_a_batch_against() -> None:
    assert batches(runner(TriggerPlan("available-now")), took(*[600] * 5)).level == "ok"
    assert batches(runner(), RecentCommits()).level == "unknown"


@pytest.mark.parametrize(("minutes", "level"), [(61, "red"), (45, "warn"), (30, "ok")])
def test_the_oldest_unread_record_is_held_against_the_sla(minutes: int, level: str) -> None:
    (check,) = sla(runner(SLA_1H), Backlog(5, oldest_ms=NOW - minutes * 60_000), NOW)
    assert check.level == level
    assert "the SLA is 1 h" in check.found


def test_an_sla_without_a_known_lag_is_unknown() -> None:
    (away,) = sla(runner(SLA_1H), Backlog(None, unknown="Kafka does not answer"), NOW)
    (ageless,) = sla(runner(SLA_1H), Backlog(7), NOW)
    (read,) = sla(runner(SLA_1H), Backlog(0), NOW)
    assert (away.level, ageless.level, read.level) == ("unknown", "unknown", "ok")
    assert away.found == "Kafka does not answer"
    assert sla(runner(), Backlog(7), NOW) == []


def lags(*came_and_read: tuple[int, int]) -> Trend:
    """A minute between two of them."""
    found = trend_of([Point(NOW + n * 60_000, came, read) for n, (came, read) in enumerate(came_and_read)], 5.0, 1)
    assert found is not None
    return found


def test_a_table_that_reads_less_than_comes_falls_behind() -> None:
    trend = lags((0, 0), (60_000, 30_000), (120_000, 60_000))
    check = check_trend(runner(), Backlog(61_000, trend=trend))
    assert check.level == "warn"
    assert check.found == (
        "61,000 records behind: 1,000/s records came and 500/s were read over the last 2 min; after a batch 0 records "
        "were left then, and now 60,000"
    )
    assert check.fix.endswith("; raise max_per_trigger: 200000 if batches are full")


def test_a_table_that_catches_up_is_fine_and_says_for_how_long() -> None:
    check = check_trend(runner(), Backlog(8000, trend=lags((60_000, 0), (61_200, 30_000), (62_400, 54_400))))
    assert check.level == "ok"
    assert check.found.endswith("caught up in about 18 s")


def test_who_catches_up_after_a_pause_does_not_fall_behind() -> None:
    assert not lags((0, 0), (90_000, 20_000), (91_000, 60_000)).grows
    assert lags((0, 0), (90_000, 60_000), (180_000, 90_000)).grows


def test_a_lag_that_differs_by_chance_does_not_grow() -> None:
    assert not lags((0, 0), (1000, 990), (2000, 1970)).grows


def test_of_a_table_that_does_not_run_nothing_is_compared() -> None:
    trend = lags((0, 0), (60_000, 30_000), (120_000, 60_000))
    assert check_trend(runner(alive=False), Backlog(61_000, trend=trend)).level == "ok"
    assert check_trend(runner(), Backlog(None, unknown="away")).level == "unknown"
    assert check_trend(runner(), Backlog(9)).found == "9 records behind; too few batches to say more"


def test_first_middle_and_last_batch_tell_the_trend() -> None:
    ten = [replace(one, version=10 - one.version) for one in took(*[1.0] * 10).batches]
    assert [one.version for one in sample_batches(ten)] == [1, 5, 10]
    assert [one.version for one in sample_batches(ten[:2])] == [9, 10]
    assert sample_batches(ten[:1]) == []
    assert trend_of([Point(NOW, 1, 1), Point(NOW, 2, 2)], 1.0, 1) is None


def test_what_was_before_a_stop_is_not_part_of_the_trend() -> None:
    ten = [replace(one, version=10 - one.version) for one in took(*[1.0] * 10).batches]
    ten = [replace(one, committed_ms=one.committed_ms - 7_200_000 * (one.version < 6)) for one in ten]
    assert [one.version for one in sample_batches(ten)] == [6, 8, 10]


def test_what_comes_while_a_batch_runs_is_no_lag() -> None:
    points = [Point(NOW, 0, 0), Point(NOW + 60_000, 1000, 990), Point(NOW + 120_000, 2000, 1700)]
    slow, quick = trend_of(points, 20.0, 1), trend_of(points, 1.0, 1)
    assert slow is not None and quick is not None
    assert (slow.grows, quick.grows) == (False, True)
    few = [Point(NOW, 10, 10), Point(NOW + 60_000, 20, 19), Point(NOW + 120_000, 30, 24)]
    assert not trend_of(few, 0.1, 10).grows  # type: ignore[union-attr]


def test_a_partition_that_is_ahead_does_not_make_up_for_one_that_is_behind() -> None:
    batch = RecentBatch(1, 1, 1, 0, NOW, 0, ("{}",), ('{"orders":{"0":90,"1":10}}',))
    found = point(batch, [("orders", 0), ("orders", 1), ("orders", 2)], {"orders": {0: 50, 1: 50, 2: 5}})
    assert (found.source_end, found.position, found.lag) == (105, 60, 45)
