"""Rates over a window, from ledgers made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.ledger.delta_log import Commit, Origin
from penstock.ledger.entry import Counts, Entry, dump, parse
from penstock.ledger.row_counts import store_row_counts
from penstock.operations.status import MOST_BATCHES, Rates, read_rates
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import at, entry, genesis

NOW = 1_800_000_000_000


def commit(note: Entry | None, seconds_ago: float, rows: int) -> Commit:
    origin = Origin.LEDGER if note is not None else Origin.MAINTENANCE
    return Commit(0, round(NOW - seconds_ago * 1000), "WRITE", origin, note, rows, 0, 1, 0, None)


def batch(number: int, seconds_ago: float, rows: int, took: float = 1.0, read: int | None = None) -> Commit:
    """`read` is the total of the batches before this one."""
    started = round(NOW - (seconds_ago + took) * 1000)
    made = replace(entry(number, at(0), at(1)), started_ms=started)
    if read is not None:
        made = replace(made, counts=Counts(0, 0, {"read": read}))
    return commit(made, seconds_ago, rows)


def found(folder: Path, *newest_first: Commit) -> Rates:
    return read_rates(newest_first, LocalStore(), str(folder), now_ms=NOW)


def test_input_is_per_second_of_the_window_and_processing_per_second_of_batches(tmp_path: Path) -> None:
    one = found(tmp_path, batch(3, 10, 600, 2.0), commit(None, 20, 9), batch(2, 70, 900, 3.0), batch(1, 400, 5000))
    assert one.input_rows_per_second == 1500 / 300
    assert one.processed_rows_per_second == 1500 / 5
    assert one.last is not None and (one.last.batch, one.last.rows, one.last.seconds) == (3, 600, 2.0)


def test_an_idle_table_reads_nothing_and_its_last_batch_is_told(tmp_path: Path) -> None:
    one = found(tmp_path, batch(7, 4000, 123, 1.5), batch(6, 4010, 50))
    assert (one.input_rows_per_second, one.processed_rows_per_second) == (0.0, None)
    assert one.last is not None and (one.last.batch, one.last.rows) == (7, 123)


def test_a_young_table_is_not_measured_over_the_time_before_it(tmp_path: Path) -> None:
    one = found(tmp_path, batch(1, 1, 1460, 1.0), commit(genesis(at(0)), 10, 0))
    assert one.window_seconds == 10.0 and one.input_rows_per_second == 146.0
    assert one.processed_rows_per_second == 1460.0
    empty = found(tmp_path, commit(genesis(at(0)), 10, 0))
    assert (empty.last, empty.input_rows_per_second, empty.processed_rows_per_second) == (None, 0.0, None)


def test_many_small_batches_shorten_the_window(tmp_path: Path) -> None:
    one = found(tmp_path, *(batch(1000 - n, n, 10, 0.5) for n in range(200)))
    assert one.window_seconds == float(MOST_BATCHES)
    assert (one.input_rows_per_second, one.processed_rows_per_second) == (10.0, 20.0)


def test_rows_that_were_read_and_not_written_count(tmp_path: Path) -> None:
    """From the totals of the next entry; of the last batch from the file beside its offsets."""
    store_row_counts(LocalStore(), f"{tmp_path}/1", 3, {"read": 70})
    one = found(tmp_path, batch(3, 10, 50, read=300), batch(2, 20, 80, read=200), batch(1, 30, 200, read=0))
    assert one.input_rows == 70 + 100 + 200
    assert one.last is not None and one.last.rows == 70


def test_a_batch_that_a_dead_runner_planned_long_ago_took_what_its_own_attempt_took(tmp_path: Path) -> None:
    late = batch(2, 10, 100, 2.0)
    assert late.entry is not None and late.timestamp_ms - late.entry.pins.time_ms > 86_400_000
    one = found(tmp_path, late)
    assert one.last is not None and one.last.seconds == 2.0


def test_entries_of_the_version_before_go_by_the_time_of_their_plan(tmp_path: Path) -> None:
    old = entry(1, at(0), at(1))
    old = replace(old, pins=replace(old.pins, time_ms=NOW - 14_000))
    assert old.started_ms is None and "started" not in dump(old)
    one = found(tmp_path, commit(old, 10, 100))
    assert one.last is not None and one.last.seconds == 4.0


@pytest.mark.parametrize("kind", ["carry", "open"])
def test_the_start_of_an_attempt_is_of_one_entry_alone(kind: str) -> None:
    made = replace(entry(1, at(0), at(1)), started_ms=NOW)
    assert parse(dump(made)) == made
    after = made.carry_entry(Counts()) if kind == "carry" else made.next_entry("open", generation=2, batch=0)
    assert after.started_ms is None
