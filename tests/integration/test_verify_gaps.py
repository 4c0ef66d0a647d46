"""`verify` against a real broker: what Kafka left empty is told from what was lost, to the offset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.kafka import gaps
from tests.bronze_table import BronzeTable
from tests.integration.topic_tables import (
    begun,
    checked,
    ends,
    lost,
    produce,
    transactions,
    visible,
)


@pytest.fixture
def lake(tmp_path: Path, broker: Any) -> Callable[..., BronzeTable]:
    return partial(begun, tmp_path, broker.bootstrap)


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
    assert report.verdict == "wrong"
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
    assert report.verdict == "wrong"
    assert lost(report) == {(name, 0): [(150, 151)], (name, 2): [(0, 200)]}
    assert [(d.start, d.end, d.times) for d in by_key[name, 1].doubled] == [(17, 18, 3)]
    assert list(by_key[name, 0].unexpected) == [(300, 301)]
    assert list(by_key["strange", 0].unexpected) == [(0, 1)]


def test_gaps_far_apart_are_jumped_to(lake: Any, topic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "JUMP", 50)
    name = topic(partitions=2)
    table = lake(name)
    for partition in range(2):
        produce(table.plan, name, (str(i) for i in range(5000)), partition)
    without = {3, 4, 40, 1000, 2500, 2501, 4999}
    table.batch(ends(table.plan), [(name, p, o) for p in range(2) for o in range(5000) if o not in without])
    expected = [(3, 5), (40, 41), (1000, 1001), (2500, 2502), (4999, 5000)]
    assert lost(checked(table)) == {(name, 0): expected, (name, 1): expected}
