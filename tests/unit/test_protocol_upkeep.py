"""Commits that look after files say who made them, and leave the chain of batches as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.ledger.commit import removed_files
from penstock.ledger.delta_log import Origin, RecentLog
from penstock.ledger.entry import WORKS, MaintenanceNote, dump_maintenance, parse_maintenance
from penstock.ledger.head import advance, read_head, refuse_foreign_changes, refuse_gap
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import HandLog, at, entry

NOTE = MaintenanceNote("optimize", "bronze.orders", "penstock optimize", "9 files as larger ones", "host", 7)


def test_what_is_written_is_read_again() -> None:
    assert parse_maintenance(dump_maintenance(NOTE)) == NOTE
    assert NOTE.description == "9 files as larger ones (penstock optimize, process 7 on host)"


@pytest.mark.parametrize(
    "text", [None, "", "by hand", "{", '{"penstock": 1, "kind": "batch"}', '{"penstock": 1}', "[1]"]
)
def test_other_peoples_texts_are_none(text: str | None) -> None:
    assert parse_maintenance(text) is None


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("operation", ["OPTIMIZE", "REORG", "VACUUM END", "SET TBLPROPERTIES"])
def test_the_last_entry_stays_the_last_one(work: str, operation: str, tmp_path: Path) -> None:
    made = HandLog(tmp_path)
    made.begin(at(0, 0))
    last = entry(1, at(0, 0), at(5, 5))
    made.batch(last)
    tail = read_head(made.log)
    assert tail is not None
    note = dump_maintenance(MaintenanceNote(work, "bronze.orders", "the runner", "done", "host", 7))  # type: ignore[arg-type]
    made.commit(operation, note=note, adds=1, removes=2, change=False)
    advanced, found = advance(tail, made.log), read_head(made.log)
    assert found is not None and found.entry == advanced.entry == last
    assert refuse_foreign_changes(advanced, made.log) == []
    refuse_gap(found, made.log)
    (commit,) = advanced.later
    assert (commit.origin, commit.entry) == (Origin.MAINTENANCE, None)
    assert commit.maintenance is not None and commit.maintenance.by == "the runner"
    following = entry(2, at(5, 5), at(9, 9))
    made.batch(following)
    assert advance(advanced, made.log).entry == following


def test_a_commit_that_removes_rows_is_foreign_whatever_it_says(tmp_path: Path) -> None:
    made = HandLog(tmp_path)
    made.begin(at(0, 0))
    made.commit("DELETE", note=dump_maintenance(NOTE), removes=1, change=True)
    assert [commit.origin for commit in made.log.since(0)] == [Origin.FOREIGN_CHANGE]


def test_the_files_that_a_commit_takes_out_are_named() -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "N!I&r+y8=?PU)T}8SeF6", "offset": 1}
    actions = [
        {"add": {"path": "new"}},
        {"remove": {"path": "day=a%20b/part-0", "deletionVector": vector}},
        {"remove": {"path": "file:/elsewhere/part-1"}},
        {"remove": {"path": "part-2", "deletionVector": {"storageType": "i", "pathOrInlineDv": "x"}}},
        {"cdc": {"path": "_change_data/cdc-0"}},
    ]
    text = "\n".join(map(json.dumps, actions))
    removed = ["day=a b/part-0", "deletion_vector_9af78ea4-cb7d-4464-a0c3-a69a1adfc447.bin", "part-2"]
    assert list(removed_files(text)) == [*removed, "_change_data/cdc-0"]
    assert list(removed_files(text, feed=False)) == removed


def test_commits_without_rows_leave_no_reader_behind(tmp_path: Path) -> None:
    made = HandLog(tmp_path)
    made.begin(at(0, 0))
    made.batch(entry(1, at(0, 0), at(5, 5)))
    made.commit("OPTIMIZE", note=dump_maintenance(NOTE), adds=1, removes=1, change=False)
    made.batch(entry(2, at(5, 5), at(9, 9)))
    made.commit("OPTIMIZE", note=dump_maintenance(NOTE), adds=1, removes=2, change=False)
    made.commit("VACUUM END", note=dump_maintenance(replace(NOTE, work="vacuum")))
    made.commit("WRITE", note=entry(2, at(5, 5), at(9, 9), kind="carry"))

    def end(position: int) -> int | None:
        return RecentLog(LocalStore(), made.uri, "bronze.orders").readable_end(position)

    assert (end(1), end(4), end(7)) == (4, 4, 7), "read up to the last batch, or further, there is nothing left"
    made.commit("DELETE", removes=1)
    assert end(4) == 8
    assert RecentLog(LocalStore(), str(tmp_path / "none"), "t").readable_end(0) is None
