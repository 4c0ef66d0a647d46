"""Of which entry are the rows that a table holds, and what excuses them from being those of a query of now."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.verify.recompute.context import Content, content_at
from tests.unit.hand_ledgers import HandLog, at, entry


def content(log: HandLog, **asked: Any) -> Content:
    return content_at(log.log, log.log.versions()[-1], asked.pop("definition", "definition"), **asked)


@pytest.fixture
def log(tmp_path: Path) -> HandLog:
    made = HandLog(tmp_path)
    made.begin(at(0))
    return made


def merged(log: HandLog, batch: int, **other: Any) -> None:
    """A batch of a table that is changed in place."""
    log.commit("MERGE", note=entry(batch, at(batch - 1), at(batch), **other), adds=1, removes=1)


def test_before_the_first_batch_there_is_nothing(log: HandLog) -> None:
    found = content(log)
    assert (found.entry, found.known, found.from_start) == (None, True, True)


def test_the_last_batch_says_how_far_it_was_read(log: HandLog) -> None:
    merged(log, 1)
    merged(log, 2)
    log.commit("OPTIMIZE", adds=1, removes=2, change=False)
    found = content(log)
    assert found.entry is not None and found.entry.batch == 2
    assert [one.batch for one in found.entries] == [2, 1]
    assert (found.at_once, found.from_start, found.excuses) == (False, True, [])


def test_a_carry_and_an_open_generation_change_nothing_of_what_it_holds(log: HandLog) -> None:
    merged(log, 1)
    log.commit("WRITE", note=entry(1, at(0), at(1), kind="carry"))
    log.commit("WRITE", note=entry(0, at(1), at(9), generation=2, kind="open"))
    found = content(log)
    assert found.entry is not None and (found.entry.key, found.entry.after) == ((1, 1), (at(1),))
    assert [one.key for one in found.entries] == [(1, 1)]


def test_an_overwrite_makes_all_of_it(log: HandLog) -> None:
    log.commit("MERGE", note=replace(entry(1, at(0), at(1)), pins=replace(entry(1, "", "").pins, definition="old")))
    log.commit("WRITE", note=entry(2, at(1), at(2)), adds=1, removes=1)
    found = content(log)
    assert (found.at_once, found.from_start, found.excuses) == (True, True, [])
    merged(log, 3)
    found = content(log)
    assert (found.at_once, found.from_start, found.excuses) == (False, True, [])
    assert [one.batch for one in found.entries] == [3, 2]


def test_a_batch_of_another_definition_is_an_excuse_until_all_is_made_anew(log: HandLog) -> None:
    merged(log, 1)
    assert "was made by another definition (definition, now new)" in content(log, definition="new").excuses[0]
    log.commit("WRITE", note=entry(0, at(1), at(1), generation=2, kind="open"))
    fill = entry(0, at(1), at(1), generation=2, kind="fill")
    log.commit("WRITE", note=replace(fill, pins=replace(fill.pins, definition="new")), adds=1, removes=1)
    found = content(log, definition="new")
    assert (found.excuses, found.at_once) == ([], True)


def test_a_position_that_was_moved_by_hand_is_an_excuse(log: HandLog) -> None:
    merged(log, 1)
    log.commit("WRITE", note=entry(0, at(1), at(5), generation=2, kind="open"))
    log.commit("MERGE", note=entry(1, at(5), at(6), generation=2), adds=1)
    assert "its position was moved by hand before batch 2.1" in content(log).excuses[0]


def test_a_table_that_was_emptied_holds_nothing(log: HandLog) -> None:
    merged(log, 1)
    log.commit("WRITE", note=entry(0, at(1), at(0), generation=2, kind="open"), removes=1)
    assert content(log).entry is None


def test_what_was_restored_is_what_it_was_then(log: HandLog) -> None:
    merged(log, 1)
    merged(log, 2)
    log.commit("RESTORE", adds=1, removes=1, parameters={"version": "1"})
    found = content(log)
    assert found.entry is not None and found.entry.batch == 1


def test_rows_that_an_entry_of_another_kind_took_are_an_excuse(log: HandLog) -> None:
    merged(log, 1)
    log.commit("DELETE", note=entry(1, at(0), at(1), kind="forget"), adds=1, removes=1)
    found = content(log)
    assert found.entry is not None and found.entry.kind == "batch"
    assert found.excuses == ["version 2 (forget) changed rows of it beside its batches"]


def test_a_carry_stands_for_a_batch_that_log_retention_took(log: HandLog) -> None:
    merged(log, 1)
    log.commit("WRITE", note=entry(1, at(0), at(1), kind="carry"))
    log.path(1).unlink()
    log.path(0).unlink()
    found = content(log)
    assert found.entry is not None and found.entry.after == (at(1),)
    assert (found.known, found.from_start) == (True, False)


def test_without_any_entry_of_rows_nothing_is_known(log: HandLog) -> None:
    merged(log, 1)
    log.commit("WRITE", note=entry(0, at(1), at(9), generation=2, kind="open"))
    log.path(1).unlink()
    log.path(0).unlink()
    assert not content(log).known
