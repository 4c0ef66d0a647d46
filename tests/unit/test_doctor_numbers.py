"""Times, sizes and the model of a check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.doctor.check import (
    LEVELS,
    PROJECT,
    REASONS,
    Check,
    CheckSubject,
    count,
    is_healthy,
    listed,
    rate,
    size,
    span,
)
from penstock.doctor.machine import heap_bytes
from penstock.doctor.table_log import interval_seconds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"),
        (0.34, "0.3 s"),
        (9.96, "10 s"),
        (40, "40 s"),
        (59.7, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (86_400 * 3 + 4 * 3600 + 59, "3 d 4 h"),
        (-125, "-2 min 5 s"),
    ],
)
def test_a_span_has_two_units_at_most(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_sizes_counts_and_rates_are_for_people() -> None:
    assert [size(number) for number in (5, 1536, 3 * 1024**3, 5000 * 1024**4)] == [
        "5 bytes",
        "1.5 KiB",
        "3.0 GiB",
        "4.9 PiB",
    ]
    assert (count(1, "batch", "batches"), count(1200, "record")) == ("1 batch", "1,200 records")
    assert (rate(1200.4), rate(0.01), rate(0.0001)) == ("1,200/s", "36/h", "8.6/d")
    assert listed(list("abcdefg"), 3) == "a, b, c and 4 more"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("interval 30 days", 30 * 86_400),
        ("interval 1 week", 7 * 86_400),
        ("INTERVAL 2 Weeks 12 hours", 14 * 86_400 + 43_200),
        ("168 hours", 7 * 86_400),
        ("a month", None),
        ("interval 1 month 2 days", None),
        ("", None),
    ],
)
def test_an_interval_of_delta_is_seconds_or_not_known(text: str, seconds: float | None) -> None:
    assert interval_seconds({"p": text}, "p", "interval 1 day") == seconds


def test_a_property_that_is_not_set_has_its_default() -> None:
    assert interval_seconds({}, "p", "interval 1 day") == 86_400


@pytest.mark.parametrize(
    ("conf", "found"),
    [("4g", 4 << 30), ("512m", 512 << 20), ("2048", 2048 << 20), ("1GB", 1 << 30), ("much", None), ("-1g", None)],
)
def test_the_memory_of_the_driver_is_read_as_spark_does(conf: str, found: int | None) -> None:
    assert heap_bytes(conf) == found


def test_only_red_makes_the_answer_no() -> None:
    about = CheckSubject("disk.room")
    fine = [about.ok("a"), about.note("b"), about.warn("c", "d"), about.unknown("e")]
    assert is_healthy(fine)
    assert not is_healthy([*fine, about.red("f", "g")])
    assert {check.level for check in [*fine, about.red("f", "g")]} == set(LEVELS)
    assert about.red("f", "g") == Check("disk.room", PROJECT, "red", "f", REASONS["disk.room"], "g")


def test_every_check_is_in_the_docs_and_the_docs_have_no_other() -> None:
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z]+\.[a-z]+)` \|", page, re.MULTILINE)) == set(REASONS)


def test_every_check_of_the_code_has_a_reason_and_every_reason_a_check() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "src" / "penstock" / "doctor").glob("*.py"))
    made = set(re.findall(r'CheckSubject\(\s*"([a-z]+\.[a-z]+)"', code))
    assert made == set(REASONS)
