"""`verify` against a real broker that no longer has what was landed: compaction, retention, topics made again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from penstock.kafka import gaps
from penstock.kafka.client import Admin
from tests.bronze_table import BronzeTable
from tests.integration.topic_tables import (
    begun,
    checked,
    ends,
    lost,
    produce,
    visible,
)


@pytest.fixture
def lake(tmp_path: Path, broker: Any) -> Callable[..., BronzeTable]:
    return partial(begun, tmp_path, broker.bootstrap)


def test_compaction_leaves_gaps_that_are_no_loss(lake: Any, topic: Any) -> None:
    name = topic(
        partitions=1,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    table = lake(name)
    for round_ in range(6):
        produce(table.plan, name, (f"{round_}" for _ in range(20)), key="same")
        time.sleep(0.3)
    produced = ends(table.plan)[name][0]
    until = time.monotonic() + 60
    while len(visible(table.plan)) > produced / 2 and time.monotonic() < until:
        time.sleep(0.5)
        produce(table.plan, name, ["more"], key="other")
    records = visible(table.plan)
    table.batch(ends(table.plan), records)
    report = checked(table)
    assert report.verdict == "complete"
    assert report.partitions[0].empty.size == ends(table.plan)[name][0] - len(records) > produced / 2


def test_past_retention_a_gap_is_unverifiable_and_no_gap_is_complete(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(100)))
    table.batch({name: {0: 60}}, [(name, 0, o) for o in range(60) if o != 10])
    table.batch({name: {0: 100}})
    admin = AdminClient({"bootstrap.servers": table.plan.source.cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 50)]).values():
        future.result(20)
    report = checked(table)
    assert report.verdict == "partial"
    assert list(report.partitions[0].unverifiable) == [(10, 11)]
    assert not report.ok()
    assert report.ok(allow_partial=True)
    table.append([(name, 0, 10)])  # put back by hand
    assert checked(table).verdict == "complete"


def test_records_that_aged_out_before_they_were_landed_are_a_problem(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(100)))
    table.batch({name: {0: 30}})
    admin = AdminClient({"bootstrap.servers": table.plan.source.cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 50)]).values():
        future.result(20)
    report = checked(table)
    assert report.verdict == "wrong"
    assert report.problems == [f"{name}-0 [30, 50) was removed from Kafka before it was landed (20 offsets)"]


def test_a_topic_made_again_is_a_problem_and_its_gaps_are_unverifiable(lake: Any, topic: Any, broker: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(20)))
    table.batch(ends(table.plan), [(name, 0, o) for o in range(20) if o != 3])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_topics([name]).values():
        future.result(20)
    report = checked(table)
    assert report.verdict == "partial"
    assert report.notes == [f"topic {name} no longer exists at the broker"]
    until = time.monotonic() + 20
    while not broker.create_topic(name, 1) and time.monotonic() < until:
        time.sleep(0.2)
    produce(table.plan, name, (str(i) for i in range(50)))
    report = checked(table)
    assert report.verdict == "wrong"
    assert "deleted and recreated" in report.problems[0]
    assert list(report.partitions[0].unverifiable) == [(3, 4)]
    assert not report.partitions[0].lost


def test_after_a_topic_was_made_again_and_accepted_both_are_expected(lake: Any, topic: Any, broker: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(20)))
    table.batch(ends(table.plan))
    table.ids = {name: "the-id-of-an-older-topic"}
    table.last = replace(table.last, topics=table.ids)
    current = {name: Admin(table.plan.source.cluster).describe([name])[name].id}
    table.ids = current
    table.open({name: {0: 0}}, "reset --to earliest")
    table.batch({name: {0: 20}}, [(name, 0, o) for o in range(20) if o != 5])
    report = checked(table)
    assert report.verdict == "wrong"
    assert [(d.start, d.end, d.times, d.expected) for d in report.partitions[0].short] == [(5, 6, 1, 2)]
    assert not report.partitions[0].doubled


def test_a_position_beyond_the_end_of_the_topic_is_a_problem(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(10)))
    table.batch({name: {0: 15}})
    report = checked(table)
    assert report.verdict == "wrong"
    assert report.problems == [f"{name}-0 ends at 10 at the broker, the table has read up to 15"]


def test_gaps_of_a_topic_that_is_no_longer_read_are_looked_up_too(lake: Any, topic: Any) -> None:
    name, other = topic(partitions=1), topic(partitions=1)
    table = lake(name, other)
    produce(table.plan, name, (str(i) for i in range(10)))
    table.batch({name: {0: 10}}, [(name, 0, o) for o in range(10) if o != 4])
    table.open({other: {0: 0}}, f"no longer read: {name}")
    report = checked(table)
    assert lost(report) == {(name, 0): [(4, 5)]}
    assert report.chain is not None
    assert report.chain.accepted[0].dropped == (name,)


def test_what_is_not_yet_landed_leaves_the_table_behind(lake: Any, topic: Any) -> None:
    name = topic(partitions=2)
    table = lake(name)
    for partition in range(2):
        produce(table.plan, name, (str(i) for i in range(100)), partition)
    table.batch({name: {0: 100, 1: 60}})
    report = checked(table)
    assert (report.verdict, report.behind) == ("behind", 40)
    assert not report.ok() and report.ok(allow_behind=True)


def test_a_stretch_that_ages_out_while_it_is_looked_up_is_unverifiable(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(100)))
    admin = AdminClient({"bootstrap.servers": table.plan.source.cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 50)]).values():
        future.result(20)
    found = gaps.look_up(table.plan.source, {(name, 0): gaps.Spans([(10, 20), (70, 72)])})
    assert list(found[name, 0].unverifiable) == [(10, 20), (70, 72)]
    assert found[name, 0].reason


def test_a_broker_that_falls_silent_ends_the_lookup(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    silent = replace(table.plan.source, cluster=replace(table.plan.source.cluster, bootstrap="127.0.0.1:1"))
    found = gaps.look_up(silent, {(name, 0): gaps.Spans([(1, 4)])}, patience=1.5)
    assert list(found[name, 0].unverifiable) == [(1, 4)]
    assert "no answer" in (found[name, 0].reason or "")
