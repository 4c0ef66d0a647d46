"""How long until what was not read is deleted, by Kafka and by Delta, from numbers written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.doctor.backlog import PartitionBacklog
from penstock.doctor.check import Check
from penstock.doctor.retention import TopicDeadline, UpstreamFacts, compaction, delta_retention, retention
from penstock.doctor.table_log import Pause
from penstock.doctor.topics import TopicRetention, parse_topic_retention

NOW = 1_800_000_000_000
MINUTE, HOUR, DAY = 60, 3600, 86_400


def unread(lag: int = 100, age: float | None = 60, **more: Any) -> PartitionBacklog:
    """A partition with records that were not read, the oldest `age` seconds old."""
    given = {"topic": "orders", "partition": 0, "position": 1000, "earliest": 0, "end": 1000 + lag, **more}
    return PartitionBacklog(**given, oldest_ms=None if age is None else NOW - round(age * 1000))


def found(one: PartitionBacklog | list[PartitionBacklog], keeps: TopicRetention, **reader: Any) -> Check:
    reads = TopicDeadline(
        "bronze.orders", **{"due": 30, "due_text": "the trigger of 30 s", "bootstrap": "b:9092", **reader}
    )
    return retention(reads, one if isinstance(one, list) else [one], {"orders": keeps}, NOW)


def for_seconds(seconds: float) -> TopicRetention:
    return TopicRetention(retention_ms=round(seconds * 1000))


def test_records_that_were_deleted_before_they_were_read_are_red() -> None:
    check = found(unread(earliest=1200, end=1500), for_seconds(7 * DAY))
    assert check.level == "red"
    assert check.found.startswith("200 offsets of orders-0 were deleted before they were read")
    assert "checkpoints reset bronze.orders --to ledger" in check.fix


def test_the_time_left_is_that_of_the_oldest_unread_record() -> None:
    both = [unread(lag=5, age=MINUTE, partition=1), unread(lag=7, age=DAY + HOUR)]
    check = found(both, for_seconds(7 * DAY))
    assert check.level == "ok"
    assert check.found == (
        "12 records not read yet; the oldest, in orders-0, is 1 d 1 h old and kept for 7 d: at the earliest in "
        "5 d 23 h it is deleted"
    )


@pytest.mark.parametrize(
    ("age", "growing", "due", "level"),
    [
        (DAY - 30 * MINUTE, True, 30, "red"),  # under an hour, and it becomes more
        (DAY - 30 * MINUTE, False, 30, "ok"),  # under an hour, but it catches up
        (DAY - 30 * MINUTE, False, 2 * HOUR, "red"),  # less than the SLA
        (DAY - 20, False, 30, "red"),  # less than the trigger
        (DAY + 1, False, 30, "red"),  # any moment
        (DAY - 5 * HOUR, True, 30, "warn"),  # more than half of the time is gone
        (HOUR, True, 30, "ok"),  # it grows, and there is time
    ],
)
def test_red_is_what_goes_before_it_can_be_read(age: float, growing: bool, due: float, level: str) -> None:
    assert (
        found(unread(age=age), for_seconds(DAY), lag_grows_because="they become more" if growing else "", due=due).level
        == level
    )


def test_an_unread_record_of_unknown_age_is_unknown() -> None:
    assert found(unread(age=None), for_seconds(DAY)).level == "unknown"
    partly = found([unread(age=60), unread(age=None, partition=1)], for_seconds(7 * DAY))
    assert (partly.level, partly.found.endswith("of 1 of 2 partitions it is not known")) == ("note", True)


@pytest.mark.parametrize(("keeps", "level"), [(10, "red"), (HOUR, "warn"), (12 * HOUR, "note"), (7 * DAY, "ok")])
def test_what_comes_next_has_the_whole_time(keeps: float, level: str) -> None:
    check = found(unread(lag=0, age=None), for_seconds(keeps), pause=Pause(2 * HOUR, 17))
    assert check.level == level
    if level == "warn":
        assert "longest pause of the table, 2 h (before version 17)" in check.found
        change = "--alter --topic orders --add-config retention.ms=604800000"
        assert check.fix == f"`kafka-configs.sh --bootstrap-server b:9092 {change}`"


def test_a_topic_without_limits_is_fine() -> None:
    assert found(unread(age=300 * DAY), TopicRetention()).level == "ok"


def test_a_limit_by_size_is_estimated_from_what_comes() -> None:
    keeps = TopicRetention(retention_bytes=1 << 30)
    slow = found(unread(position=36_000, end=36_100, per_second=1.0), keeps, lag_grows_because="they become more")
    assert (slow.level, "that is 10 h" in slow.found) == ("note", True)
    fast = found(unread(position=36_000, end=99_000, per_second=100.0), keeps, lag_grows_because="they become more")
    assert (fast.level, "that is 6 min" in fast.found) == ("red", True)
    assert found(unread(), keeps).level == "note"


def test_the_worse_of_two_limits_counts() -> None:
    both = TopicRetention(retention_ms=7 * DAY * 1000, retention_bytes=1 << 30)
    assert (
        found(unread(position=36_000, end=99_000, per_second=100.0), both, lag_grows_because="they become more").level
        == "red"
    )


def test_compaction_takes_deletes_that_were_not_read_in_time() -> None:
    keeps = {"orders": TopicRetention(compacts=True, tombstones_ms=DAY * 1000)}
    (late,) = compaction(TopicDeadline("silver.c", merges=True), [unread(age=2 * DAY)], keeps, NOW)
    assert (late.level, "the oldest unread record is 2 d old" in late.found) == ("warn", True)
    (merged,) = compaction(TopicDeadline("silver.c", merges=True), [unread(age=HOUR)], keeps, NOW)
    (landed,) = compaction(TopicDeadline("bronze.c"), [unread(age=HOUR)], keeps, NOW)
    assert (merged.level, landed.level) == ("ok", "note")
    assert compaction(TopicDeadline("bronze.c"), [unread()], {"orders": TopicRetention()}, NOW) == []


def test_the_settings_of_a_topic_are_read_as_the_broker_means_them() -> None:
    usual = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
    assert parse_topic_retention(usual) == TopicRetention(retention_ms=604_800_000, tombstones_ms=DAY * 1000)
    compacted = {"cleanup.policy": "compact", "retention.ms": "1000", "delete.retention.ms": "5000"}
    assert parse_topic_retention(compacted) == TopicRetention(
        compacts=True, tombstones_ms=5000
    )  # such a topic does not go by age
    both = parse_topic_retention({"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "77"})
    assert (both.compacts, both.retention_ms, both.retention_bytes) == (True, 1000, 77)
    assert parse_topic_retention({"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}).by_broker
    assert parse_topic_retention({"retention.ms": "nonsense"}).retention_ms is None


def test_settings_that_a_broker_leaves_out_have_the_defaults_of_kafka() -> None:
    assert parse_topic_retention({}) == TopicRetention(retention_ms=7 * DAY * 1000, tombstones_ms=DAY * 1000)
    assert parse_topic_retention({"delete.retention.ms": "0"}).tombstones_ms == 0
    assert parse_topic_retention({"delete.retention.ms": "-1"}).tombstones_ms is None


def test_deletes_that_are_kept_for_ever_are_never_late() -> None:
    keeps = {"orders": TopicRetention(compacts=True, tombstones_ms=None), "others": TopicRetention(compacts=True)}
    (merged,) = compaction(TopicDeadline("silver.c", merges=True), [unread(age=400 * DAY)], keeps, NOW)
    assert merged.level == "ok"
    both = [unread(age=2 * DAY), unread(age=HOUR, topic="others")]
    (fresh,) = compaction(TopicDeadline("silver.c", merges=True), both, keeps, NOW)
    assert fresh.level == "ok"


def upstream(age: float | None = None, **more: Any) -> UpstreamFacts:
    given = {"log_kept": 30.0 * DAY, "files_kept": 7.0 * DAY, "lag": 3 if age else 0, **more}
    return UpstreamFacts("bronze.orders", oldest_ms=None if age is None else NOW - round(age * 1000), **given)


@pytest.mark.parametrize(
    ("age", "level"),
    [(None, "ok"), (HOUR, "ok"), (4 * DAY, "warn"), (8 * DAY, "warn"), (31 * DAY, "red")],
)
def test_unread_commits_are_held_against_both_retentions(age: float | None, level: str) -> None:
    check = delta_retention("silver.orders", upstream(age), None, NOW)
    assert (check.id, check.subject, check.level) == ("delta.retention", "silver.orders", level)


def test_commits_that_are_gone_are_red_with_their_versions() -> None:
    check = delta_retention("silver.orders", upstream(HOUR, lost=(7, 11)), None, NOW)
    assert check.level == "red"
    assert "versions 7 to 11 of bronze.orders were not read" in check.found


def test_a_pause_that_was_longer_than_the_retention_may_come_again() -> None:
    check = delta_retention("silver.orders", upstream(), Pause(9 * DAY, 40), NOW)
    assert (check.level, "9 d (before version 40)" in check.found) == ("warn", True)
    assert "interval 18 days" in check.fix


def test_a_log_that_is_never_cleaned_up_leaves_the_files() -> None:
    check = delta_retention("silver.orders", upstream(40 * DAY, log_kept=None), None, NOW)
    assert (check.level, "its log for ever" in check.found) == ("warn", True)


def test_an_upstream_that_cannot_be_read_is_unknown() -> None:
    check = delta_retention("silver.orders", UpstreamFacts("bronze.orders", unknown="it does not exist"), None, NOW)
    assert (check.level, check.found) == ("unknown", "it does not exist")
