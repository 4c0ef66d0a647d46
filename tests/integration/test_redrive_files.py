"""Rejected lines of files run again by the definition of now: from the file, if it is still what it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.folders import TABLE, Folder
from tests.integration.replays import work_on
from tests.integration.runs import killed_at

from penstock.engine.store import LocalStore
from penstock.ops.verify.table import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def again(folder: Folder) -> Any:
    from penstock.engine.redrive.redrive import redrive

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
    from penstock.engine.redrive.marked import Marked

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
    with killed_at(monkeypatch, Marked, "settle", after=False):
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
