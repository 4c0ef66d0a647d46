"""Which commits of a table belong to a redrive, and how far back its log is read for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.ledger.delta_log import Commit, DeltaLog
from penstock.ledger.head import LedgerHead, read_head
from penstock.operations import redrive as module
from tests.unit.hand_ledgers import HandLog, at, entry


class CountedLog(DeltaLog):
    """Remembers which versions were read."""

    def __init__(self, log: HandLog) -> None:
        super().__init__(log.log.store, log.uri, log.log.table)
        self.read: list[int] = []

    def commit(self, version: int) -> Commit | None:
        self.read.append(version)
        return super().commit(version)


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    """Versions 0 to 20: the table's creation and 20 batches."""
    hand = HandLog(tmp_path / "orders")
    hand.begin(at(0))
    for number in range(1, 21):
        hand.batch(entry(number, at(number - 1), at(number)))
    return hand


def redriven(log: HandLog, *notes: str) -> None:
    for note in notes:
        log.commit("WRITE", note=replace(entry(20, at(19), at(20), kind="redrive"), note=note))


def head_of(log: HandLog) -> LedgerHead:
    head = read_head(log.log)
    assert head is not None
    return head


def test_a_new_redrive_reads_no_commit_from_before_it(log: HandLog) -> None:
    counted = CountedLog(log)
    assert module._redrive_commits(counted, head_of(log), "new", 20) == []
    assert counted.read == []


def test_a_new_redrive_sees_what_another_process_has_committed_of_it(log: HandLog) -> None:
    redriven(log, "redrive new", "redrive new, counted")
    log.batch(entry(21, at(20), at(21)))
    counted = CountedLog(log)
    commits = module._redrive_commits(counted, head_of(log), "new", 20)
    assert [commit.version for commit in commits] == [21, 22] and min(counted.read) == 21


def test_a_redrive_that_was_cut_off_finds_its_commits_behind_later_batches(log: HandLog) -> None:
    redriven(log, "redrive old")
    for number in range(21, 30):
        log.batch(entry(number, at(number - 1), at(number)))
    commits = module._redrive_commits(log.log, head_of(log), "old", -1)
    assert [commit.version for commit in commits] == [21]


def test_what_landed_before_all_rows_were_replaced_does_not_count(log: HandLog) -> None:
    redriven(log, "redrive old")
    log.commit("WRITE", note=entry(0, at(20), at(20), generation=2, kind="fill"), adds=1)
    assert module._redrive_commits(log.log, head_of(log), "old", -1) == []
