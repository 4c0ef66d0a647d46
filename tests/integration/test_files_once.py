"""Files of a folder: each is read once, whatever it is called, and whatever dies in between."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import DataLoss, Transient
from penstock.operations.status import status
from penstock.sources.files.manifest import Lister
from penstock.storage.stores import LocalStore
from tests.integration.folders import TABLE, Folder, manifest, source_of
from tests.integration.run_plan import checkpoint, commits, make_plan, quarantine_dies_once, run, running, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_new_files_are_read_once_over_several_runs(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    folder.put("2026/01/a.json", 5)
    folder.put("2026/02/a.json")
    heard = folder.run()
    assert heard.heard("table created, starting at its first file in ")
    folder.check()
    folder.put("b.json.gz", 4)
    folder.write("empty.json", "")
    folder.write("blank.json", "\n  \n\n")
    folder.run()
    folder.check()
    before = [commit.version for commit in commits(folder.plan, TABLE)]
    folder.run()  # nothing new
    assert [commit.version for commit in commits(folder.plan, TABLE)] == before
    assert set(manifest(folder).values()) == {1}


@pytest.mark.deep
def test_a_file_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path / "my lake 100% é")
    names = ["a b.json", "ü/日本.json", "a+b.json", "50%.json", "a%20b.json", "x#1.json", "a[1].json", "a1.json"]
    names += ["b{c,d}.json", "q?.json", "star*.json", "a'b.json", "e=f/g.json", "back\\slash.json"]
    for name in names:
        folder.put(name)
    folder.write("c:d.json", '{"id": 1000}\n')
    folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/c:d.json"]), "Hadoop does not take such a name on a local disk"
    folder.run()
    folder.check()


@pytest.mark.deep
def test_names_that_begin_with_a_mark_and_other_endings_are_not_data(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"pattern": "*.json"})
    folder.put("a.json")
    for name in ("_b.json", ".c.json", "_temporary/d.json", ".hidden/e.json", "f.txt", "g.json.tmp"):
        file = folder.path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text('{"id": 1}\n')
    folder.run()
    folder.check()


def test_a_batch_reads_at_most_max_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"max_files": 2})
    for number in range(5):
        folder.put(f"{number}.json", 2)
    heard = folder.run()
    assert [batch.rows for batch in heard.batches] == [4, 4, 2]
    folder.check()


@pytest.mark.deep
def test_a_thousand_small_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"max_files": 600})
    for number in range(1000):
        folder.put(f"{number % 10}/{number}.json", 1, bad=(0,) if number == 999 else ())
    heard = folder.run()
    assert [batch.rows for batch in heard.batches] == [600, 399]
    folder.check()
    assert len(folder.quarantine) == 1


def test_a_deleted_checkpoint_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"max_files": 1})
    folder.put("a.json")
    folder.put("b.json", bad=(1,))
    folder.run()
    shutil.rmtree(checkpoint(folder.plan))
    folder.put("c.json")
    heard = folder.run()
    assert heard.heard("rebuilt from the ledger")
    folder.check()
    assert len(folder.quarantine) == 1


def test_what_dies_before_the_quarantine_is_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json", 6, bad=(1, 4))
    quarantine_dies_once(monkeypatch)
    run(spark, folder.plan)
    monkeypatch.undo()
    folder.run()
    folder.check()
    places = Counter((row["_source"]["file"], row["_source"]["row"]) for row in folder.quarantine)
    assert places == Counter([("in/a.json", 1), ("in/a.json", 4)])
    assert {row["error_reason"] for row in folder.quarantine} == {"malformed_json"}


@pytest.mark.deep
def test_files_that_come_while_it_runs_are_found(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, trigger="500ms")
    folder.put("a.json")
    with running(spark, folder.plan, TABLE) as heard:
        wait_for(lambda: bool(heard.batches))
        folder.put("b.json")
        folder.put("c.json")
        wait_for(lambda: sum(batch.rows for batch in heard.batches) == 9)
        (folder.path / "a.json").write_text('{"id": 77}\n')
        wait_for(lambda: heard.heard("1 file changed after it was listed"))
    folder.check()
    assert not folder.run().heard("changed after"), "it is told once"
    folder.check()


def test_what_is_listed_and_not_read_is_shown(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    folder.run()
    folder.put("b.json")
    folder.put("c.json")
    Lister(spark, LocalStore(), source_of(folder.plan), TABLE).scan()
    (shown,) = status(folder.plan, folder.plan.tables, LocalStore())
    assert (shown.lag, shown.lag_of) == (2, "files")
    folder.run()
    (shown,) = status(folder.plan, folder.plan.tables, LocalStore())
    assert shown.lag == 0


@pytest.mark.deep
def test_only_files_that_come_later(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"starting": "latest"})
    folder.write("old.json", '{"id": 1}\n')
    assert folder.run().heard("files that come from now on")
    folder.put("new.json")
    folder.run()
    folder.check()


@pytest.mark.deep
def test_an_empty_folder_makes_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.run()
    assert folder.rows() == []
    folder.put("a.json")
    folder.run()
    folder.check()


@pytest.mark.deep
def test_a_folder_that_is_not_there_is_waited_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_ONCE", 1)
    folder = Folder(spark, tmp_path, {"files": "nowhere"})
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, Transient)
    assert f"there is no folder {tmp_path}/nowhere" in error.message


@pytest.mark.deep
def test_a_project_that_is_moved_reads_no_file_again(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path / "here")
    folder.put("a.json")
    folder.run()
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    moved = Folder(spark, tmp_path / "there")
    moved.there = folder.there
    moved._next = 100
    moved.put("b.json")
    moved.run()
    moved.check()


@pytest.mark.deep
def test_another_folder_adds_to_the_table(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    folder.run()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "a.json").write_text('{"id": 50}\n')
    folder.source["files"] = "more"
    folder.plan = folder.planned()
    folder.run()
    folder.there["more/a.json", 0, 50] += 1
    folder.check()


@pytest.mark.deep
def test_without_its_list_of_files_the_table_stops(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    folder.run()
    shutil.rmtree(source_of(folder.plan).uri)
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, DataLoss)
    assert "which files are in the table is unknown" in error.message
    folder.check()


def test_the_plan_needs_no_kafka(tmp_path: Path) -> None:
    assert make_plan(tmp_path, "127.0.0.1:1", {TABLE: {"from": {"files": "in", "format": "json"}}})
