"""A name is found in text where it stands as a word of its own, however it is written there; and taken out of a log."""

from __future__ import annotations

import json

import pytest

from penstock.engine.forget.needle import Needle
from penstock.engine.forget.scrub import Sought, names_left, scrubbed

ANN = "ann@example.org"


@pytest.mark.parametrize("text", [ANN, f"<{ANN}>", f'{{"a":"{ANN}"}}', f"x={ANN}&", f"a {ANN}.", f"'{ANN}'"])
def test_a_name_is_found_as_a_word_of_its_own(text: str) -> None:
    assert Needle("customer", ANN).in_text(text)
    assert Needle("customer", ANN).spans(text.encode())


@pytest.mark.parametrize(("name", "text"), [("42", "1042"), ("42", "420"), ("ann", "hannah"), ("42", "a42")])
def test_a_part_of_another_word_is_not_the_name(name: str, text: str) -> None:
    assert not Needle("customer", name).in_text(text)


@pytest.mark.parametrize("name", ['O"Hara', "Zoë", "a\\b", "a b"])
def test_a_name_is_found_as_json_writes_it(name: str) -> None:
    once = json.dumps({"a": name})
    assert Needle("customer", name).in_text(once)
    assert Needle("customer", name).in_text(json.dumps({"b": once}))


@pytest.mark.parametrize(
    ("name", "telling"), [(ANN, True), ("42", False), ("100249", False), ("2.50", False), ("bo", False)]
)
def test_digits_alone_can_be_anything(name: str, telling: bool) -> None:
    assert Needle("customer", name).telling is telling


def test_a_needle_does_not_show_the_name() -> None:
    assert ANN not in repr(Needle("customer", ANN))


def test_masking_keeps_the_length() -> None:
    text = f"who: {ANN}, and {ANN}"
    masked = Needle("customer", ANN).masked(text)
    assert len(masked) == len(text) and ANN not in masked and masked.startswith("who: ")


def sought(*names: str, column: str = "customer") -> Sought:
    return Sought(tuple(Needle("customer", name) for name in names), names, frozenset({column}))


def add(least: object, greatest: object, column: str = "customer", **more: object) -> str:
    stats = {"numRecords": 3, "minValues": {column: least, "n": 1.10}, "maxValues": {column: greatest}, "nullCount": {}}
    return json.dumps({"add": {"path": "part-0", "size": 42, "dataChange": True, "stats": json.dumps(stats), **more}})


def test_statistics_lose_their_bounds_and_nothing_else() -> None:
    entry = json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": '{"penstock":1,"after":["42"]}'}})
    text = f"{entry}\n{add('a', ANN)}\n{add('a', 'b')}\n"
    made = scrubbed(text, sought(ANN))
    assert made is not None and ANN not in made
    lines = made.split("\n")
    assert lines[0] == entry and lines[2] == add("a", "b") and lines[3] == ""
    action = json.loads(lines[1])["add"]
    assert json.loads(action["stats"]) == {"numRecords": 3, "nullCount": {}} and action["size"] == 42
    assert not names_left(made, sought(ANN)) and scrubbed(made, sought(ANN)) is None


def test_digits_count_in_the_columns_that_hold_names_only() -> None:
    assert scrubbed(add(42, 50), sought("42")) is not None
    assert scrubbed(add(42, 50, column="amount"), sought("42")) is None
    assert scrubbed(add(41, 43), sought("42")) is None


def test_a_long_name_is_found_by_the_part_that_statistics_keep() -> None:
    name = "a-very-long-name-that-nobody-else-has@example.org"
    assert scrubbed(add(name[:32], "z"), sought(name)) is not None


def test_what_others_wrote_into_a_commit_is_overwritten() -> None:
    text = json.dumps({"commitInfo": {"operationParameters": {"predicate": f'["(customer = {ANN})"]'}}})
    made = scrubbed(text, sought(ANN))
    assert made is not None and ANN not in made and len(made) <= len(text)


def test_a_checksum_that_lists_files_is_looked_into() -> None:
    listed = {"allFiles": [json.loads(add(42, 42))["add"]]}
    assert names_left(json.dumps(listed), sought("42"))
