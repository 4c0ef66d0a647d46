"""Where a table goes on after it went back, what it was then, and that verify expects what it held."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.ledger.entry import Counts, Entry
from penstock.ledger.head import read_head
from penstock.ledger.pending import Rewind, rewind_document
from penstock.ledger.position import parse
from penstock.operations.rewind import EarlierVersion, earlier_version, resume_position
from penstock.verify.ledger_walk import read_chain
from tests.unit.hand_ledgers import HandLog, at, entry


def read(offsets: dict[str, dict[str, int]], **other: object) -> Entry:
    known = {"topics": {topic: f"id of {topic}" for topic in offsets}, "subscription": {"topics": sorted(offsets)}}
    return replace(entry(1, "{}", json.dumps(offsets)), **{**known, **other})  # type: ignore[arg-type]


def test_a_topic_that_was_named_since_begins_where_it_began() -> None:
    then = read({"a": {"0": 5}}, began=('{"a":{"0":0}}',))
    now = read({"a": {"0": 90}, "b": {"0": 80}}, began=('{"a":{"0":0},"b":{"0":40}}',))
    on = resume_position(then, now)
    assert parse(on.after[0]) == {"a": {0: 5}, "b": {0: 40}}
    assert parse(on.began[0]) == {"a": {0: 0}, "b": {0: 40}}
    assert on.topics == {"a": "id of a", "b": "id of b"} and on.subscription == now.subscription


def test_a_topic_that_was_taken_out_since_is_left_where_it_was() -> None:
    then = read({"a": {"0": 5}, "b": {"0": 7}})
    now = read({"a": {"0": 90}}, parked={"b": {"id": "id of b", "offsets": {"0": 30}}})
    on = resume_position(then, now)
    assert parse(on.after[0]) == {"a": {0: 5}}
    assert on.parked == {"b": {"id": "id of b", "offsets": {0: 7}}}


def test_a_topic_that_came_back_since_goes_on_where_it_had_been_left() -> None:
    then = read({"a": {"0": 5}}, parked={"b": {"id": "id of b", "offsets": {"0": 7}}})
    now = read({"a": {"0": 90}, "b": {"0": 50}}, began=('{"a":{"0":0},"b":{"0":0}}',))
    assert parse(resume_position(then, now).after[0]) == {"a": {0: 5}, "b": {0: 7}}


def test_another_table_than_it_reads_now_means_nothing_to_it() -> None:
    then = replace(entry(1, "{}", "{}"), subscription={"table": "bronze.a"})
    now = replace(then, subscription={"table": "bronze.b"})
    with pytest.raises(UsageError, match="another source"):
        resume_position(then, now)


def wrong(tmp_path: Path) -> HandLog:
    """Batches 1 to 4, ten rows each."""
    hand = HandLog(tmp_path)
    hand.begin(at(0))
    for number in range(1, 5):
        hand.batch(entry(number, at((number - 1) * 10), at(number * 10), total=(number - 1) * 10))
    return hand


def back_at(hand: HandLog, version: int) -> EarlierVersion:
    tail = read_head(hand.log)
    assert tail is not None
    return earlier_version(hand.log, tail, version)


def test_what_it_was_is_told_by_the_entry_of_then_and_counted_by_the_one_after_it(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    then = back_at(hand, 2)
    assert then.entry.batch == 2 and then.counts == Counts(0, 20) and len(then.undone) == 2
    assert then.until_ms == 1_700_000_000_003


def test_a_generation_that_was_opened_and_came_to_nothing_is_passed_over(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    owed = rewind_document(Rewind(1, 1, (at(40),)))
    opened = replace(entry(0, at(40), at(10), generation=2, kind="open", total=40), pending=owed)
    hand.commit("WRITE", note=opened)
    then = back_at(hand, 5 - 1)
    assert then.entry.batch == 4 and then.counts.total == 40
    assert back_at(hand, 1).entry.batch == 1


def test_a_version_that_is_not_there_or_changes_nothing_is_refused(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    with pytest.raises(UsageError, match="its newest is 4"):
        back_at(hand, 5)
    hand.commit("OPTIMIZE", adds=1, removes=2, change=False)
    with pytest.raises(UsageError, match="nothing to undo"):
        back_at(hand, 4)
    hand.path(1).unlink()
    hand.path(0).unlink()
    with pytest.raises(UsageError, match="does not reach back"):
        back_at(hand, 1)


def test_a_change_by_others_can_be_undone(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    hand.commit("DELETE", removes=1)
    then = back_at(hand, 4)
    assert then.entry.batch == 4 and then.counts.total == 40 and not [c for c in then.undone if c.entry]


def test_verify_expects_what_the_table_held_then_and_what_came_after(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    owed = rewind_document(Rewind(2, 1, (at(40),)))
    hand.commit("WRITE", note=replace(entry(0, at(40), at(20), generation=2, kind="open"), pending=owed))
    back = entry(0, at(20), at(20), generation=2, kind="rewind", total=20)
    hand.commit("RESTORE", note=back, adds=0, removes=2, parameters={"version": "2"})
    hand.batch(entry(1, at(20), at(25), generation=2))
    chain = read_chain(hand.log, 7, lambda _: None)
    assert not chain.broken and not chain.foreign and not chain.accepted
    assert list(chain.expected.once(("orders", 0))) == [(0, 25)] and chain.batches == 3


def test_verify_after_the_log_no_longer_reaches_back_to_that_version(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    owed = rewind_document(Rewind(2, 1, (at(40),)))
    hand.commit("WRITE", note=replace(entry(0, at(40), at(20), generation=2, kind="open"), pending=owed))
    hand.commit(
        "RESTORE", note=entry(0, at(20), at(20), generation=2, kind="rewind"), removes=2, parameters={"version": "2"}
    )
    hand.batch(entry(1, at(20), at(25), generation=2))
    for version in range(4):
        hand.path(version).unlink()
    chain = read_chain(hand.log, 7, lambda _: None)
    assert not chain.broken and not chain.from_genesis
    assert list(chain.expected.once(("orders", 0))) == [(0, 25)]


def test_a_restore_by_hand_is_not_taken_for_a_rewind(tmp_path: Path) -> None:
    hand = wrong(tmp_path)
    hand.commit("RESTORE", removes=2, parameters={"version": "2"})
    assert read_chain(hand.log, 5, lambda _: None).foreign[0].undecided
