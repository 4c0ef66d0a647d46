"""`verify` against a real broker: what Kafka left empty is told from what was lost, to the offset."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.bronze_table import BronzeTable, Where, table_plan

from penstock.engine.kafka.admin import Admin
from penstock.engine.store import LocalStore
from penstock.errors import BrokerAway
from penstock.ops.verify import broker_gaps
from penstock.ops.verify.report import Report
from penstock.ops.verify.table import verify
from penstock.plan.model import TablePlan

Offsets = dict[str, dict[int, int]]


@pytest.fixture
def lake(tmp_path: Path, broker: Any) -> Callable[..., BronzeTable]:
    """A table over topics, begun at their first offsets."""

    def make(*topics: str, start: Offsets | None = None) -> BronzeTable:
        plan = table_plan(str(tmp_path / "lake" / "orders"), bootstrap=broker.bootstrap)
        plan = replace(plan, source=replace(plan.source, topics=topics))
        admin = Admin(plan.source.cluster)
        found = admin.describe(topics)
        ids = {name: topic.id for name, topic in found.items()}
        return BronzeTable(plan, ids).genesis(start or first_offsets(admin, found))

    return make


def first_offsets(admin: Admin, topics: dict[str, Any]) -> Offsets:
    """A topic that was made a moment ago may have no leader yet."""
    for _ in range(50):
        try:
            return admin.earliest(topics)
        except BrokerAway:
            time.sleep(0.1)
    return admin.earliest(topics)


def ends(plan: TablePlan) -> Offsets:
    admin = Admin(plan.source.cluster)
    return admin.latest(admin.describe(plan.source.topics))


def visible(plan: TablePlan) -> list[Where]:
    """The records that a reader of committed ones gets."""
    settings = {
        "bootstrap.servers": plan.source.cluster.bootstrap,
        "group.id": "test",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    parts = [(t, p) for t, partitions in ends(plan).items() for p in partitions]
    consumer.assign([TopicPartition(t, p, 0) for t, p in parts])
    found: list[Where] = []
    left = len(parts)
    while left:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is None:
            found.append((message.topic(), message.partition(), message.offset()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            left -= 1
    consumer.close()
    return found


def produce(plan: TablePlan, topic: str, values: Iterable[str], partition: int = 0, key: str | None = None) -> None:
    producer = Producer({"bootstrap.servers": plan.source.cluster.bootstrap, "linger.ms": 5})
    for value in values:
        producer.produce(topic, value, key, partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


def transactions(plan: TablePlan, topic: str, count: int, records: int, *, abort: Callable[[int], bool]) -> None:
    settings = {"bootstrap.servers": plan.source.cluster.bootstrap, "transactional.id": f"t-{topic}"}
    producer = Producer(settings)
    producer.init_transactions(30)
    for number in range(count):
        producer.begin_transaction()
        for record in range(records):
            producer.produce(topic, f"{number}-{record}", partition=number % 2)
        producer.flush(30)
        producer.abort_transaction(30) if abort(number) else producer.commit_transaction(30)


def checked(table: BronzeTable) -> Report:
    (report,) = verify([table.plan], LocalStore())
    return report


def lost(report: Report) -> dict[tuple[str, int], list[tuple[int, int]]]:
    return {one.key: list(one.lost) for one in report.partitions if one.lost}


def test_markers_and_aborted_transactions_are_kafkas_own_gaps(lake: Any, topic: Any) -> None:
    name = topic(partitions=2)
    table = lake(name)
    transactions(table.plan, name, 12, 5, abort=lambda number: number % 3 == 2)
    records = visible(table.plan)
    table.batch(ends(table.plan), records)
    report = checked(table)
    assert report.verdict == "complete"
    assert report.rows == len(records) == 40
    assert sum(one.empty.size for one in report.partitions) == 12 + 4 * 5  # a marker each, and the aborted records
    assert report.behind == 0


def test_a_record_missing_among_transactions_is_named(lake: Any, topic: Any) -> None:
    name = topic(partitions=2)
    table = lake(name)
    transactions(table.plan, name, 12, 5, abort=lambda number: number % 3 == 2)
    records = visible(table.plan)
    gone = [where for where in records if where[1] == 1][7]
    table.batch(ends(table.plan), [where for where in records if where != gone])
    report = checked(table)
    assert report.verdict == "incomplete"
    assert lost(report) == {(name, 1): [(gone[2], gone[2] + 1)]}
    assert not any(one.unverifiable for one in report.partitions)


def test_the_end_of_a_transaction_at_the_end_of_a_partition_is_empty(lake: Any, topic: Any) -> None:
    name = topic(partitions=2)
    table = lake(name)
    transactions(table.plan, name, 1, 3, abort=lambda _: False)
    table.batch(ends(table.plan), visible(table.plan))
    report = checked(table)
    assert report.verdict == "complete"
    assert [list(one.empty) for one in report.partitions] == [[(3, 4)], []]


def test_each_kind_of_mistake_is_named_exactly(lake: Any, topic: Any) -> None:
    name = topic(partitions=3)
    table = lake(name)
    for partition in range(3):
        produce(table.plan, name, (str(i) for i in range(200)), partition)
    good = [(name, p, o) for p in range(3) for o in range(200)]
    rows = [where for where in good if where[1] != 2 and where != (name, 0, 150)]  # a partition, and one record
    rows += [(name, 1, 17), (name, 1, 17), (name, 0, 300), ("strange", 0, 0)]
    table.batch(ends(table.plan), rows)
    report = checked(table)
    by_key = {one.key: one for one in report.partitions}
    assert report.verdict == "incomplete"
    assert lost(report) == {(name, 0): [(150, 151)], (name, 2): [(0, 200)]}
    assert [(d.start, d.end, d.times) for d in by_key[name, 1].doubled] == [(17, 18, 3)]
    assert list(by_key[name, 0].unexpected) == [(300, 301)]
    assert list(by_key["strange", 0].unexpected) == [(0, 1)]


def test_gaps_far_apart_are_jumped_to(lake: Any, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_gaps, "JUMP", 50)
    name = topic(partitions=2)
    table = lake(name)
    for partition in range(2):
        produce(table.plan, name, (str(i) for i in range(5000)), partition)
    without = {3, 4, 40, 1000, 2500, 2501, 4999}
    table.batch(ends(table.plan), [(name, p, o) for p in range(2) for o in range(5000) if o not in without])
    expected = [(3, 5), (40, 41), (1000, 1001), (2500, 2502), (4999, 5000)]
    assert lost(checked(table)) == {(name, 0): expected, (name, 1): expected}


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
    assert report.verdict == "unverifiable"
    assert list(report.partitions[0].unverifiable) == [(10, 11)]
    assert not report.ok()
    assert report.ok(allow_unverifiable=True)
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
    assert report.verdict == "incomplete"
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
    assert report.verdict == "unverifiable"
    assert report.notes == [f"topic {name} no longer exists at the broker"]
    until = time.monotonic() + 20
    while not broker.create_topic(name, 1) and time.monotonic() < until:
        time.sleep(0.2)
    produce(table.plan, name, (str(i) for i in range(50)))
    report = checked(table)
    assert report.verdict == "incomplete"
    assert "deleted and made again" in report.problems[0]
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
    assert report.verdict == "incomplete"
    assert [(d.start, d.end, d.times, d.expected) for d in report.partitions[0].short] == [(5, 6, 1, 2)]
    assert not report.partitions[0].doubled


def test_a_position_beyond_the_end_of_the_topic_is_a_problem(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(10)))
    table.batch({name: {0: 15}})
    report = checked(table)
    assert report.verdict == "incomplete"
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


def test_what_is_not_yet_landed_is_shown_and_is_no_mistake(lake: Any, topic: Any) -> None:
    name = topic(partitions=2)
    table = lake(name)
    for partition in range(2):
        produce(table.plan, name, (str(i) for i in range(100)), partition)
    table.batch({name: {0: 100, 1: 60}})
    report = checked(table)
    assert report.verdict == "complete"
    assert report.behind == 40


def test_a_stretch_that_ages_out_while_it_is_looked_up_is_unverifiable(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    produce(table.plan, name, (str(i) for i in range(100)))
    admin = AdminClient({"bootstrap.servers": table.plan.source.cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 50)]).values():
        future.result(20)
    found = broker_gaps.look_up(table.plan.source, {(name, 0): broker_gaps.Spans([(10, 20), (70, 72)])})
    assert list(found[name, 0].unverifiable) == [(10, 20), (70, 72)]
    assert found[name, 0].reason


def test_a_broker_that_falls_silent_ends_the_lookup(lake: Any, topic: Any) -> None:
    name = topic(partitions=1)
    table = lake(name)
    silent = replace(table.plan.source, cluster=replace(table.plan.source.cluster, bootstrap="127.0.0.1:1"))
    found = broker_gaps.look_up(silent, {(name, 0): broker_gaps.Spans([(1, 4)])}, patience=1.5)
    assert list(found[name, 0].unverifiable) == [(1, 4)]
    assert "no answer" in (found[name, 0].reason or "")
