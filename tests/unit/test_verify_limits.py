"""What `verify` counts beyond what it lists, and when it stops to wait for the broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

from penstock.kafka import gaps
from penstock.kafka.gaps import _PartitionGaps, _read
from penstock.ledger.spans import Spans
from penstock.verify.recompute import diff as diffs
from penstock.verify.recompute.diff import DifferingRows, KeyDiff, collect_differences
from penstock.verify.recompute.merged import _unproven, add_doubled
from penstock.verify.report import COLLECTED, Differing, Proof


class Rows:
    """As much of a DataFrame as collecting differences asks for."""

    def __init__(self, rows: list[tuple[str, ...]]) -> None:
        self.rows = rows

    def limit(self, number: int) -> Rows:
        return Rows(self.rows[:number])

    def selectExpr(self, *columns: str) -> Rows:
        return self

    def collect(self) -> list[tuple[str, ...]]:
        return self.rows

    def count(self) -> int:
        return len(self.rows)


def doubled(count: int, *names: str) -> DifferingRows:
    return DifferingRows(names, count, tuple(keyed("doubled", *names, number=n) for n in range(min(count, COLLECTED))))


def keyed(kind: Any, *names: str, number: int = 0) -> Differing:
    return Differing(kind, dict.fromkeys(names, str(number)))


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 1000])
def test_all_differences_are_counted_and_only_the_first_listed(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diffs, "COLLECTED", 3)
    frame: Any = Rows([(str(number), "x") for number in range(rows)])
    differences = collect_differences("missing", frame, {"id": "CAST(id AS STRING)", "_sequence": "CAST(s AS STRING)"})
    assert (differences.names, differences.count) == (("id", "_sequence"), rows)
    assert differences.listed == tuple(
        Differing("missing", {"id": str(number), "_sequence": "x"}) for number in range(min(rows, 3))
    )


def test_doubled_keys_are_counted_beyond_those_that_are_listed() -> None:
    diff = add_doubled(KeyDiff(100, 0, 0), [doubled(COLLECTED + 5, "id")], ["id"])
    assert diff.differing == COLLECTED + 5
    assert len(diff.differences) == COLLECTED
    proof = _unproven(Proof("merge", "", "", "not made", ""), [doubled(COLLECTED + 5, "id")], "gone")
    assert (proof.outcome, proof.differing, len(proof.differences)) == ("differs", COLLECTED + 5, COLLECTED)
    assert proof.said == f"{COLLECTED + 5:,} keys are there more than once"


def test_doubled_keys_of_the_sample_are_counted_once() -> None:
    known = KeyDiff(100, 3, 0, differences=(keyed("doubled", "id"), keyed("extra", "id", number=7)), doubled=2)
    diff = add_doubled(known, [doubled(5, "id"), doubled(4, "id", "_sequence")], ["id"])
    assert diff.differing == 3 + (5 - 2) + 4
    assert [item.kind for item in diff.differences[:2]] == ["doubled", "extra"]
    assert len(diff.differences) == 2 + 4 + 4
    assert add_doubled(known, [DifferingRows(("id", "_sequence"))], ["id"]) == known


class Message:
    def __init__(self, partition: int, offset: int) -> None:
        self._partition, self._offset = partition, offset

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> None:
        return None


class BusyBroker:
    """Partition 0 has a record for every call and cannot be moved in; partition 1 never answers."""

    def __init__(self) -> None:
        self.assigned = {0, 1}
        self.offset = 0
        self.calls = 0

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        self.calls += 1
        assert self.calls < 100_000, "it waits without an end"
        if 0 not in self.assigned:
            return []
        self.offset += 1
        return [Message(0, self.offset)]

    def seek(self, place: TopicPartition) -> None:
        raise KafkaException("no seek")

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self.assigned -= {place.partition for place in places}


def test_a_partition_that_cannot_be_moved_in_does_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "JUMP", 10)
    keys = [("orders", 0), ("orders", 1)]
    open_gaps = {
        keys[0]: _PartitionGaps(keys[0], Spans([(0, 1), (1000, 1001)])),
        keys[1]: _PartitionGaps(keys[1], Spans([(5, 6)])),
    }
    consumer = BusyBroker()
    _read(consumer, open_gaps, lambda _: None, patience=0.05)
    answers = {key: partition_gaps.answer() for key, partition_gaps in open_gaps.items()}
    assert consumer.assigned == {1}
    assert answers[keys[0]].reason == "no seek"
    assert (list(answers[keys[0]].empty), list(answers[keys[0]].unverifiable)) == ([(0, 1)], [(1000, 1001)])
    assert answers[keys[1]].reason == "the broker gave no answer for 0 s"
    assert list(answers[keys[1]].unverifiable) == [(5, 6)]
