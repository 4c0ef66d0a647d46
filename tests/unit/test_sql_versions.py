"""Which version of a table a query reads, from its log alone."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.errors import UsageError
from penstock.sql.versions import Readable, Versions
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
    orders = Readable("silver.orders", str(tmp_path / "orders"))
    for version in range(10):
        commit(orders, version, NOON.replace(minute=version))
    return orders


def as_of(table: Readable, time: str) -> int:
    milliseconds = round(datetime.fromisoformat(time).replace(tzinfo=UTC).timestamp() * 1000)
    return Versions(LocalStore()).as_of(table, milliseconds).version


def numbered(table: Readable, version: int) -> int:
    return Versions(LocalStore()).numbered(table, version).version


@pytest.mark.parametrize(
    ("time", "version"),
    [
        ("2026-05-14 12:00", 0),
        ("2026-05-14 12:03", 3),
        ("2026-05-14 12:03:59.999", 3),
        ("2026-05-14 12:04", 4),
        ("2026-05-14 12:09", 9),
        ("2026-05-15", 9),
        ("2099-01-01", 9),
    ],
)
def test_a_time_is_the_newest_commit_at_or_before_it(table: Readable, time: str, version: int) -> None:
    assert as_of(table, time) == version


def test_a_version_is_found_by_its_number_and_the_newest_without_one(table: Readable) -> None:
    assert [numbered(table, version) for version in (0, 7, 9)] == [0, 7, 9]
    newest = Versions(LocalStore()).newest(table)
    assert newest.version == 9 and str(newest) == "silver.orders version 9"


@pytest.mark.parametrize("version", [10, 999999999999999999999])
def test_a_version_that_is_not_there_says_which_are(table: Readable, version: int) -> None:
    with pytest.raises(UsageError, match=r"silver\.orders has no version .*: it has versions 0 to 9") as raised:
        numbered(table, version)
    assert raised.value.hint is not None and "penstock history silver.orders" in raised.value.hint


def test_a_quarantine_has_no_history_so_its_newest_version_is_named(tmp_path: Path) -> None:
    quarantine = Readable("silver.orders__quarantine", str(tmp_path / "orders__quarantine"))
    commit(quarantine, 0, NOON)
    with pytest.raises(UsageError, match="it has version 0 only") as raised:
        numbered(quarantine, 1)
    assert raised.value.hint == "write silver.orders__quarantine VERSION AS OF 0"


def test_versions_that_the_log_no_longer_has_are_not_there(table: Readable) -> None:
    for version in range(4):
        (Path(table.uri) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(UsageError, match="versions 4 to 9"):
        numbered(table, 3)
    assert numbered(table, 4) == 4
    assert as_of(table, "2026-05-14 12:04") == 4
    with pytest.raises(UsageError, match="oldest version, 4, was written at 2026-05-14 12:04:00 UTC"):
        as_of(table, "2026-05-14 12:03")


@pytest.mark.parametrize(
    ("time", "shown"), [("2026-05-14", "2026-05-14 00:00:00 UTC"), ("0001-01-01", "1970-01-01 00:00:00 UTC")]
)
def test_a_time_before_the_table_was_created_says_when_that_was(table: Readable, time: str, shown: str) -> None:
    with pytest.raises(UsageError, match=rf"as of {shown}: .* was written at 2026-05-14 12:00:00 UTC") as raised:
        as_of(table, time)
    assert raised.value.hint is not None and "silver.orders VERSION AS OF 0" in raised.value.hint


def test_within_one_query_the_newest_version_stays_the_same(table: Readable) -> None:
    versions = Versions(LocalStore())
    assert versions.newest(table).version == 9
    commit(table, 10, NOON.replace(minute=10))
    assert versions.newest(table).version == 9
    assert versions.as_of(table, 4_000_000_000_000).version == 9
    assert Versions(LocalStore()).newest(table).version == 10


def test_a_table_that_is_not_created_yet_says_so(tmp_path: Path) -> None:
    none = Readable("silver.none", str(tmp_path / "none"))
    for ask in (Versions.newest, lambda versions, table: versions.numbered(table, 0)):
        with pytest.raises(UsageError, match=r"silver\.none is not created yet"):
            ask(Versions(LocalStore()), none)
