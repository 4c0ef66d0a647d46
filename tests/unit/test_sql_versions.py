"""Which version of a table a query reads, from its log alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.sql.versions import Readable, Versions, session_zone
from penstock.storage.stores import LocalStore

NOON = datetime(2026, 5, 14, 12, tzinfo=UTC)


def commit(table: Readable, version: int, time: datetime) -> Path:
    log = Path(table.uri) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    info = {"timestamp": 1, "inCommitTimestamp": round(time.timestamp() * 1000), "operation": "WRITE"}
    path = log / f"{version:020d}.json"
    path.write_text(json.dumps({"commitInfo": info}))
    return path


@pytest.fixture
def table(tmp_path: Path) -> Readable:
    """Versions 0 to 9, one each minute from noon."""
    made = Readable("silver.orders", str(tmp_path / "orders"))
    for version in range(10):
        commit(made, version, NOON.replace(minute=version))
    return made


def of(table: Readable, at: str | None, zone: str = "UTC") -> int:
    return Versions(LocalStore(), zone).of(table, at)


@pytest.mark.parametrize(
    ("at", "version"),
    [
        (None, 9),
        ("v0", 0),
        ("V7", 7),
        ("7", 7),
        ("2026-05-14 12:00", 0),
        ("2026-05-14T12:03", 3),
        ("2026-05-14 12:03:59.999", 3),
        ("2026-05-14T12:03:00Z", 3),
        ("2026-05-14T14:03+02:00", 3),
        ("2026-05-15", 9),
        ("2099-01-01", 9),
    ],
)
def test_a_time_is_the_newest_commit_at_or_before_it(table: Readable, at: str | None, version: int) -> None:
    assert of(table, at) == version


def test_a_time_without_a_zone_is_meant_in_that_of_the_session(table: Readable) -> None:
    assert of(table, "2026-05-14 14:03", "Europe/Berlin") == 3
    assert of(table, "2026-05-14 10:33", "-01:30") == 3
    assert of(table, "2026-05-14 13:03", "GMT+1") == 3
    assert of(table, "2026-05-14T12:03Z", "Europe/Berlin") == 3


def test_a_zone_that_nobody_knows_matters_only_to_times_without_one(table: Readable) -> None:
    assert of(table, "2026-05-14T12:03Z", "Mars/Olympus") == 3
    with pytest.raises(UsageError, match="Mars/Olympus"):
        of(table, "2026-05-14 12:03", "Mars/Olympus")
    with pytest.raises(UsageError):
        session_zone("../../etc/passwd")


@pytest.mark.parametrize("at", ["v10", "999999999999999999999"])
def test_a_version_that_is_not_there_says_which_are(table: Readable, at: str) -> None:
    with pytest.raises(UsageError, match=r"silver\.orders has no version .*: it has versions 0 to 9") as raised:
        of(table, at)
    assert raised.value.hint is not None and "penstock history silver.orders" in raised.value.hint


def test_versions_that_the_log_no_longer_has_are_not_there(table: Readable) -> None:
    for version in range(4):
        (Path(table.uri) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(UsageError, match="versions 4 to 9"):
        of(table, "v3")
    assert of(table, "v4") == 4
    assert of(table, "2026-05-14 12:04") == 4
    with pytest.raises(UsageError, match="oldest version, 4, is of 2026-05-14 12:04:00 UTC"):
        of(table, "2026-05-14 12:03")


def test_a_time_before_the_table_was_made_says_when_that_was(table: Readable) -> None:
    with pytest.raises(UsageError, match=r"as of 2026-05-14 00:00:00 UTC: .* is of 2026-05-14 12:00:00 UTC"):
        of(table, "2026-05-14")


@pytest.mark.parametrize("at", ["yesterday", "", "2026-13-01", "v", "-1", "12:00"])
def test_neither_a_version_nor_a_time_is_refused(table: Readable, at: str) -> None:
    with pytest.raises(UsageError, match="neither a version nor a time"):
        of(table, at)


def test_within_one_query_the_newest_version_stays_the_same(table: Readable) -> None:
    versions = Versions(LocalStore(), "UTC")
    assert versions.of(table, None) == 9
    commit(table, 10, NOON.replace(minute=10))
    assert versions.of(table, None) == 9
    assert versions.of(table, "2099-01-01") == 9
    assert of(table, None) == 10


def test_a_table_that_is_not_made_yet_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"silver\.none is not created yet"):
        of(Readable("silver.none", str(tmp_path / "none")), None)
