"""What a user types to choose rows of a quarantine, hostile words included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.operations.quarantine_rows import (
    QuarantineReader,
    RejectFilter,
    count_rows,
    open_quarantine,
    read_batch,
    read_offsets,
    read_rows,
    read_time,
)
from penstock.storage.stores import LocalStore
from tests.unit.hand_quarantines import NOON, make_plan, rejected, write

WORDS = ["it's", "a\\'b", "' OR TRUE --", "x'); DROP TABLE quarantine; --", "\x00nul", "new\nline", "%", "ü"]


@pytest.fixture
def quarantine(tmp_path: Path) -> QuarantineReader:
    table = make_plan(tmp_path).table("silver.orders")
    assert table is not None
    rows = [
        rejected(word, f"about {word} here", _source={"topic": word, "partition": n, "offset": 10 * n}, batch=n)
        for n, word in enumerate(WORDS)
    ]
    later = rejected("late", "late", error_timestamp=NOON + timedelta(hours=2), generation=2, batch=3)
    write(table, *rows)
    write(table, later)
    found = open_quarantine(table, LocalStore())
    assert found is not None
    return found


@pytest.mark.parametrize("word", WORDS)
def test_words_are_compared_and_never_obeyed(quarantine: QuarantineReader, word: str) -> None:
    for wanted in (RejectFilter(reason=word), RejectFilter(detail=f"about {word}"), RejectFilter(topic=word)):
        (row,) = read_rows(quarantine, wanted, 10, whole=True)
        assert row.reason == word
        assert count_rows(quarantine, wanted) == 1


def test_all_that_is_asked_for_must_hold(quarantine: QuarantineReader) -> None:
    def found(wanted: RejectFilter) -> int:
        return count_rows(quarantine, wanted)

    assert found(RejectFilter()) == len(WORDS) + 1
    assert found(RejectFilter(since=NOON + timedelta(seconds=1))) == 1
    assert found(RejectFilter(since=NOON)) == len(WORDS) + 1
    assert found(RejectFilter(until=NOON)) == 0
    assert found(RejectFilter(until=NOON + timedelta(hours=1))) == len(WORDS)
    assert found(RejectFilter(batch=3)) == 2
    assert found(RejectFilter(generation=2, batch=3)) == 1
    assert found(RejectFilter(partition=2)) == 1
    assert found(RejectFilter(offsets=(10, 30), topic=WORDS[2])) == 1
    assert found(RejectFilter(offsets=(0, 30))) == 5
    assert found(RejectFilter(offsets=(0, 30), reason="late")) == 1


def test_the_newest_rows_come_first(quarantine: QuarantineReader) -> None:
    keys = [(row.generation, row.batch) for row in read_rows(quarantine, RejectFilter(), 4, whole=False)]
    assert keys == [(2, 3), (1, 7), (1, 6), (1, 5)]


def test_coordinates_that_the_rows_do_not_have_are_refused(quarantine: QuarantineReader) -> None:
    with pytest.raises(UsageError) as refused:
        count_rows(quarantine, RejectFilter(file="a.json"))
    assert refused.value.hint == "they have topic, partition, offset"


@pytest.mark.parametrize(("text", "meant"), [(None, (None, None)), ("12", (None, 12)), ("1.12", (1, 12))])
def test_a_batch_is_named_with_or_without_its_generation(text: str | None, meant: object) -> None:
    assert read_batch(text) == meant


@pytest.mark.parametrize("text", ["", "x", "1.", "1.2.3", "-1", "1 OR 1=1", "٣", "9" * 40])
def test_what_is_no_batch_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        read_batch(text)


def test_offsets_are_one_or_a_range_with_both_ends() -> None:
    assert read_offsets("7") == (7, 7)
    assert read_offsets("7-9") == (7, 9)
    for text in ("9-7", "7-", "-7", "a", "1..2", "", str(2**63)):
        with pytest.raises(UsageError):
            read_offsets(text)


def test_a_time_is_written_as_such_or_as_how_long_ago() -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert read_time("--since", "2026-04-01", now) == datetime(2026, 4, 1, tzinfo=UTC)
    assert read_time("--since", "2026-04-01T10:00:00+02:00", now) == datetime(2026, 4, 1, 8, tzinfo=UTC)
    assert read_time("--since", "1h30m", now) == now - timedelta(minutes=90)
    assert read_time("--since", None, now) is None
    for text in ("yesterday", "5", "", "99999999999 weeks"):
        with pytest.raises(UsageError, match="--since"):
            read_time("--since", text, now)
