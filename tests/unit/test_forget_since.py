"""Versions from before somebody was forgotten are told from the log, and refused; the batches go on after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.ledger.head import Verdict, advance, check, read_head, refuse_foreign_changes
from penstock.ledger.pending import forgotten_after, forgotten_since
from penstock.sql.versions import Readable, Versions
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import TABLE, HandLog, at, entry, genesis


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    """Genesis, a batch, a forget that changes rows, one that only counts, a batch."""
    made = HandLog(tmp_path / "orders")
    made.commit("CREATE TABLE", note=genesis(at(0)))
    made.commit("WRITE", note=entry(1, at(0), at(5)), adds=1)
    made.commit("DELETE", note=entry(1, at(0), at(5), kind="forget", total=10), adds=1, removes=1)
    made.commit("WRITE", note=entry(1, at(0), at(5), kind="forget", total=10))
    made.commit("WRITE", note=entry(2, at(5), at(9), seen=1), adds=1)
    return made


def test_the_newest_version_in_which_somebody_was_forgotten_is_found(log: HandLog) -> None:
    assert forgotten_since(log.log) == 2
    assert [forgotten_after(log.log, version) for version in (0, 1, 2, 4)] == [2, 2, None, None]


def test_a_query_of_a_version_from_before_it_is_refused(log: HandLog) -> None:
    table = Readable(TABLE, log.uri)
    versions = Versions(LocalStore())
    with pytest.raises(UsageError, match="`forget` erased rows in version 2") as refused:
        versions.numbered(table, 1)
    assert f"{TABLE} VERSION AS OF 2" in str(refused.value)
    assert versions.numbered(table, 2).version == 2 and versions.newest(table).version == 4


def test_a_forget_that_slips_in_beside_a_batch_is_no_change_by_others(log: HandLog) -> None:
    tail = read_head(log.log)
    assert tail is not None and [commit.version for commit in tail.unseen] == [2, 3]
    assert refuse_foreign_changes(tail, log.log) == []


def test_batches_go_on_after_a_forget_and_their_retry_is_known(tmp_path: Path) -> None:
    made = HandLog(tmp_path / "other")
    made.commit("CREATE TABLE", note=genesis(at(0)))
    made.commit("WRITE", note=entry(1, at(0), at(5)), adds=1)
    before = read_head(made.log)
    assert before is not None
    forgotten = replace(before.carry_entry, kind="forget", counts=replace(before.counts, total=7))
    made.commit("DELETE", note=forgotten, adds=1, removes=1)
    tail = advance(before, made.log)
    assert tail.entry.kind == "forget" and tail.counts.total == 7
    assert check(tail.entry, 1, 2, (at(5),), (at(9),)) is Verdict.WRITE
    assert check(tail.entry, 1, 1, (at(0),), (at(5),)) is Verdict.RETRY
