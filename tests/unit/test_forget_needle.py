"""A name is found in text where it stands as a word of its own, however it is written there; and taken out of a log."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from penstock.erasure.log_redaction import LogNames, contains_name, redact_commit
from penstock.erasure.text_search import NameSearch

ANN = "ann@example.org"


@pytest.mark.parametrize("text", [ANN, f"<{ANN}>", f'{{"a":"{ANN}"}}', f"x={ANN}&", f"a {ANN}.", f"'{ANN}'"])
def test_a_name_is_found_as_a_word_of_its_own(text: str) -> None:
    assert NameSearch("customer", ANN).in_text(text)
    assert NameSearch("customer", ANN).spans(text.encode())


@pytest.mark.parametrize(("name", "text"), [("42", "1042"), ("42", "420"), ("ann", "hannah"), ("42", "a42")])
def test_a_part_of_another_word_is_not_the_name(name: str, text: str) -> None:
    assert not NameSearch("customer", name).in_text(text)


@pytest.mark.parametrize("name", ['O"Hara', "Zoë", "a\\b", "a b"])
def test_a_name_is_found_as_json_writes_it(name: str) -> None:
    once = json.dumps({"a": name})
    assert NameSearch("customer", name).in_text(once)
    assert NameSearch("customer", name).in_text(json.dumps({"b": once}))


@pytest.mark.parametrize(
    ("name", "telling"), [(ANN, True), ("42", False), ("100249", False), ("2.50", False), ("bo", False)]
)
def test_digits_alone_can_be_anything(name: str, telling: bool) -> None:
    assert NameSearch("customer", name).is_unambiguous is telling


def test_a_needle_does_not_show_the_name() -> None:
    assert ANN not in repr(NameSearch("customer", ANN))


def test_masking_keeps_the_length() -> None:
    text = f"who: {ANN}, and {ANN}"
    masked = NameSearch("customer", ANN).masked(text)
    assert len(masked) == len(text) and ANN not in masked and masked.startswith("who: ")


def sought(*names: str, column: str = "customer", active: tuple[str, ...] = ()) -> LogNames:
    """`active`: files of the newest version."""
    needles = tuple(NameSearch("customer", name) for name in names)
    return LogNames(needles, frozenset({column}), frozenset(active), frozenset(active))


def add(least: object, greatest: object, column: str = "customer", **more: object) -> str:
    stats = {"numRecords": 3, "minValues": {column: least, "n": 1.10}, "maxValues": {column: greatest}, "nullCount": {}}
    return json.dumps({"add": {"path": "part-0", "size": 42, "dataChange": True, "stats": json.dumps(stats), **more}})


def test_statistics_lose_their_bounds_and_nothing_else() -> None:
    entry = json.dumps({"commitInfo": {"operation": "WRITE", "userMetadata": '{"penstock":1,"after":["42"]}'}})
    text = f"{entry}\n{add('a', ANN)}\n{add('a', 'b')}\n"
    made = redact_commit(text, sought(ANN))
    assert made is not None and ANN not in made
    lines = made.split("\n")
    assert lines[0] == entry and lines[2] == add("a", "b") and lines[3] == ""
    action = json.loads(lines[1])["add"]
    assert json.loads(action["stats"]) == {"numRecords": 3, "nullCount": {}} and action["size"] == 42
    assert not contains_name(made, sought(ANN)) and redact_commit(made, sought(ANN)) is None


def test_numbers_of_living_rows_count_in_the_columns_that_hold_names_only() -> None:
    assert redact_commit(add(42, 50), sought("42", active=("part-0",))) is not None
    assert redact_commit(add(42, 50, column="amount"), sought("42", active=("part-0",))) is None
    assert redact_commit(add(41, 43), sought("42")) is None


@pytest.mark.parametrize("column", ["amount", "_rescued", "note"])
def test_digits_go_from_the_statistics_of_any_column_of_a_file_that_is_gone(column: str) -> None:
    for least, greatest in ((42, 50), ("4", "42"), ("42", "5"), ({"inner": "42"}, {"inner": "5"})):
        made = redact_commit(add(least, greatest, column=column), sought("42"))
        assert made is not None and "42" not in made.replace('"size":42', "")


def test_digits_in_text_of_any_column_count_in_living_rows_too() -> None:
    assert contains_name(add("100042", "x", column="note"), sought("100042", active=("part-0",)))
    assert contains_name(add("a", '{"ref":"100042"}', column="_rescued"), sought("100042", active=("part-0",)))


def test_counts_sizes_and_positions_are_not_the_name() -> None:
    metrics = {"numFiles": "42", "numOutputRows": "42"}
    entry = {"penstock": 1, "batch": 42, "after": ['{"t":{"42":42}}'], "counts": {"rows": 42}}
    info = {"operationMetrics": metrics, "userMetadata": json.dumps(entry), "operationParameters": {"n": "42"}}
    assert not contains_name(json.dumps({"commitInfo": info}), sought("42"))
    assert not contains_name(json.dumps({"txn": {"appId": "a", "version": 42}}), sought("42"))


@pytest.mark.parametrize(
    "text",
    ["1.47110", "at 10:42:07.47110", "2026-11-18T10:42:00.47110Z", "00047110-0000-4000-8000-000000000000", "9.9.47110"],
)
def test_digits_within_a_time_a_fraction_or_an_id_are_not_the_name(text: str) -> None:
    assert not NameSearch("customer", "47110").in_text(text)
    assert not NameSearch("customer", "00047110").in_text(text)


@pytest.mark.parametrize(("text", "holds"), [("47110", True), ("order 47110, two", True), ("order-47110", True)])
def test_digits_as_a_word_of_text_are_the_name(text: str, holds: bool) -> None:
    assert NameSearch("customer", "47110").in_text(text) is holds


def test_few_digits_count_only_as_the_whole_text() -> None:
    assert NameSearch("customer", "317").in_text("317") and not NameSearch("customer", "317").in_text("317 pieces")


@pytest.mark.parametrize(
    "text", ["am9obkBleGFtcGxlLm9yZw==", "ZnJvbSBqb2huQGV4YW1wbGUub3JnIQ==", "6a6f686e406578616d706c652e6f7267"]
)
def test_a_name_is_found_in_base64_and_hexadecimal(text: str) -> None:
    assert NameSearch("customer", "john@example.org").in_text(f"x {text} y")


@pytest.mark.parametrize("end", ["\r\n", "\n", "\n  ", "\\r\\n"])
def test_a_name_is_found_in_base64_that_is_broken_into_lines(end: str) -> None:
    coded = "am9obkBleGFtcGxlLm9yZw=="
    assert NameSearch("customer", "john@example.org").in_text(f"x {coded[:7]}{end}{coded[7:]} y")


def test_both_normal_forms_of_unicode_are_one_name() -> None:
    assert NameSearch("customer", "Zoë M").in_text("Zoe\u0308 M") and NameSearch("customer", "Zoe\u0308 M").in_text(
        "Zoë M"
    )


@pytest.mark.parametrize("name", ["Jürgen/x", "a b", "O'Hara=1"])
def test_the_folder_of_a_partition_loses_the_name_alike_in_all_commits(name: str) -> None:
    from urllib.parse import quote

    folder = f"note={quote(name, safe='')}/part-0"
    made = redact_commit(add("a", "b", path=folder, partitionValues={"note": name}), sought(name))
    gone = redact_commit(json.dumps({"remove": {"path": folder, "partitionValues": {"note": name}}}), sought(name))
    assert made is not None and gone is not None and not contains_name(made + "\n" + gone, sought(name))
    assert json.loads(made)["add"]["path"] == json.loads(gone)["remove"]["path"] != folder


def test_the_numbers_in_names_of_files_are_not_the_name() -> None:
    text = add("a", "b", path="day=1/part-00001-6f1d2a3b-0c4e-4f5a-9b6c-7d8e9f0a1b2c-c000.snappy.parquet")
    assert not contains_name(text, sought("00001")) and contains_name(
        text.replace("day=1", "day=00001"), sought("00001")
    )


def test_few_digits_go_from_a_text_in_statistics_of_a_file_that_is_gone() -> None:
    text = add("317 pieces", "x", column="note")
    assert (
        redact_commit(text, sought("317")) is not None
        and redact_commit(text, sought("317", active=("part-0",))) is None
    )


def test_what_the_log_calls_a_living_file_stays() -> None:
    text = add("a", ANN, path=f"note={ANN}/part-0", partitionValues={"note": ANN})
    made = redact_commit(text, sought(ANN, active=(f"note={ANN}/part-0",)))
    assert made is not None and json.loads(made)["add"]["path"] == f"note={ANN}/part-0"
    assert contains_name(made, sought(ANN, active=(f"note={ANN}/part-0",)))  # and is told


def test_a_longer_name_of_somebody_else_is_not_the_name() -> None:
    others = frozenset({f"{ANN}.uk"})
    assert not contains_name(add("a", f"to {ANN}.uk"), replace(sought(ANN), other_names=others))
    assert contains_name(add("a", f"to {ANN}.uk and {ANN}"), replace(sought(ANN), other_names=others))


def test_a_long_name_is_found_by_the_part_that_statistics_keep() -> None:
    name = "a-very-long-name-that-nobody-else-has@example.org"
    assert redact_commit(add(name[:32], "z"), sought(name)) is not None


def test_what_others_wrote_into_a_commit_is_overwritten() -> None:
    text = json.dumps({"commitInfo": {"operationParameters": {"predicate": f'["(customer = {ANN})"]'}}})
    made = redact_commit(text, sought(ANN))
    assert made is not None and ANN not in made and len(made) <= len(text)


def test_a_checksum_that_lists_files_is_looked_into() -> None:
    listed = {"allFiles": [json.loads(add(42, 42))["add"]]}
    assert contains_name(json.dumps(listed), sought("42"))
