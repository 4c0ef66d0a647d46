"""When commits were made, found by few looks; the last batches of a log."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor.table_log import longest_pause, oldest_version, read_recent_commits, version_at
from penstock.ledger.delta_log import RecentLog
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import TABLE, HandLog, at, entry

HOUR = 3_600_000


def written(folder: Path, times: list[int], first: int = 0) -> RecentLog:
    """A log whose commits were made at these times, in ms."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, time in enumerate(times, start=first):
        info = {"operation": "WRITE", "inCommitTimestamp": time}
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))
    return RecentLog(LocalStore(), str(folder), "t")


def test_the_longest_pause_is_found_exactly_where_it_stands_out(tmp_path: Path) -> None:
    times = [minute * 60_000 for minute in range(1, 2001)]
    times = [time + (9 * HOUR if version >= 1234 else 0) for version, time in enumerate(times)]
    log = written(tmp_path, times)
    pause = longest_pause(log)
    assert pause is not None
    assert (pause.seconds, pause.before_version, pause.exact) == (9 * 3600 + 60, 1234, True)
    assert len(log._read) < 300


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_pause_is_never_underestimated(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    times = [1_000_000]
    for _ in range(chance.randrange(1, 400)):
        times.append(times[-1] + round(chance.paretovariate(0.8) * 1000))
    truth = max(later - earlier for earlier, later in pairwise(times)) / 1000
    pause = longest_pause(written(tmp_path, times), looks=40)
    assert pause is not None
    assert pause.seconds == truth if pause.exact else pause.seconds <= truth <= pause.at_most


def test_where_nothing_stands_out_a_bound_is_given(tmp_path: Path) -> None:
    pause = longest_pause(written(tmp_path, [n * 1000 for n in range(1, 1025)]), looks=31)
    assert pause is not None and not pause.exact
    assert 1 <= pause.at_most <= 33


def test_one_commit_has_no_pause(tmp_path: Path) -> None:
    assert longest_pause(written(tmp_path, [5])) is None


def test_a_commit_without_a_time_is_no_pause(tmp_path: Path) -> None:
    pause = longest_pause(written(tmp_path, [1_000_000, 1_010_000, 0, 1_030_000]))
    assert pause is not None and pause.seconds <= 20


@pytest.mark.parametrize("first", [0, 1, 17])
def test_the_oldest_commit_of_a_log_that_was_cleaned_up(tmp_path: Path, first: int) -> None:
    assert oldest_version(written(tmp_path, [1, 2, 3, 4], first)) == first


def test_no_log_has_no_oldest_commit(tmp_path: Path) -> None:
    assert oldest_version(RecentLog(LocalStore(), str(tmp_path), "t")) == -1


def test_the_version_of_a_time(tmp_path: Path) -> None:
    log = written(tmp_path, [100, 200, 300, 400], 5)
    assert [version_at(log, time) for time in (99, 100, 250, 300, 9999)] == [None, 5, 6, 7, 8]


def batch(log: HandLog, number: int, began_ms: int, committed_ms: int, **more: Any) -> None:
    """Batch `number` reads one record."""
    from dataclasses import replace

    made = entry(number, at(number - 1), at(number), **more)
    made = replace(made, pins=replace(made.pins, time_ms=began_ms))
    version = log.batch(made)
    text = log.path(version).read_text()
    log.path(version).write_text(
        text.replace(f'"inCommitTimestamp": {1_700_000_000_000 + version}', "X").replace(
            "X", f'"inCommitTimestamp": {committed_ms}'
        )
    )


def test_batches_know_how_long_they_took(tmp_path: Path) -> None:
    log = HandLog(tmp_path)
    log.begin(at(0))
    for number, seconds in enumerate([40, 1, 2, 3], start=1):
        batch(log, number, number * 100_000, number * 100_000 + seconds * 1000)
    found = read_recent_commits(RecentLog(LocalStore(), log.uri, TABLE))
    assert [(one.number, one.seconds) for one in found.batches] == [(4, 3), (3, 2), (2, 1), (1, 40)]
    assert found.usual_seconds == 2.5
    assert (found.commits, found.newest_ms, found.generations_opened, found.duplicates) == (5, 403_000, 0, ())


def test_a_batch_that_was_written_twice_is_found(tmp_path: Path) -> None:
    log = HandLog(tmp_path)
    log.begin(at(0))
    batch(log, 1, 1000, 2000)
    batch(log, 2, 3000, 4000)
    batch(log, 2, 3000, 4100)
    found = read_recent_commits(RecentLog(LocalStore(), log.uri, TABLE))
    assert found.duplicates == ((2, 3),)
    assert [one.number for one in found.batches] == [2, 1]


def test_a_compaction_that_repeats_the_text_of_a_batch_is_none(tmp_path: Path) -> None:
    log = HandLog(tmp_path)
    log.begin(at(0))
    batch(log, 1, 1000, 2000)
    log.commit("OPTIMIZE", note=entry(1, at(0), at(1)), adds=1, removes=3, change=False)
    assert read_recent_commits(RecentLog(LocalStore(), log.uri, TABLE)).duplicates == ()


def test_rows_of_others_count_from_the_beginning_of_the_ledger(tmp_path: Path) -> None:
    log = HandLog(tmp_path)
    log.commit("WRITE", adds=1)
    log.begin(at(0))
    log.commit("WRITE", adds=2, rows=7)
    found = read_recent_commits(RecentLog(LocalStore(), log.uri, TABLE))
    assert [(commit.version, commit.rows) for commit in found.foreign_appends] == [(2, 14)]
