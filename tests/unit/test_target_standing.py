"""Whether a target stands where the ledger of its sink ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.errors import TableChanged
from penstock.ledger.entry import Counts, Entry
from penstock.sinks.base import TargetPosition, already_there, dump_position, parse_position, refuse_unexpected_position
from tests.unit.hand_ledgers import at as offset
from tests.unit.hand_ledgers import entry


def at(number: int) -> tuple[str, ...]:
    return (offset(number),)


LAST = replace(entry(3, offset(20), offset(30), table="out"), counts=Counts(5, 50))
NEXT = replace(LAST, batch=4, before=at(30), after=at(40))


def standing(of: Entry, **other: object) -> TargetPosition:
    made = TargetPosition(of.ledger, of.generation, of.batch, of.before, of.after, 7)
    return replace(made, **other)  # type: ignore[arg-type]


def test_a_position_comes_back_as_it_was_written() -> None:
    parts = ["ledger", "1", "3", dump_position(at(20)), dump_position(at(30)), "7"]
    assert parse_position(parts) == TargetPosition("ledger", 1, 3, at(20), at(30), 7)
    assert parse_position([]) is None and parse_position(["", "0", "0", "", "", "0"]) is None


OPENED = replace(LAST, kind="open", generation=LAST.generation + 1, batch=0, before=at(30), after=at(30))
RESET = replace(OPENED, after=at(5))
GENESIS = replace(LAST, kind="genesis", batch=0, before=at(0), after=at(0), counts=Counts())


@pytest.mark.parametrize(
    ("found", "last"),
    [
        (standing(LAST), LAST),
        (standing(NEXT), LAST),  # it died before it wrote its ledger
        (standing(LAST), OPENED),  # another runner goes on at the same place
        (standing(NEXT), OPENED),
        (standing(LAST), RESET),  # a person chose the place
        (None, RESET),
        (None, GENESIS),
    ],
)
def test_a_target_may_be_where_the_ledger_ends_or_one_batch_further(found: TargetPosition | None, last: Entry) -> None:
    refuse_unexpected_position(found, last, "table c")


@pytest.mark.parametrize(
    ("found", "last", "said"),
    [
        (None, LAST, "replaced or emptied"),
        (None, OPENED, "replaced or emptied"),
        (standing(LAST, batch=2, before=at(10), after=at(20)), LAST, "older state"),
        (standing(NEXT, batch=5, before=at(40)), LAST, "older state"),
        (standing(NEXT, before=at(31)), LAST, "older state"),
        (standing(LAST, after=at(20)), OPENED, "older state"),
        (standing(OPENED), LAST, "older state"),
        (standing(LAST, ledger="other"), LAST, "another sink"),
        (standing(LAST, ledger="other"), GENESIS, "another sink"),
    ],
)
def test_anywhere_else_is_refused(found: TargetPosition | None, last: Entry, said: str) -> None:
    with pytest.raises(TableChanged, match=said):
        refuse_unexpected_position(found, last, "table c")


def test_a_batch_is_there_if_it_is_the_same_and_is_sent_over_itself_if_it_has_become_longer() -> None:
    assert already_there(standing(NEXT), NEXT, "c")
    assert not already_there(standing(NEXT, after=at(35)), NEXT, "c")
    assert not already_there(standing(LAST), NEXT, "c")
    assert not already_there(None, NEXT, "c")
    first = replace(NEXT, generation=NEXT.generation + 1, batch=1)
    assert not already_there(standing(LAST), first, "c")
    for other in (standing(LAST, after=at(31)), standing(first), standing(NEXT, batch=9), standing(NEXT, ledger="x")):
        with pytest.raises(TableChanged):
            already_there(other, NEXT, "c")
