"""What dies, what is lost and what is changed under a table with state: consistent, or refused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import PenstockError, Terminal, UsageError
from penstock.operations.reset import plan_reset, run_reset
from penstock.storage.stores import LocalStore
from tests.integration.run_plan import checkpoint, commits, commits_die, newest, rows, run, run_well, whole_chain
from tests.integration.stream_tables import GOLD, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan


@pytest.fixture
def site(spark: SparkSession, project: Any, tmp_path: Path) -> Site:
    return Site(spark, project, tmp_path)


def counted(plan: Plan) -> dict[str, int]:
    found = rows(plan, GOLD)
    assert len(found) == len({row["kind"] for row in found}), "each group once"
    return {row["kind"]: row["n"] for row in found}


def refused(site: Site, plan: Plan) -> PenstockError:
    before = len(commits(plan, GOLD))
    heard = run(site.spark, plan)
    assert isinstance(heard.errors.get(GOLD), Terminal), (heard.errors, heard.messages)
    assert len(commits(plan, GOLD)) == before, "nothing was written"
    return heard.errors[GOLD]


def reset(site: Site, plan: Plan) -> None:
    planned = plan_reset(plan.tables[0], LocalStore(), "starting")
    assert planned.starts_over
    run_reset(site.spark, plan, planned)


@pytest.mark.parametrize(
    "function", ["kinds", *(pytest.param(name, marks=pytest.mark.deep) for name in ("once", "joined"))]
)
def test_a_crash_between_deltas_commit_and_sparks_keeps_state_and_table_in_step(
    site: Site, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: in the first batch with rows, and in a later one. Spark's state of the batch is thrown away with it."""
    from penstock.ledger import writer

    output = {"kinds": {"output": "complete"}}.get(function, {})
    plan = site.two(function) if function == "joined" else site.plan(function, **output)
    whole, times = writer.BatchWriter._complete, []

    def dies(self: Any, *given: Any, **more: Any) -> Any:
        if more["written"]:
            times.append(1)
            if len(times) in (1, 3):
                raise RuntimeError("killed after the commit")
        return whole(self, *given, **more)

    monkeypatch.setattr(writer.BatchWriter, "_complete", dies)
    for number in range(1, 5):
        site.add((number, "a", number), (number + 10, "b", number))
        site.add((number, "v", number), to="views")
    heard = run_well(site.spark, plan)
    assert heard.heard("was in the table already: skipped")
    assert len(times) >= 4
    site.add((1, "a", 1), (5, "a", 5))
    site.add((5, "v", 5), to="views")
    run_well(site.spark, plan)
    if function == "kinds":
        assert counted(plan) == {"a": 6, "b": 4}
    elif function == "once":
        assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter([*range(1, 6), *range(11, 15)])
    else:
        assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter({1: 2, 2: 1, 3: 1, 4: 1, 5: 1})
    whole_chain(plan, GOLD)


def test_a_batch_planned_but_not_written_is_run_over_its_range(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = site.plan("kinds", output="complete")
    commits_die(monkeypatch, GOLD, 2)
    site.add((1, "a", 1))
    site.add((2, "a", 1))
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 2}
    whole_chain(plan, GOLD)


def _gone(name: str) -> Callable[[Path], None]:
    return lambda folder: shutil.rmtree(folder / name)


def _older(folder: Path) -> None:
    """As of the batch before the last."""
    for kind in ("offsets", "commits"):
        (folder / kind / str(newest(folder / kind))).unlink()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "deleted": shutil.rmtree,
    "offsets deleted": _gone("offsets"),
    "commits deleted": _gone("commits"),
    "state deleted": _gone("state"),
    "an older backup": _older,
    "the last offsets emptied": lambda folder: (
        (folder / "offsets" / str(newest(folder / "offsets"))).write_text("") and None
    ),
}


@pytest.mark.deep
@pytest.mark.parametrize(
    "damage",
    [pytest.param(how, id=name) for name, how in DAMAGE.items()],
)
def test_a_lost_checkpoint_is_refused_and_a_reset_begins_anew(site: Site, damage: Callable[[Path], None]) -> None:
    plan = site.plan("kinds", output="complete")
    site.add((1, "a", 1), (2, "b", 1))
    site.add((3, "a", 1))
    run_well(site.spark, plan)
    damage(checkpoint(plan, name=GOLD))
    site.add((4, "a", 1))
    error = refused(site, plan)
    assert f"checkpoints reset {GOLD} --to starting" in (error.hint or "")
    reset(site, plan)
    assert rows(plan, GOLD) == [], "emptied in the commit that opens the generation"
    last = whole_chain(plan, GOLD)[-1]
    assert (last.kind, last.generation) == ("open", 2)
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 3, "b": 1}
    site.add((5, "a", 1))
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 4, "b": 1}
    whole_chain(plan, GOLD)


@pytest.mark.deep
def test_an_append_table_begins_anew_without_a_double(site: Site) -> None:
    plan = site.two("joined")
    site.add((1, "c", 1))
    site.add((1, "v", 1), to="views")
    run_well(site.spark, plan)
    shutil.rmtree(checkpoint(plan, name=GOLD))
    refused(site, plan)
    reset(site, plan)
    site.add((2, "c", 2))
    site.add((2, "v", 2), to="views")
    run_well(site.spark, plan)
    assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter([1, 2])


@pytest.mark.deep
def test_a_reset_of_a_table_without_rows_and_one_that_is_gone(site: Site) -> None:
    plan = site.plan("kinds", output="complete")
    run_well(site.spark, plan)
    reset(site, plan)
    site.add((1, "a", 1))
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 1}
    shutil.rmtree(plan.tables[0].uri)
    assert "--to starting" in (refused_gone(site, plan).hint or "")
    reset(site, plan)
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 1}


def refused_gone(site: Site, plan: Plan) -> PenstockError:
    heard = run(site.spark, plan)
    assert isinstance(heard.errors.get(GOLD), Terminal)
    return heard.errors[GOLD]


@pytest.mark.deep
def test_no_other_position_can_be_chosen(site: Site) -> None:
    plan = site.plan("kinds", output="complete")
    with pytest.raises(UsageError, match="of one position"):
        plan_reset(plan.tables[0], LocalStore(), "latest")


@pytest.mark.deep
def test_a_table_whose_first_batch_never_ran_begins_by_itself(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.runtime.table_runner import TableRun

    def dies(*_: Any) -> None:
        raise Terminal("killed before its query began")

    plan = site.plan("kinds", output="complete")
    monkeypatch.setattr(TableRun, "_start_query", dies)
    run(site.spark, plan)
    monkeypatch.undo()
    assert [entry.kind for entry in whole_chain(plan, GOLD)] == ["genesis"]
    shutil.rmtree(checkpoint(plan, name=GOLD))
    site.add((1, "a", 1))
    run_well(site.spark, plan)
    assert counted(plan) == {"a": 1}


@pytest.mark.deep
def test_other_inputs_than_before_are_refused(site: Site) -> None:
    plan = site.two("joined")
    site.add((1, "c", 1))
    site.add((1, "v", 1), to="views")
    run_well(site.spark, plan)
    error = refused(site, site.plan("once"))
    assert "the state that is kept is of" in error.message


@pytest.mark.deep
def test_a_function_whose_state_looks_different_now_is_refused(site: Site) -> None:
    plan = site.plan("kinds", output="complete")
    site.add((1, "a", 1))
    run_well(site.spark, plan)
    text = (site._folder / "s.py").read_text()
    (site._folder / "s.py").write_text(text.replace('F.max("id")', 'F.max(F.struct("id", "ts")).getField("id")'))
    site.add((2, "a", 1))
    error = refused(site, site.plan("kinds", output="complete"))
    assert "--to starting" in (error.hint or "")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return clicks.sparkSession.range(3)", "not of a stream"),
        ("return clicks.sparkSession.readStream.format('rate').load()", "a stream that the project does not know"),
        ("return 5", "gave int, not a DataFrame"),
        ("return clicks.groupBy('kind').count()", "does not fit its source"),
    ],
)
@pytest.mark.deep
def test_a_function_that_cannot_be_run_says_why(site: Site, body: str, said: str) -> None:
    (site._folder / "s.py").write_text(f"def f(clicks):\n    {body}\n")
    site.add((1, "a", 1))
    error = run(site.spark, site.plan("f")).errors[GOLD]
    assert isinstance(error, Terminal)
    assert said in error.message


@pytest.mark.deep
def test_a_source_without_rows_makes_a_table_without_rows(site: Site) -> None:
    plan = site.plan("windows")
    run_well(site.spark, plan)
    assert rows(plan, GOLD) == []
    whole_chain(plan, GOLD)
