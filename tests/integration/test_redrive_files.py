"""Rejected lines of files run again by the definition of now: from the file, if it is still what it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.table import verify
from tests.integration.folders import TABLE, Folder
from tests.integration.run_plan import killed_at
from tests.integration.run_replays import work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def again(folder: Folder) -> Any:
    from penstock.operations.redrive import redrive

    work = work_on(folder.spark, folder.plan, TABLE)
    try:
        return redrive(work, None)
    finally:
        work.lock.close()


def places(rows: list[dict[str, Any]]) -> set[tuple[str, int | None]]:
    found = [(row["_source"]["file"], row["_source"]["row"]) for row in rows]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.deep
def test_lines_that_pass_now_land_once_and_what_cannot_be_read_as_it_was_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.operations.redrive import RedriveMarks

    def wanted(least: int) -> list[dict[str, str]]:
        return [{"name": "enough", "check": f"id >= {least}"}]

    folder = Folder(spark, tmp_path, expect=wanted(8))
    for name in ("a.json", "b.json", "c.json", "d.json"):
        folder.put(name, 3, bad=(1,) if name == "a.json" else ())
    folder.run()
    before = places(folder.quarantine)
    assert {("in/a.json", 0), ("in/a.json", 1), ("in/b.json", 2), ("in/c.json", 0)} <= before

    (folder.path / "b.json").unlink()
    (folder.path / "c.json").write_text('{"id": 99, "name": "another"}\n')
    folder.plan = folder.planned(expect=wanted(0))
    with killed_at(monkeypatch, RedriveMarks, "settle", after=False):
        again(folder)
    for _ in range(2):
        again(folder)
        landed, left = places(folder.rows()), places(folder.quarantine)
        assert landed == {("in/a.json", 0), ("in/a.json", 2), *((f"in/{n}.json", 2) for n in "c"), *of("d")}
        assert left == {("in/a.json", 1), *of("b"), ("in/c.json", 0), ("in/c.json", 1)}
    (report,) = verify(folder.plan.tables, LocalStore())
    assert report.ok(), report


def of(name: str) -> set[tuple[str, int]]:
    return {(f"in/{name}.json", row) for row in range(3)}


@pytest.mark.deep
@pytest.mark.parametrize("new_fields", ["add", "fail"])
def test_a_line_with_a_field_that_is_no_column_does_not_keep_others_from_landing(
    new_fields: str, spark: SparkSession, tmp_path: Path
) -> None:
    schema = "id BIGINT, n BIGINT, o STRUCT<a: BIGINT>"
    folder = Folder(spark, tmp_path, {"schema": schema}, expect=[{"name": "positive", "check": "n > 0"}])
    folder.write("a.json", '{"id":1,"n":-1,"o":{"a":1,"b c":2}}\n{"id":2,"n":-2,"o":{"a":1}}\n{"id":3,"n":1}\n')
    folder.run()
    assert len(folder.quarantine) == 2
    folder.source["new_fields"] = new_fields
    folder.plan = folder.planned()
    (done,) = again(folder)
    assert folder.ids() == ({1: 1, 2: 1, 3: 1} if new_fields == "add" else {2: 1, 3: 1})
    assert done.reasons == ({} if new_fields == "add" else {"unknown_field": 1})
    reports = verify(folder.plan.tables, LocalStore())
    run_checks_in(spark, folder.plan, tables_to_check(folder.plan.tables, reports), LocalStore(), deep=True)
    assert [one.verdict for one in reports] == ["complete"], reports


@pytest.mark.deep
@pytest.mark.parametrize("new_fields", ["add", "rescue"])
def test_a_redriven_line_brings_its_new_fields_as_a_line_of_a_batch_does(
    new_fields: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = Folder(spark, tmp_path, {"schema": "id BIGINT, n BIGINT NOT NULL, o STRUCT<a: BIGINT>"})
    folder.source["new_fields"] = new_fields
    folder.plan = folder.planned()
    folder.write("a.json", '{"id":1,"x":"new","o":{"a":1,"b":2}}\n{"id":3,"n":1}\n{"id":4,"n":"?","z":1}\n')
    folder.run()
    assert folder.ids() == {3: 1} and "x" not in folder.rows()[0]
    folder.source["schema"] = "id BIGINT, n BIGINT, o STRUCT<a: BIGINT>"
    folder.plan = folder.planned()
    (done,) = again(folder)
    assert (done.landed, done.reasons) == (1, {"wrong_type": 1})
    row = {row["id"]: row for row in folder.rows()}[1]
    if new_fields == "add":
        assert (row["x"], row["o"]) == ("new", {"a": 1, "b": 2}) and "z" not in row
    else:
        assert json.loads(row["_rescued"])["x"] == "new"
    folder.write("b.json", '{"id":5,"n":5,"x":"later"}\n')
    folder.run()
    assert folder.ids() == {1: 1, 3: 1, 5: 1}
    reports = verify(folder.plan.tables, LocalStore())
    run_checks_in(spark, folder.plan, tables_to_check(folder.plan.tables, reports), LocalStore(), deep=True)
    assert not reports[0].problems and [check.differing for check in reports[0].checks] == [0] * len(reports[0].checks)


@pytest.mark.deep
def test_rows_on_which_a_redrive_fails_are_left_as_they_were(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.operations import redrive as module

    folder = Folder(spark, tmp_path, expect=[{"name": "enough", "check": "id >= 8"}])
    folder.put("a.json", 3)
    folder.run()
    folder.plan = folder.planned()

    def fails(*_: Any) -> None:
        raise RuntimeError("whatever it is")

    monkeypatch.setattr(module, "files_runnable", fails)
    with pytest.raises(RuntimeError):
        again(folder)
    assert [row["redrive"] for row in folder.quarantine] == [None] * 3
    monkeypatch.undo()
    again(folder)
    assert folder.ids() == {0: 1, 1: 1, 2: 1}
