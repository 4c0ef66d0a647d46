"""What optimize would do to the files of a table, and when it pays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from penstock.maintenance import optimize as optimize_module
from penstock.maintenance.optimize import (
    MANY,
    MIN_FILES,
    MOST_PARTITIONS,
    LayoutGoal,
    OptimizePlan,
    OptimizeStep,
    TableOptimize,
    is_conflict,
    plan_steps,
    run_optimize,
    statement,
    target_bytes,
)
from penstock.maintenance.tables import (
    MaintainedTable,
    MaintenanceHistory,
    optimize_started_ms,
    read_history,
    write_memory,
)
from penstock.spark.sql_text import quote
from penstock.storage.layout import DataFile, Layout
from penstock.storage.stores import LocalStore
from tests.bronze_table import plan_of, table_plan

MB = 1024 * 1024
TARGET = 256 * MB
PLACE = MaintainedTable("bronze.orders", "/lake/bronze/or`ders", "table")


def files(count: int, size: int = MB, **about: object) -> list[DataFile]:
    return [DataFile(size, **{"modified_ms": 10, **about}) for _ in range(count)]  # type: ignore[arg-type]


def layout(*found: DataFile, **about: object) -> Layout:
    return Layout(1, found, **about)  # type: ignore[arg-type]


def plan(*found: DataFile, full: bool = False, **wanted: object) -> list[OptimizeStep]:
    return plan_steps(layout(*found), LayoutGoal(TARGET, full=full, **wanted))  # type: ignore[arg-type]


def test_small_files_become_few_and_large_ones_are_left_alone() -> None:
    (step,) = plan(*files(300, MB), *files(10, 200 * MB))
    assert (step.kind, step.files, step.bytes, step.left) == ("compact", 300, 300 * MB, 2)


@pytest.mark.parametrize(("count", "pays"), [(1, False), (MIN_FILES - 1, False), (MIN_FILES, True)])
def test_a_few_files_are_not_worth_a_write_unless_all_is_asked_for(count: int, pays: bool) -> None:
    assert bool(plan(*files(count))) is pays
    assert bool(plan(*files(count), full=True)) is (count > 1)


def test_what_was_compacted_is_not_written_again_in_the_next_run() -> None:
    """A file that has half of the target's size stays, however many small ones come."""
    (step,) = plan(*files(1, TARGET // 2), *files(10))
    assert (step.files, step.bytes) == (10, 10 * MB)


def test_files_of_two_partitions_never_become_one() -> None:
    parts = [file for part in range(4) for file in files(2, partition=(str(part),))]
    (step,) = plan(*parts)
    assert (step.files, step.left) == (8, 4)
    assert plan(*files(3), *files(1, partition=("a",)), *files(1, partition=("b",))) == []


def test_deleted_rows_go_where_they_are_many() -> None:
    few, many = files(1, 200 * MB, rows=1000, deleted=100), files(1, 200 * MB, rows=1000, deleted=300)
    assert plan(*few) == []
    (step,) = plan(*few, full=True)
    assert (step.kind, step.files) == ("purge", 1)
    (step,) = plan(*few, *many)
    assert (step.kind, step.files, step.bytes) == ("purge", 2, 400 * MB), "a fifth of the rows in both together"
    purge, compact = plan(*many, *files(9))
    assert (purge.kind, compact.kind, compact.files) == ("purge", "compact", 9)


def test_rows_are_put_in_order_when_a_fifth_of_them_is_new() -> None:
    old = files(10, 250 * MB)
    ordered = {(): 20}
    new = files(8, MB, modified_ms=30)
    assert plan(*old, *new, zorder_by=("id",), ordered=ordered) == [], "8 MB of 2.5 GB"
    (step,) = plan(*old, *files(8, 100 * MB, modified_ms=30), zorder_by=("id",), ordered=ordered)
    assert (step.kind, step.files, step.left) == ("zorder", 18, 12)
    assert plan(*old, *files(MANY, 1, modified_ms=30), zorder_by=("id",), ordered=ordered), "many are too many"
    assert plan(*old, *new, zorder_by=("id",)), "nobody knows that it ever was in order"
    assert plan(*old, zorder_by=("id",), ordered=ordered) == []
    assert plan(*old, zorder_by=("id",), ordered=ordered, full=True)[0].files == 10


def test_only_partitions_that_changed_are_put_in_order_and_not_too_many_at_once() -> None:
    old = files(5, MB, partition=("2026-01-01",))
    new = files(5, MB, partition=("2026-01-02",), modified_ms=30)
    found = Layout(1, (*old, *new), ("day",))
    (step,) = plan_steps(found, LayoutGoal(TARGET, ("id",), ordered={("2026-01-01",): 20, ("2026-01-02",): 20}))
    assert step.partitions == (("2026-01-02",),)
    many = [file for part in range(MOST_PARTITIONS + 5) for file in files(5, partition=(str(part),))]
    (step,) = plan_steps(Layout(1, tuple(many), ("day",)), LayoutGoal(TARGET, ("id",)))
    assert len(step.partitions) == MOST_PARTITIONS


def test_a_clustered_table_is_clustered_by_delta_whatever_zorder_says() -> None:
    found = Layout(1, tuple(files(5)), clustered=True)
    assert [step.kind for step in plan_steps(found, LayoutGoal(TARGET))] == ["cluster"]
    assert plan_steps(found, LayoutGoal(TARGET, ordered={(): 20})) == []
    large = Layout(1, (*files(100, 250 * MB), *files(5, 50 * MB, modified_ms=30)), clustered=True)
    assert plan_steps(large, LayoutGoal(TARGET, ordered={(): 20})) == [], "a group of 4 GB would be written for 250 MB"


@pytest.mark.parametrize(
    ("text", "size"), [("128mb", 128_000_000), ("134217728", 128 * MB), ("a lot", TARGET), ("0", TARGET)]
)
def test_the_target_is_a_property_of_the_table_or_the_projects(text: str, size: int) -> None:
    assert target_bytes({"delta.targetFileSize": text}, TARGET) == size
    assert target_bytes({}, TARGET) == TARGET


def test_names_and_values_are_quoted_in_statements() -> None:
    hostile = "x' OR 1=1 --\\"
    step = OptimizeStep("zorder", 5, 5, 1, ((hostile, None),))
    found = Layout(1, (), ("d`ay", "n"), types={"d`ay": "STRING", "n": "INTEGER"})
    said = statement(PLACE, found, step, LayoutGoal(TARGET, ("a`b", "c")))
    assert said == (
        f"OPTIMIZE delta.{quote(PLACE.uri)} WHERE (`d``ay` <=> CAST('x\\' OR 1=1 --\\\\' AS STRING) AND "
        "`n` <=> CAST(NULL AS INTEGER)) ZORDER BY (`a``b`, `c`)"
    )
    assert statement(PLACE, found, OptimizeStep("purge", 1, 1, 1), LayoutGoal(TARGET)).endswith(
        "or``ders` APPLY (PURGE)"
    )
    assert statement(PLACE, found, OptimizeStep("cluster", 1, 1, 1), LayoutGoal(TARGET, full=True)).endswith("` FULL")


def test_a_conflict_is_told_from_other_failures() -> None:
    assert is_conflict(RuntimeError("[DELTA_CONCURRENT_DELETE_READ] …"))
    assert not is_conflict(RuntimeError("No space left on device"))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"done": 1}', '{"ordered": {"at": [1]}}'])
def test_a_memory_that_is_lost_is_an_empty_one(text: str, tmp_path: Path) -> None:
    store, system = LocalStore(), str(tmp_path)
    store.write(f"{system}/upkeep/t.json", text)
    assert read_history(store, system, "t") == MaintenanceHistory()


def test_what_was_done_is_remembered(tmp_path: Path) -> None:
    store, system = LocalStore(), str(tmp_path)
    made = MaintenanceHistory({"optimize": 5}, 7, {("a", None): 3}, ("id",))
    write_memory(store, system, "t", made)
    assert (read_history(store, system, "t"), optimize_started_ms(store, system, "t")) == (made, 7)


SMALL = files(MIN_FILES)
MARKED = files(1, 200 * MB, rows=1000, deleted=300)
PURGE, COMPACT = OptimizeStep("purge", 1, 200 * MB, 1), OptimizeStep("compact", MIN_FILES, MIN_FILES * MB, 1)


@pytest.mark.parametrize(
    ("listed", "layouts", "run"),
    [
        ([PURGE], [MARKED, SMALL], ["purge"]),
        ([PURGE, COMPACT], [[*MARKED, *SMALL], SMALL, files(1)], ["purge", "compact"]),
        ([PURGE, COMPACT], [SMALL, files(1)], ["compact"]),
        ([COMPACT], [files(1)], []),
    ],
    ids=["what a step leaves waits for the next plan", "in order", "a step was done meanwhile", "all was done"],
)
def test_the_steps_that_were_listed_are_those_that_run(
    listed: Sequence[OptimizeStep],
    layouts: Sequence[list[DataFile]],
    run: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`layouts`: the files before the first step, and after each."""
    table = table_plan(str(tmp_path / "lake/bronze/orders"))
    place = MaintainedTable(table.name, table.uri, "table")
    plan, rewritten, found = plan_of(tmp_path, table), [], iter(layouts)

    def rewrite(_: Any, place: Any, layout: Any, step: OptimizeStep, *more: Any) -> None:
        assert optimize_started_ms(LocalStore(), plan.system, table.name) is not None, "a vacuum has to know"
        rewritten.append(step.kind)

    monkeypatch.setattr(optimize_module, "rewrite", rewrite)
    monkeypatch.setattr(optimize_module, "snapshot_layout", lambda *_: layout(*next(found)))
    monkeypatch.setattr(optimize_module, "exclusive_maintenance", lambda *_: nullcontext())
    planned = OptimizePlan((TableOptimize(place, table, steps=tuple(listed)),), full=False)
    result = run_optimize(None, plan, planned, LocalStore(), lambda *_: None)  # type: ignore[arg-type]
    assert not result.errors and rewritten == run
    assert [step.kind for step in result.done[table.name].done] == run
    history = read_history(LocalStore(), plan.system, table.name)
    assert history.began_ms is None and "optimize" in history.done
