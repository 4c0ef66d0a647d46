"""Checkpoints that hold Spark's state: begun, compared, never made again."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import TableChanged
from penstock.ledger.checkpoint import read_checkpoint, seed, why_rebuild
from penstock.ledger.head import Verdict, check
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import at, entry, genesis

META = '{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{"spark.sql.shuffle.partitions":"2"}}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "1"


def commit(folder: Path, batch: int) -> None:
    (folder / "commits").mkdir(exist_ok=True)
    (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def plan(folder: Path, batch: int, after: str) -> None:
    (folder / "offsets" / str(batch)).write_text(f"v1\n{META}\n{after}")


def test_it_begins_with_an_empty_batch_that_is_planned_and_not_done(folder: Path) -> None:
    seed(LocalStore(), str(folder), genesis(at(3)), META)
    assert (folder / "offsets" / "0").read_text() == f"v1\n{META}\n{at(3)}"
    assert not (folder / "commits").exists()
    assert (folder / "metadata").exists() and (folder / "penstock.json").exists()


def test_its_first_batch_is_recognised_as_the_one_that_the_ledger_begins_with() -> None:
    begun = genesis(at(3))
    assert check(begun, 1, 0, begun.before, (at(3),)) is Verdict.RETRY
    moved = entry(0, at(9), at(3), generation=2, kind="open")
    assert check(moved, 2, 0, moved.before, (at(3),)) is Verdict.RETRY


def test_state_is_no_stranger_where_it_belongs(folder: Path) -> None:
    store = LocalStore()
    seed(store, str(folder), genesis(at(3)), META)
    commit(folder, 0)
    (folder / "state" / "0").mkdir(parents=True)
    found = read_checkpoint(store, str(folder))
    assert why_rebuild(found, genesis(at(3)), stateful=True) is None
    assert why_rebuild(found, genesis(at(3))) == "it holds state of another query"


def test_one_that_is_ahead_of_its_table_leaves_only_a_new_beginning(folder: Path) -> None:
    store = LocalStore()
    seed(store, str(folder), genesis(at(3)), META)
    for batch in (1, 2):
        plan(folder, batch, at(3 + batch))
        commit(folder, batch)
    with pytest.raises(TableChanged) as refused:
        why_rebuild(read_checkpoint(store, str(folder)), entry(1, at(3), at(4)), stateful=True)
    assert "--to starting" in (refused.value.hint or "")
