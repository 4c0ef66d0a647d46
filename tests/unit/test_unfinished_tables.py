"""Tables whose creation was cut off, seen by the verbs that start no JVM: they do not exist yet, and nothing else."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import Conflict, PenstockError
from penstock.ledger.create import remove_unfinished
from penstock.ledger.head import read_head
from penstock.maintenance.tables import maintained_tables
from penstock.operations import status as status_ops
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.plan.sources import FilesSource
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from penstock.tables.startup_checks import move_leftovers
from penstock.verify import table as verify_ops
from tests.integration.unfinished_tables import DONE, STEPS
from tests.unit.hand_ledgers import HandLog, at, genesis
from tests.unit.project_file import AWAY

PROJECT = (
    AWAY
    + """\
tables:
  bronze.k: {from: {kafka: orders}}
  bronze.f: {from: {files: in, format: json, schema: id BIGINT}}
  silver.q:
    from: {table: bronze.k}
    decode: {json: value, schema: id BIGINT}
    lookups: {files: bronze.f}
    sql: SELECT q.*, f.id AS other FROM q LEFT JOIN files f ON q.id = f.id
  silver.m:
    from: {table: bronze.k}
    decode: {json: value, schema: "id BIGINT, seq BIGINT"}
    write: {merge: {keys: [id], sequence: seq}}
  gold.a: {from: {table: silver.q}, aggregate: {keys: [id], metrics: {n: count(*)}}}
sinks:
  out: {from: {table: bronze.k}, to: {kafka: out}}
"""
)
VERBS = [
    ["status"],
    ["status", "--json"],
    ["history", "silver.q"],
    ["dlq", "list"],
    ["dlq", "show", "silver.q"],
    ["dlq", "redrive", "silver.q", "--yes"],
    ["checkpoints", "list"],
    ["checkpoints", "show", "bronze.f"],
    ["checkpoints", "heal", "bronze.k", "--dry-run"],
    ["plan"],
    ["verify"],
    ["verify", "--json"],
    ["optimize", "--dry-run"],
    ["vacuum", "--dry-run"],
    ["replay", "silver.q", "--dry-run"],
    ["rewind", "silver.q", "--version", "0", "--dry-run"],
]
HALF = [step for step in STEPS if step not in DONE and step != "nothing"]


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_ops, "BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr(verify_ops, "BROKER_TIMEOUT", 0.05)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    (tmp_path / "in").mkdir()
    (tmp_path / "penstock.yml").write_text(PROJECT)
    return build_plan(load_project(tmp_path))


def folders(plan: Plan) -> list[Path]:
    found = []
    for table in plan.tables:
        found += [Path(table.uri), Path(f"{table.uri}__quarantine")]
        found += [Path(table.source.uri)] if isinstance(table.source, FilesSource) else []
    return found


def call(plan: Plan, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["-C", plan.root, *words], env={"COLUMNS": "100"})
    error = done.exception
    assert error is None or isinstance(error, PenstockError | SystemExit), (words, error)
    told = f"{error.message} {error.hint}" if isinstance(error, PenstockError) else ""
    times = r"\d+[.,]\d+ ?(ms|s|GB|MB)|\d+ (ms|s|bytes)|\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\d{5,}"
    return done.exit_code, re.sub(times, "…", done.output + told)


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_a_table_whose_creation_was_cut_off_is_one_that_was_not_created_yet(plan: Plan, words: list[str]) -> None:
    Path(plan.lake).mkdir()
    expected = call(plan, *words)
    for step in HALF:
        shutil.rmtree(plan.lake)
        for folder in folders(plan):
            STEPS[step](folder, b'{"commitInfo":{}}\n')
        assert call(plan, *words) == expected, step


def test_doctor_finds_the_same_as_before_the_first_run(plan: Plan) -> None:
    def found() -> list[tuple[str, str, str]]:
        done = CliRunner().invoke(app, ["-C", plan.root, "doctor", "--json"])
        return [(one["id"], one["subject"], one["level"]) for one in json.loads(done.stdout)["checks"]]

    Path(plan.lake).mkdir()
    expected = found()
    for folder in folders(plan):
        STEPS["half of it"](folder, b"{}")
    assert found() == expected


@pytest.mark.parametrize("step", HALF)
def test_what_was_left_behind_is_removed_and_only_that(plan: Plan, step: str) -> None:
    folder = Path(plan.tables[0].uri)
    STEPS[step](folder, b"{}")
    remove_unfinished(LocalStore(), str(folder), "bronze.k")
    assert not list(folder.iterdir())


def test_without_locks_what_another_process_may_be_creating_stays_until_it_is_old(plan: Plan) -> None:
    class WithoutLocks:
        def __getattr__(self, name: str) -> object:
            return getattr(LocalStore(), name)

    folder = Path(plan.tables[0].uri)
    STEPS["half of it"](folder, b"{}")
    there = sorted(folder.rglob("*"))
    with pytest.raises(Conflict, match="another process is creating it"):
        remove_unfinished(WithoutLocks(), str(folder), "bronze.k")  # type: ignore[arg-type]
    assert sorted(folder.rglob("*")) == there
    for file in there:
        os.utime(file, (time.time() - 60, time.time() - 60))
    remove_unfinished(WithoutLocks(), str(folder), "bronze.k")  # type: ignore[arg-type]
    assert not list(folder.iterdir())


def test_what_lies_beside_a_new_table_and_is_older_is_moved_aside(plan: Plan) -> None:
    table = plan.table("silver.m")
    assert table is not None
    uri = Path(table.uri)
    old, young = (HandLog(Path(f"{uri}{end}"), f"silver.m{end}") for end in ("__tombstones", "__quarantine"))
    made = HandLog(uri, "silver.m")
    old.commit("CREATE TABLE", time_ms=1_000)
    made.commit("CREATE TABLE", note=replace(genesis(at(0)), table="silver.m"), time_ms=1_700_000_000_000)
    young.commit("CREATE TABLE", time_ms=1_700_000_000_001)
    tail = read_head(made.log)
    assert tail is not None
    (said,) = move_leftovers(LocalStore(), table, tail)
    assert "silver.m__tombstones" in said and "20231114T221320Z" in said
    names = sorted(path.name for path in uri.parent.iterdir())
    assert names == ["m", "m__quarantine", "m__tombstones.before-20231114T221320Z"]
    assert move_leftovers(LocalStore(), table, tail) == []


def test_a_merged_table_that_no_longer_deletes_may_still_have_tombstones(plan: Plan) -> None:
    table = plan.table("silver.m")
    assert table is not None and table.write.merge is not None and not table.write.merge.deletes
    assert [place.kind for place in maintained_tables(table)] == ["table", "quarantine", "tombstones"]
