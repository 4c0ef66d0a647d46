"""What `verify` makes of offsets that a table lacks, by the kind of its source."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.ledger.position import TopicInfo
from penstock.ledger.spans import GapAnswer, Spans
from penstock.operations.broker import TopicOffsets
from penstock.plan.sources import TopicsSource
from penstock.sources import registry
from penstock.sources.topics import TopicsKind
from penstock.verify.coordinates import Coordinates, compare
from penstock.verify.gaps import explain_gaps
from penstock.verify.ledger_walk import Chain
from penstock.verify.report import Partition, Report

KEY = ("orders", 0)


class GappySource(TopicsSource):
    kind = "gappy"
    leaves_gaps = True


class GappyKind(TopicsKind):
    """A plugin that does what docs/architecture.md asks for, and nothing more."""

    def client(self, source: Any, *, timeout: float) -> Any:
        raise AssertionError("not asked")

    def stream(self, *_: Any) -> Any:
        raise AssertionError("not asked")

    def records(self, *_: Any) -> Any:
        raise AssertionError("not asked")


def verified(source: Any) -> tuple[Report, Partition]:
    """Of offsets 0 to 9 the table lacks 3 and 4, and the source still holds all of them."""
    chain, actual = Chain(0, 1), Coordinates()
    chain.expected.add(KEY, 0, 10, "id-1")
    actual.present[KEY] = Spans([(0, 3), (5, 10)])
    partition = Partition(*KEY, Spans([(0, 10)]), compare(chain.expected, actual)[KEY])
    report = Report("bronze.orders", version=1, chain=chain, partitions=[partition])
    held = TopicOffsets({"orders": TopicInfo("id-1", (0,))}, {"orders": {0: 0}}, {"orders": {0: 10}})
    explain_gaps(source, report, chain, held, lambda _: None)
    return report, partition


def test_gaps_that_a_kind_cannot_explain_are_unverified_and_the_table_is_not_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._BUILT_IN, "gappy", f"{__name__}:GappyKind")
    report, partition = verified(GappySource())
    assert (partition.lost, partition.empty) == (Spans(), Spans())
    assert partition.unverifiable == Spans([(3, 5)]) and "gappy" in partition.reasons[0]
    assert report.verdict == "partial"


def test_a_kind_says_itself_which_offsets_have_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def explain(*_: Any) -> dict[tuple[str, int], GapAnswer]:
        return {KEY: GapAnswer(lost=Spans([(3, 4)]), empty=Spans([(4, 5)]))}

    monkeypatch.setattr(GappyKind, "explain_gaps", explain, raising=False)
    monkeypatch.setitem(registry._BUILT_IN, "gappy", f"{__name__}:GappyKind")
    report, partition = verified(GappySource())
    assert (partition.lost, partition.empty) == (Spans([(3, 4)]), Spans([(4, 5)]))
    assert report.verdict == "wrong"


def test_without_gaps_of_its_own_what_a_table_lacks_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GappySource, "leaves_gaps", False)
    report, partition = verified(GappySource())
    assert partition.lost == Spans([(3, 5)]) and report.verdict == "wrong"
