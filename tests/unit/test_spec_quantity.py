from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.spec.base_model import FindingsError
from penstock.spec.quantity import duration_text, instant, seconds, size


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("30s", 30),
        ("5 minutes", 300),
        ("1h", 3600),
        ("1 day", 86400),
        ("500ms", 0.5),
        ("1h30m", 5400),
        ("1 hour 30 minutes", 5400),
        ("1.5h", 5400),
        ("2 Weeks", 1209600),
        ("0s", 0),
    ],
)
def test_durations_are_read_as_people_write_them(written: str, meant: float) -> None:
    assert seconds(written) == meant


@pytest.mark.parametrize(
    "written", ["", "s", "30", 30, 1.5, "30 secnds", "-5s", "1h30", "five minutes", None, True, "1 month"]
)
def test_what_is_not_a_duration_is_refused_with_an_example(written: object) -> None:
    with pytest.raises(FindingsError, match="1h30m") as caught:
        seconds(written)
    assert caught.value.findings[0].hint


def test_a_bare_number_is_asked_for_its_unit() -> None:
    with pytest.raises(FindingsError, match="30 of what"):
        seconds(30)


def test_a_mistyped_unit_gets_the_one_that_was_meant() -> None:
    with pytest.raises(FindingsError, match="did you mean 'minutes'"):
        seconds("5 minuts")


@pytest.mark.parametrize(
    ("written", "meant"),
    [("64MB", 64_000_000), ("1 GiB", 2**30), ("512 kB", 512_000), ("1.5MiB", 1_572_864), (4096, 4096), ("4096", 4096)],
)
def test_sizes_are_read_as_people_write_them(written: object, meant: int) -> None:
    assert size(written) == meant


@pytest.mark.parametrize("written", ["64 potatoes", "1GB 5MB", -1, "", None, 1.5, "MB"])
def test_what_is_not_a_size_is_refused(written: object) -> None:
    with pytest.raises(FindingsError, match="64MB"):
        size(written)


@pytest.mark.parametrize(
    "written",
    ["2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01 00:00:00", "2026-01-01T01:00:00+01:00", 1767225600000],
)
def test_a_time_without_a_zone_is_utc(written: object) -> None:
    assert instant(written) == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("written", ["yesterday", "2026-13-01", 1767225600, True, None])
def test_what_is_not_a_time_is_refused(written: object) -> None:
    with pytest.raises(FindingsError, match="2026-01-01T00:00:00Z"):
        instant(written)


@pytest.mark.parametrize(
    ("span", "text"),
    [(0.5, "500ms"), (0, "0ms"), (30, "30s"), (90, "1m30s"), (5400, "1h30m"), (86400, "1d"), (1200.5, "20m0.5s")],
)
def test_a_duration_is_told_in_the_shortest_way(span: float, text: str) -> None:
    assert duration_text(span) == text
