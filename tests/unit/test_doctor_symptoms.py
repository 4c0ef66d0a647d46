"""What people see first, told from states, lags and commits written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor import rejected as rejected_rows
from penstock.doctor.backlog import Backlog
from penstock.doctor.check import Check
from penstock.doctor.rejected import (
    Rejected,
    Rescued,
    SilenceEvidence,
    foreign,
    quarantine,
    read_rejected,
    read_rescued,
    reason_text,
    rescued,
    silent,
    state,
)
from penstock.doctor.table_log import Pause, RecentCommits
from penstock.ledger.delta_log import Commit, Origin
from penstock.ledger.entry import Counts, Kind
from penstock.ledger.row_counts import READ
from penstock.operations.status import Status
from penstock.plan.model import TablePlan, TriggerPlan
from penstock.plan.quarantine import quarantine_of
from penstock.storage.stores import LocalStore
from tests.bronze_table import table_plan
from tests.unit.hand_ledgers import HandLog, at, entry

NOW = 1_800_000_000_000
HOUR = 3600
EVERY_30S = TriggerPlan("interval", 30.0)


def status(kind: str = "running", **more: Any) -> Status:
    given = {"generation": 1, "batch": 7, "rows": 500, "last_commit_ms": NOW - 10_000, "process": 77, **more}
    return Status("bronze.orders", kind, **given)


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("running", "ok"),
        ("finished", "ok"),
        ("retrying", "warn"),
        ("not created", "note"),
        ("failed", "red"),
        ("crashed", "red"),
        ("unreadable", "red"),
    ],
)
def test_a_state_is_as_bad_as_it_is(kind: str, level: str) -> None:
    check = state(status(kind, reason="the disk is full", hint="make room", since="2026-03-01T10:00:00Z"))
    assert check.level == level
    if level in ("red", "warn"):
        assert "since 2026-03-01T10:00:00Z: the disk is full" in check.found
        assert check.fix == "make room"


def quiet_check(
    one: Status, backlog: Backlog, quiet: SilenceEvidence | None = None, pause: Pause | None = None, **more: Any
) -> Check:
    return silent(one, quiet or SilenceEvidence(EVERY_30S, "earliest", **more), backlog, RecentCommits(), pause, NOW)


def waits(lag: int, seconds: float) -> Backlog:
    return Backlog(lag, oldest_ms=NOW - round(seconds * 1000))


def test_a_table_into_which_batches_come_is_fine() -> None:
    assert quiet_check(status(), waits(100, 5)).level == "ok"
    read = quiet_check(status(), Backlog(0), newest_ms=NOW - 7_200_000)
    assert (read.level, "the newest record of its topics is 2 h old" in read.found) == ("ok", True)


def test_a_table_that_runs_without_a_batch_though_something_waits_is_red() -> None:
    stuck = status(last_commit_ms=NOW - 600_000)
    check = quiet_check(stuck, waits(100, 500))
    assert check.level == "red"
    assert (
        check.found
        == "100 records wait, the oldest for 8 min 20 s; it runs (process 77), but its last commit is 10 min old"
    )
    assert quiet_check(stuck, waits(100, 20)).level == "ok"  # what waits has only just come
    slow = SilenceEvidence(TriggerPlan("interval", 3600.0), "earliest")
    assert quiet_check(stuck, waits(100, 500), slow).level == "ok"  # its trigger is an hour


def test_a_stopped_table_is_worse_the_longer_it_stands() -> None:
    ended = status("stopped", since="2026-03-01T10:00:00Z")
    assert quiet_check(ended, waits(9, 600)).level == "note"
    assert quiet_check(ended, waits(9, 3 * HOUR)).level == "warn"
    usual = quiet_check(status("finished"), waits(9, 3 * HOUR), pause=Pause(6 * HOUR, 3))
    late = quiet_check(status("finished"), waits(9, 7 * HOUR), pause=Pause(6 * HOUR, 3))
    assert (usual.level, late.level) == ("note", "warn")
    assert "longer than any pause before (6 h)" in late.found
    assert late.fix == "`penstock run bronze.orders`"


def test_a_crashed_table_with_records_waiting_is_warned_of_at_once() -> None:
    check = quiet_check(status("crashed"), waits(9, 5), pause=Pause(60, 3))
    assert (check.level, check.found) == (
        "warn",
        "9 records wait, the oldest for 5 s; the table is not running: it is crashed",
    )


def test_an_empty_table_says_why() -> None:
    empty = status(rows=0, batch=0)
    topic = quiet_check(empty, Backlog(0), records_held=0)
    assert (topic.level, "so are its topics" in topic.found) == ("note", True)
    latest = quiet_check(empty, Backlog(0), SilenceEvidence(EVERY_30S, "latest", records_held=1200))
    assert "its topics hold 1,200 records from before" in latest.found
    assert "--to earliest" in latest.fix
    dropped = quiet_check(status(rows=0, batch=4), Backlog(0), records_held=9)
    assert "4 batches of this generation left no row" in dropped.found
    first = quiet_check(empty, waits(5, 3), SilenceEvidence(TriggerPlan("interval", 3600.0), "earliest"))
    assert (first.level, "the first batch has not begun: the trigger is 1 h" in first.found) == ("note", True)


def test_what_cannot_be_known_is_unknown() -> None:
    away = quiet_check(status(), Backlog(None, unknown="Kafka does not answer"))
    assert (away.level, away.found) == ("unknown", "Kafka does not answer")
    assert quiet_check(status("not created"), Backlog(None)).level == "unknown"


def commit(version: int, origin: Origin, rows: int = 3, operation: str = "WRITE") -> Commit:
    changes = origin is Origin.FOREIGN_CHANGE
    return Commit(version, NOW, operation, origin, None, rows, 10, 1, int(changes), None, changes)


def test_rows_that_others_added_are_warned_of() -> None:
    check = foreign(status(), RecentCommits(foreign_appends=(commit(9, Origin.FOREIGN_APPEND),), commits=40))
    assert check.level == "warn"
    assert check.found == "3 rows were added by others in 1 commit of the last 40 (version 9)"
    assert "penstock verify bronze.orders" in check.fix


def test_a_batch_that_is_there_twice_is_red() -> None:
    check = foreign(status(), RecentCommits(duplicates=((4, 5),), commits=40))
    assert (check.level, "versions 4 and 5" in check.found) == ("red", True)


def test_a_change_that_nobody_decided_about_is_red() -> None:
    check = foreign(status(foreign=(commit(9, Origin.FOREIGN_CHANGE, operation="DELETE"),)), RecentCommits(commits=3))
    assert (check.level, "version 9 (DELETE)" in check.found) == ("red", True)


def test_only_our_own_commits_are_fine() -> None:
    assert foreign(status(), RecentCommits(commits=40)).level == "ok"


@pytest.mark.parametrize(
    ("rows", "read", "level"),
    [(0, 100, "ok"), (1, 1000, "note"), (20, 1000, "warn"), (600, 1000, "red"), (5, None, "warn")],
)
def test_the_share_of_rejected_rows_decides(rows: int, read: int | None, level: str) -> None:
    check = quarantine("silver.orders", Rejected(86_400, rows, read, {"wrong_type amount": rows}, 4))
    assert check.level == level
    if rows == 20:
        assert check.found == (
            "20 rows to quarantine in the last 1 d (2.0% of 1,000 read): 20 wrong_type amount; 4 in the time before"
        )


def test_what_a_record_held_is_not_in_a_reason() -> None:
    assert reason_text("wrong_type", 'amount: "4111 1111" is not of type DECIMAL(12,2)') == "wrong_type amount"
    assert reason_text("malformed_json", 'not JSON, at byte 25: {"card": 4111') == "malformed_json"
    assert reason_text("expectation", "has_id, positive") == "expectation has_id, positive"
    assert reason_text("missing_field", "a\x1b[31mb") == "missing_field a?[31mb"
    assert reason_text(None, None) == "without a reason"


def test_fields_that_the_schema_does_not_name_are_counted_from_statistics(tmp_path: Any) -> None:
    import json

    from penstock.storage.stores import LocalStore

    log = tmp_path / "_delta_log"
    log.mkdir()
    for version, stats in enumerate([{"numRecords": 10, "nullCount": {"_rescued": 7}}, {"numRecords": 5}]):
        add = {"add": {"path": "a", "stats": json.dumps(stats)}}
        (log / f"{version:020d}.json").write_text(f"{json.dumps({'commitInfo': {}})}\n{json.dumps(add)}\n")
    store = LocalStore()
    assert read_rescued(store, str(tmp_path), [0]) == Rescued(3, 10, 1)
    assert read_rescued(store, str(tmp_path), [0, 1]) is None
    assert rescued("silver.orders", Rescued(3, 10, 1)).level == "note"
    assert rescued("silver.orders", Rescued(0, 10, 1)).level == "ok"
    assert rescued("silver.orders", Rescued(9, 10, 1)).level == "warn"


DAY_MS = 86_400_000


class RejectingTable:
    """A table of which each batch reads `read` rows and rejects `rejects` more, in two logs written by hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rejected_rows, "_count_reasons", lambda uri, since: {})
        self.plan: TablePlan = table_plan(str(folder / "orders"))
        beside = quarantine_of(self.plan.name, self.plan.uri)
        self.log, self.rejects = HandLog(Path(self.plan.uri), self.plan.name), HandLog(Path(beside.uri), beside.table)
        self._read = self._rejected = self._last_read = self._last_rejects = self._batch = 0
        self._beside = beside.table

    def commit(self, days: float, *, kind: Kind = "batch", read: int = 0, rejects: int = 0, batch: bool = True) -> None:
        """A batch that was committed so many days ago; the entries count what came before it."""
        time_ms = round(NOW - days * DAY_MS)
        self._batch += kind == "batch"
        for log, name in ((self.log, self.plan.name), (self.rejects, self._beside)):
            counts = Counts(0, self._rejected, {READ: self._read} if self._read else {})
            written = replace(entry(self._batch, at(0), at(0), kind=kind, table=name), counts=counts)
            log.commit("WRITE", note=written, adds=int(rejects > 0), rows=rejects, time_ms=time_ms)
        self._read, self._rejected = self._read + read, self._rejected + rejects
        if kind in ("batch", "fill"):
            LocalStore().write(f"{self.plan.checkpoints}/1/fates/{self._batch}", f'{{"{READ}": {read}}}')

    def maintain(self, days: float) -> None:
        for log in (self.log, self.rejects):
            log.commit("OPTIMIZE", time_ms=round(NOW - days * DAY_MS))

    def clean(self, versions: int) -> None:
        """The logs lose their first versions, as by Delta's retention."""
        for log in (self.log, self.rejects):
            for version in range(versions):
                log.path(version).unlink()

    def last_day(self) -> Rejected:
        result = read_rejected(self.plan, LocalStore(), NOW)
        assert result is not None
        return result


@pytest.fixture
def rejecting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RejectingTable:
    table = RejectingTable(tmp_path, monkeypatch)
    table.commit(9, kind="genesis")
    return table


def test_only_rows_of_the_period_count_as_read(rejecting: RejectingTable) -> None:
    for days, read, rejects in ((3, 1000, 500), (1.5, 300, 20), (0.5, 100, 5), (0.2, 50, 1)):
        rejecting.commit(days, read=read, rejects=rejects)
    last_day = rejecting.last_day()
    assert (last_day.seconds, last_day.rows, last_day.read, last_day.before) == (86_400, 6, 150, 20)


def test_a_day_without_a_batch_read_nothing(rejecting: RejectingTable) -> None:
    rejecting.commit(3, read=1000, rejects=500)
    rejecting.maintain(0.5)
    last_day = rejecting.last_day()
    assert (last_day.rows, last_day.read) == (0, 0)


def test_a_young_table_counts_from_its_creation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = RejectingTable(tmp_path, monkeypatch)
    table.commit(0.25, kind="genesis")
    table.commit(0.2, read=40, rejects=4)
    last_day = table.last_day()
    assert (last_day.seconds, last_day.rows, last_day.read, last_day.before) == (21_600, 4, 40, None)


@pytest.mark.parametrize("versions", [2, 3, 4])
def test_a_log_that_was_cleaned_within_the_day_counts_from_its_first_entry(
    rejecting: RejectingTable, versions: int
) -> None:
    rejecting.commit(3, read=1000, rejects=500)
    rejecting.commit(0.75, read=300, rejects=20)
    rejecting.maintain(0.7)
    rejecting.commit(0.5, read=100, rejects=5)
    rejecting.commit(0.25, read=50, rejects=1)
    rejecting.clean(versions)
    last_day = rejecting.last_day()
    expected = (64_800, 6, 150) if versions == 2 else (43_200, 1, 50)
    assert (last_day.seconds, last_day.rows, last_day.read) == expected
    assert last_day.before is None


def test_rows_that_a_replay_read_again_are_counted(rejecting: RejectingTable) -> None:
    rejecting.commit(0.5, kind="fill", read=70)
    assert rejecting.last_day().read == 70
