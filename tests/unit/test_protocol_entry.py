"""Ledger entries and positions as text."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.ledger import position
from penstock.ledger.entry import Pins, dump, parse
from penstock.ledger.position import Range
from tests.unit.hand_ledgers import at, entry


def test_an_entry_reads_back_as_it_was_written() -> None:
    written = replace(
        entry(7, at(1, 2), at(3, 4), rows=5, total=50),
        note='новые темы \u2028 "quoted"',
        subscription={"pattern": "events-.*"},
        pins=Pins(5, "hash", {"dim.customers": 12}),
    )
    assert parse(dump(written)) == written


def test_an_entry_keeps_sparks_text_of_a_position_to_the_letter() -> None:
    odd = '{"b":{"10":1,"2":3},"a":{"0":0}}'
    again = parse(dump(entry(1, odd, odd)))
    assert again is not None
    assert again.after == (odd,)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "nightly compaction",
        '"penstock"',
        '["penstock"]',
        '{"penstock": "yes"}',
        '{"tool":"other","penstock":null}',
        '{"penstock"',
    ],
)
def test_what_others_write_into_a_commit_is_no_entry(text: str | None) -> None:
    assert parse(text) is None


def test_the_order_of_topics_and_partitions_does_not_matter() -> None:
    assert position.same('{"a":{"0":1,"1":2},"b":{"0":3}}', '{"b":{"0":3},"a":{"1":2,"0":1}}')
    assert not position.same('{"a":{"0":1}}', '{"a":{"0":2}}')
    assert not position.same('{"a":{"0":1}}', '{"a":{"0":1,"1":0}}')


def test_ranges_between_positions_leave_out_what_did_not_move_and_begin_new_partitions_at_0() -> None:
    found = list(position.ranges(at(5, 9), at(5, 12, 4)))
    assert found == [Range("orders", 1, 9, 12), Range("orders", 2, 0, 4)]
    assert position.size(at(5, 9), at(5, 12, 4)) == 7


def test_a_difference_of_many_partitions_is_cut_short() -> None:
    text = position.difference(at(*[0] * 20), at(*[1] * 20))
    assert text.endswith("and 12 more")
    assert position.difference(at(1), at(1)) == "nothing"


def test_a_position_is_written_in_order() -> None:
    assert position.dump({"b": {1: 2, 0: 1}, "a": {}}) == '{"a":{},"b":{"0":1,"1":2}}'
    assert position.parse(position.dump({"b": {10: 2, 9: 1}})) == {"b": {9: 1, 10: 2}}
    assert json.loads(position.dump({})) == {}
