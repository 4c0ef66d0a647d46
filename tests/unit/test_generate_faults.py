"""Late, duplicate and malformed events: as many as asked for, and each what its label says."""

import json
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise

import pytest

from penstock.dev.generate import KINDS, Event, Faults, events
from penstock.dev.generate.stream import FAULTS_BY_NAME
from penstock.errors import UsageError

START = datetime(2026, 1, 1, tzinfo=UTC)
BEGIN = round(START.timestamp() * 1000)


@lru_cache
def made(kind: str, count: int, **shares: float) -> list[Event]:
    return list(events(kind, count, start=START, faults=Faults(**shares)))


def broken(kind: str, way: str) -> list[Event]:
    return [event for event in made(kind, 600, malformed=0.5) if event.label == f"malformed.{way}"]


@pytest.mark.parametrize("count", [200, 1000, 1700, 25_000])
def test_shares_are_exact_to_one_event(count: int) -> None:
    labels = Counter(
        event.label.partition(".")[0] for event in made("orders", count, malformed=0.01, late=0.02, duplicates=0.03)
    )
    assert labels.total() == count
    for label, share in (("malformed", 0.01), ("late", 0.02), ("duplicate", 0.03)):
        assert abs(labels[label] - count * share) <= 1


def test_the_faults_are_scattered_and_not_in_a_row() -> None:
    faulty = [place for place, event in enumerate(made("orders", 10_000, malformed=0.02)) if event.label != "valid"]
    gaps = Counter(after - before for before, after in pairwise(faulty))
    assert len(gaps) > 50


def test_every_way_of_being_malformed_has_its_turn() -> None:
    labels = Counter(event.label for event in made("clicks", 600, malformed=0.1))
    assert {f"malformed.{way}": 10 for way in FAULTS_BY_NAME} | {"valid": 540} == labels


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_value_is_no_json(kind: str) -> None:
    for event in broken(kind, "truncated"):
        assert event.value and event.key
        with pytest.raises(ValueError):
            json.loads(event.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_type_is_json_with_one_field_that_no_reader_takes(kind: str) -> None:
    fields = set()
    for event in broken(kind, "wrong_type"):
        assert event.value
        content = json.loads(event.value)
        wrong = [name for name, value in KINDS[kind].wrong_types.items() if content[name] == value]
        assert len(wrong) == 1
        fields.update(wrong)
    assert fields == set(KINDS[kind].wrong_types)


@pytest.mark.parametrize("kind", KINDS)
def test_a_missing_id_is_absent_or_null_and_the_key_is_null(kind: str) -> None:
    ways = set()
    for event in broken(kind, "missing_id"):
        assert event.key is None and event.value
        content = json.loads(event.value)
        assert content.get(KINDS[kind].id_field) is None
        ways.add(KINDS[kind].id_field in content)
    assert ways == {True, False}


def test_other_fields_of_a_malformed_event_keep_their_digits() -> None:
    amounts = [event.value for event in broken("orders", "missing_id")]
    assert all(value is not None and b'"amount":' in value for value in amounts)
    digits = [json.loads(value or b"", parse_float=str)["amount"] for value in amounts]
    assert all(len(text.partition(".")[2]) == 2 for text in digits)


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_utf8_breaks_the_text_and_not_the_json_around_it(kind: str) -> None:
    for event in broken(kind, "invalid_utf8"):
        assert event.value
        with pytest.raises(UnicodeDecodeError):
            event.value.decode()
        assert json.loads(event.value.decode(errors="replace"))


@pytest.mark.parametrize("kind", KINDS)
def test_empty_and_null_values_keep_their_key(kind: str) -> None:
    assert {(event.value, event.key is not None) for event in broken(kind, "empty")} == {(b"", True)}
    assert {(event.value, event.key is not None) for event in broken(kind, "null")} == {(None, True)}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "customers"])
def test_late_events_lie_a_minute_to_three_days_before_their_place(kind: str) -> None:
    lateness = [
        BEGIN + place * 100 - event.event_time
        for place, event in enumerate(made(kind, 5000, late=0.2))
        if event.label == "late"
    ]
    assert len(lateness) == 1000
    assert min(lateness) > 59_000
    assert max(lateness) < 3 * 86_400_000
    assert sum(late > 3_600_000 for late in lateness) > 300
    assert sum(late < 600_000 for late in lateness) > 100


def test_most_late_customer_changes_are_late_too() -> None:
    late = [
        BEGIN + place * 100 - event.event_time > 59_000
        for place, event in enumerate(made("customers", 5000, late=0.05))
        if event.label == "late"
    ]
    assert sum(late) > 0.9 * len(late) > 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_duplicate_is_an_identical_copy_of_an_earlier_event(kind: str) -> None:
    seen = set()
    copies = 0
    for event in made(kind, 3000, duplicates=0.1, malformed=0.05):
        content = (event.key, event.value, event.headers, event.event_time)
        if event.label == "duplicate":
            assert content in seen
            copies += 1
        elif event.label == "valid":
            seen.add(content)
    assert copies == pytest.approx(300, abs=1)


def test_all_events_can_be_malformed_or_late() -> None:
    assert {event.label.partition(".")[0] for event in made("orders", 100, malformed=1.0)} == {"malformed"}
    assert {event.label for event in made("orders", 100, late=1.0)} == {"late"}


@pytest.mark.parametrize("shares", [{"malformed": 1.5}, {"late": -0.1}, {"malformed": 0.6, "duplicates": 0.6}])
def test_shares_that_make_no_sense_are_refused(shares: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Faults(**shares)
