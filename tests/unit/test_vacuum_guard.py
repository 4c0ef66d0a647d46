"""How far a vacuum may go: never as far as a file that a stream still needs, whatever retention is asked for."""

from __future__ import annotations

import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from penstock.maintenance import vacuum as vacuum_module
from penstock.maintenance.retention import HOUR_MS, MARGIN_MS, Horizon, Need, horizon, hours, same_place, span_text
from penstock.maintenance.tables import DAY_MS, known_since_ms, maintained_tables, retention_ms
from penstock.maintenance.vacuum import TableVacuum, vacuum
from penstock.storage.layout import Layout
from penstock.storage.stores import LocalStore
from tests.bronze_table import plan_of, table_plan
from tests.unit.vacuum_lake import TABLE, Lake, at_version, make_plan

NOW = 1_800_000_000_000


def test_whole_hours_are_asked_for_and_never_fewer_than_the_horizon_wants() -> None:
    for ago in (1, HOUR_MS // 2, HOUR_MS, HOUR_MS + 1, 100 * HOUR_MS - 1, 168 * HOUR_MS):
        found = hours(NOW, Horizon("t", NOW, NOW - ago, (), batches_paused=True))
        assert isinstance(found, int) and found >= 1
        assert NOW + MARGIN_MS - found * HOUR_MS <= NOW - ago, "also if Delta looks at its clock ten minutes later"
        assert found * HOUR_MS < ago + MARGIN_MS + HOUR_MS or found == 1, "and not an hour more"


def test_no_hour_at_all_only_where_nobody_writes_and_nobody_needs_anything() -> None:
    up_to_date = Need("silver.a", "has read", NOW, 7)
    behind = Need("silver.b", "has read", NOW - 1, 6)
    for still, readers, wanted in [(True, [up_to_date], 0), (True, [behind], 1), (False, [up_to_date], 1)]:
        assert hours(NOW + 5, horizon("t", NOW, readers, NOW - 7 * DAY_MS, still=still)) == wanted


def test_the_oldest_need_is_the_horizon_and_the_limits_are_told() -> None:
    early, late = Need("silver.a", "has read", NOW - 5 * HOUR_MS, 7), Need("silver.b", "has read", NOW - HOUR_MS, 9)
    found = horizon("t", NOW, [late, early], NOW - 7 * DAY_MS)
    assert found.at_ms == NOW - 5 * HOUR_MS
    assert found.limits == (early, late)
    assert horizon("t", NOW - 3 * HOUR_MS, [late, early], 0).limits == (early,)
    assert horizon("t", NOW - 9 * HOUR_MS, [late, early], 0).at_ms == NOW - 9 * HOUR_MS, "less was asked for"


def test_nothing_goes_if_one_cannot_be_told_or_is_older_than_what_delta_remembers() -> None:
    unclear = horizon("t", NOW, [Need("silver.a", "is a riddle", None)], NOW - 7 * DAY_MS)
    assert (unclear.at_ms, unclear.why) == (None, "silver.a is a riddle")
    for since, goes in ((NOW - 8 * DAY_MS, False), (NOW - 7 * DAY_MS, False), (NOW - 6 * DAY_MS, True)):
        found = horizon("t", NOW, [Need("silver.a", "is far behind", since)], NOW - 7 * DAY_MS)
        assert (found.at_ms is not None) is goes
        assert goes or (found.why or "").startswith("silver.a is far behind, and Delta has forgotten")
    window = Need("the replay window", "of 7d", NOW - 7 * DAY_MS, window=True)
    assert horizon("t", NOW, [window], NOW - 7 * DAY_MS).at_ms == NOW - 7 * DAY_MS, "a window of just that length fits"
    assert horizon("t", NOW - 8 * DAY_MS, [], NOW - 7 * DAY_MS).at_ms is None, "more was asked for than is remembered"


def test_nothing_goes_where_nothing_was_to_go_when_it_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that only had to remember longer, and whose reader has moved on since."""
    table = table_plan(str(tmp_path / "lake/bronze/orders"))
    (place,) = maintained_tables(table)
    listed = TableVacuum(place, table, Horizon(place.name, NOW, None, (), "silver.a is a riddle"), remember_ms=1)
    by_now = TableVacuum(place, table, Horizon(place.name, NOW, NOW, ()), candidates=True)
    asked: list[str] = []

    def list_removable(*_: Any) -> list[str]:
        asked.append("Delta")
        return []

    monkeypatch.setattr(vacuum_module, "snapshot_layout", lambda *_: Layout(0, ()))
    monkeypatch.setattr(vacuum_module, "plan_table_vacuum", lambda *_, **__: by_now)
    monkeypatch.setattr(vacuum_module, "list_removable", list_removable)
    given: Any = (None, plan_of(tmp_path, table), table, place, LocalStore())
    done = vacuum(*given, by="a test", pause_batches=nullcontext, planned=listed)
    assert (done.files, done.horizon.at_ms, done.horizon.why, asked) == (0, None, "silver.a is a riddle", [])
    vacuum(*given, by="a test", pause_batches=nullcontext)
    assert asked == ["Delta"], "without a plan that was shown, as far as it may go now"


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 7 days", 7),
        ("14 days", 14),
        ("INTERVAL 1 week 12 hours", 7.5),
        ("interval 30 fortnights", 0),
        ("", 0),
    ],
)
def test_the_retention_of_a_table_is_read_as_delta_writes_it(text: str, days: float) -> None:
    assert retention_ms({"delta.deletedFileRetentionDuration": text}) == days * DAY_MS


def test_what_was_forgotten_before_a_longer_retention_does_not_come_back() -> None:
    longer = {"delta.deletedFileRetentionDuration": "interval 336 hours"}
    assert known_since_ms({}, NOW) == NOW - 7 * DAY_MS
    assert known_since_ms(longer, NOW) == NOW - 14 * DAY_MS
    since = str(NOW - 8 * DAY_MS)
    assert known_since_ms({**longer, "penstock.removed.since": since}, NOW) == NOW - 8 * DAY_MS


def test_a_table_by_another_spelling_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    assert same_place(str(tmp_path / "lake"), str(tmp_path / "link"))
    assert same_place(f"file://{tmp_path}/lake", f"{tmp_path}/lake/")
    assert same_place("s3a://bucket/t", "s3://bucket/t/") and not same_place("s3a://bucket/t", "s3a://bucket/u")


@pytest.mark.parametrize(
    ("ms", "text"), [(0, "0s"), (90_000, "1m30s"), (7 * DAY_MS + 61_000, "7d"), (7_800_000, "2h10m")]
)
def test_spans_are_said_shortly(ms: int, text: str) -> None:
    assert span_text(ms) == text


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(make_plan(tmp_path))
    for _ in range(4):
        made.append()
    return made


def _limit(lake: Lake, who: str) -> Need:
    return next(need for need in lake.horizon().needs if need.reader == who)


def test_a_reader_that_has_stopped_keeps_what_was_compacted_since(lake: Lake) -> None:
    lake.reads("silver.orders", at_version(2), at_version(3))
    lake.pass_(50)
    lake.optimize()
    removed = lake.now
    lake.pass_(100)
    assert _limit(lake, "silver.orders").what == "has read it up to version 1 of 5"
    found = lake.horizon()
    assert found.at_ms is not None and found.at_ms < removed, "at the time that the removals name"
    assert not lake.deleted(found)
    lake.reads("silver.orders", at_version(6))
    assert lake.deleted(lake.horizon()) == {"part-0", "part-1", "part-2", "part-3"}, "read on, it needs nothing more"


def test_a_reader_of_the_whole_table_keeps_all_of_that_version(lake: Lake) -> None:
    lake.reads("silver.orders", at_version(4, index=1, snapshot=True))
    lake.optimize()
    lake.pass_(30)
    assert _limit(lake, "silver.orders").what == "is reading the whole table as of version 4"
    assert not lake.deleted(lake.horizon())


def test_removals_that_are_dated_back_behind_the_position_count(lake: Lake) -> None:
    """An OPTIMIZE of three hours, and a reader that was told to begin while it ran."""
    lake.optimize(took=3, meanwhile=2)
    lake.reads("silver.orders", at_version(5, snapshot=True), batch=0)
    assert lake.added["part-4"] == 5
    lake.pass_(20)
    assert lake.needed(at_version(5, snapshot=True), changes=False) >= {"part-0", "part-3"}
    assert not lake.deleted(lake.horizon())


def test_a_follower_of_changes_keeps_the_files_of_the_feed(lake: Lake) -> None:
    lake.append(feeds=True)
    lake.reads("silver.audit", at_version(5))
    lake.pass_(40)
    lake.append(feeds=True)
    lake.pass_(40)
    assert not lake.deleted(lake.horizon()), "nothing is removed, and files of the feed go by their own time"
    lake.reads("silver.audit", at_version(6))
    assert lake.deleted(lake.horizon()) == {"_change_data/cdc-5"}
    lake.reads("silver.audit", at_version(6, index=0))
    lake.pass_(40)
    assert lake.deleted(lake.horizon()) == {"_change_data/cdc-5", "_change_data/cdc-6"}, "it has read the last of them"


def test_a_lookup_keeps_the_version_that_its_last_batch_has_seen(lake: Lake) -> None:
    lake.reads("silver.other", at_version(0), lookups={"o": 4})
    lake.pass_(5)
    lake.optimize()
    lake.pass_(5)
    need = _limit(lake, "silver.other")
    assert (need.what, need.version) == ("has looked up rows in version 4", 4)
    assert not lake.deleted(lake.horizon())


def test_a_function_on_streams_keeps_what_each_of_its_inputs_needs(lake: Lake) -> None:
    from dataclasses import replace

    from penstock.plan.model import StreamPlan
    from penstock.plan.sources import DeltaSource

    table = lake.plan.table("silver.orders")
    assert table is not None and isinstance(table.source, DeltaSource)
    other = replace(table.source, uri="/elsewhere", table="silver.else")
    stream = StreamPlan("s.py", "f", "", {"a": other, "b": table.source, "c": table.source}, "append")
    tables = tuple(replace(one, stream=stream) if one is table else one for one in lake.plan.tables)
    lake.plan = replace(lake.plan, tables=tables)
    streams = {"streams": {"a": "silver.else", "b": TABLE, "c": TABLE}, "order": ["c", "a", "b"]}
    lake.reads("silver.orders", at_version(4), subscription=streams, others=(at_version(1), at_version(2)))
    lake.optimize()
    lake.pass_(30)
    assert {need.version for need in lake.horizon().needs if need.reader == "silver.orders"} == {2}, "not 1: of another"
    assert not lake.deleted(lake.horizon())


def test_a_batch_in_flight_keeps_its_files(lake: Lake) -> None:
    """It writes for longer than any batch before it, and its files are in no version yet. On a local lake the run lock
    says whether somebody is at work; elsewhere nobody can tell."""
    from dataclasses import replace

    from penstock.ledger.checkpoint import heal
    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.head import read_head
    from penstock.storage.stores import LocalStore

    table = lake.plan.table(TABLE)
    assert table is not None
    tail = read_head(DeltaLog(LocalStore(), table.uri, TABLE))
    assert tail is not None
    lake.pass_(1)
    began = lake.now
    heal(LocalStore(), f"{table.checkpoints}/1", tail.entry)
    planned = Path(table.checkpoints) / "1" / "offsets" / str(tail.entry.batch)
    planned.write_text(planned.read_text().replace(str(tail.entry.pins.time_ms), str(began)))
    lake.files["part-in-flight"] = lake.now
    lake.pass_(9)
    assert "part-in-flight" in lake.deleted(lake.horizon()), "left by a runner that is dead"
    lake.plan = replace(lake.plan, lake="s3a://bucket/lake")
    assert "part-in-flight" not in lake.deleted(lake.horizon())
    assert "has had a batch under way" in _limit(lake, TABLE).what


def test_never_less_than_an_hour_and_the_longest_batch(lake: Lake) -> None:
    lake.append(took=3)
    lake.optimize()
    lake.pass_(2)
    assert not lake.deleted(lake.horizon())
    lake.pass_(3)
    assert len(lake.deleted(lake.horizon())) == 5


def test_windows_of_the_project_file_hold_whatever_is_asked_for(tmp_path: Path) -> None:
    vacuum = "maintenance: {vacuum: {replay_window: 2 days, external_readers: [%s]}}\n"
    reader = f"{{name: bi, table: {TABLE}, lag: 3 days}}"
    lake = Lake(make_plan(tmp_path, vacuum % reader))
    lake.append()
    lake.append()
    lake.optimize()
    lake.pass_(60)
    assert not lake.deleted(lake.horizon()), "bi may be 72 hours behind"
    assert [need.reader for need in lake.horizon().limits][:2] == ["bi", "the replay window"]
    lake.pass_(20)
    assert len(lake.deleted(lake.horizon())) == 2


def test_a_reader_that_is_not_made_yet_keeps_the_version_at_which_it_will_begin(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, "  gold.late: {from: {table: bronze.orders, starting: {version: 2}}}\n")
    lake = Lake(plan)
    for _ in range(4):
        lake.append()
    lake.optimize()
    lake.pass_(30)
    assert _limit(lake, "gold.late").what == "is not made yet, and begins at version 2"
    assert not lake.deleted(lake.horizon())


@pytest.mark.parametrize("broken", ["no entry", "log gone", "went back"])
def test_nothing_goes_while_a_reader_cannot_be_understood(broken: str, lake: Lake) -> None:
    lake.reads("silver.orders", at_version(9 if broken == "went back" else 2))
    lake.optimize()
    lake.pass_(30)
    table = lake.plan.table("silver.orders")
    assert table is not None
    if broken == "no entry":
        (Path(table.uri) / "_delta_log" / f"{0:020d}.json").write_text('{"commitInfo":{"operation":"WRITE"}}')
    if broken == "log gone":
        (Path(lake.uri) / "_delta_log" / f"{3:020d}.json").unlink()
    found = lake.horizon()
    assert found.at_ms is None and "silver.orders" in (found.why or "")
    assert not lake.deleted(found)


def test_a_table_that_was_made_again_is_needed_by_none_of_its_old_readers(lake: Lake) -> None:
    from penstock.ledger.position import Version

    lake.reads("silver.orders", Version("another-id", 12))
    lake.optimize()
    lake.pass_(30)
    assert len(lake.deleted(lake.horizon())) == 4


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happened_no_reader_loses_a_file(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    lake = Lake(make_plan(tmp_path))
    for _ in range(chance.randint(4, 25)):
        lake.pass_(chance.choice([0.01, 0.2, 3, 30]))
        if chance.random() < 0.3:
            lake.optimize(took=chance.choice([0.01, 1, 5]), meanwhile=chance.randint(0, 3))
        else:
            lake.append(
                chance.choice([0.001, 0.1, 2]), feeds=chance.random() < 0.5, replaces=chance.choice([0, 0, 1, 2])
            )
    readers = {"silver.orders": False, "silver.audit": True}
    positions = {}
    for name in readers:
        snapshot = chance.random() < 0.3
        version = chance.randint(0, lake.version + (not snapshot))
        index = -1 if version > lake.version else chance.choice([-1, -1, 0, 3])
        positions[name] = at_version(version, index=index, snapshot=snapshot)
        lake.reads(name, positions[name])
    looked_up = chance.randint(0, lake.version)
    lake.reads("silver.other", at_version(0), lookups={"o": looked_up})
    lake.pass_(chance.choice([0, 1, 10, 100, 300]))
    found = lake.horizon(retain=chance.choice([0, 0, 24]))
    gone = lake.deleted(found, late=chance.choice([0, 0.1, 0.16]))
    for name, changes in readers.items():
        assert not gone & lake.needed(positions[name], changes=changes), (name, positions[name], found)
    assert not gone & set(lake.active(looked_up))
    assert not gone & set(lake.active())
