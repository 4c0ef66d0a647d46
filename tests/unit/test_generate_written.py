"""Numbers as people write them on the command line of the generator."""

from datetime import UTC, datetime

import pytest

from penstock.dev.generate import stream
from penstock.errors import UsageError


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5 %", 0.005), ("0%", 0.0), ("100%", 1.0)])
def test_a_share_is_a_percentage(text: str, share: float) -> None:
    assert stream.share(text, "--late") == pytest.approx(share)


@pytest.mark.parametrize("text", ["1", "0.01", "101%", "-1%", "nan%", "%", "1%%", "one%", ""])
def test_what_is_no_percentage_is_refused_and_says_for_which_option(text: str) -> None:
    with pytest.raises(UsageError, match="--late") as error:
        stream.share(text, "--late")
    assert "1%" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("text", "count"), [("1", 1), ("10_000", 10_000), ("10,000", 10_000), ("1.5k", 1500), ("2M", 2_000_000)]
)
def test_a_count_may_have_thousands(text: str, count: int) -> None:
    assert stream.count(text, "--count") == count


@pytest.mark.parametrize("text", ["0", "-5", "1.5", "many", "1e3", "5 kg", ""])
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--count"):
        stream.count(text, "--count")


@pytest.mark.parametrize(
    ("text", "rate"), [("500/s", 500), ("20k/s", 20_000), ("90/min", 1.5), ("5", 5), ("1 / h", 1 / 3600)]
)
def test_a_rate_is_events_per_time(text: str, rate: float) -> None:
    assert stream.rate(text, "--rate") == pytest.approx(rate)


@pytest.mark.parametrize("text", ["0/s", "/s", "5/", "5/fortnight", "fast", "-1/s"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--rate"):
        stream.rate(text, "--rate")


def test_durations_and_times_read_as_in_the_project_file() -> None:
    assert stream.duration("1m30s", "--for") == 90
    assert stream.moment("2026-01-01", "--start") == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("text", ["10", "0s", "soon"])
def test_a_wrong_duration_names_the_option(text: str) -> None:
    with pytest.raises(UsageError, match="--for") as error:
        stream.duration(text, "--for")
    assert error.value.hint


def test_a_wrong_time_names_the_option() -> None:
    with pytest.raises(UsageError, match="--start"):
        stream.moment("yesterday", "--start")
