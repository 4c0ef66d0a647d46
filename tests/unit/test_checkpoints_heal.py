"""`checkpoints heal`: rebuilt from the ledger, under the locks, whatever dies in between."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli.checkpoints import group
from penstock.errors import Conflict, LockHeld, TableChanged, Terminal
from penstock.operations import heal as heal_module
from penstock.operations.checkpoint_state import inspect_checkpoint
from penstock.operations.heal import plan_heal, run_heal
from penstock.operations.status import RunnerStatus, write_state
from penstock.plan.model import Plan
from penstock.storage.locks import Name, lock_path, owner
from penstock.storage.stores import LocalStore
from tests.unit.hand_checkpoints import BRONZE, GOLD, SILVER, STORE, Held, make_plan


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


@pytest.fixture
def silver(plan: Plan) -> Held:
    return Held(plan, SILVER)


def call(plan: Plan, *words: str, said: str = "") -> Result:
    return CliRunner().invoke(group, ["heal", "-C", plan.root, *words], input=said, env={"COLUMNS": "100"})


@contextmanager
def held(plan: Plan, name: Name) -> Iterator[int]:
    """Another process holds a lock of silver.orders."""
    code = (
        "import sys; from penstock.storage.locks import ProcessLock; lock = ProcessLock(sys.argv[1]); "
        "got = lock.try_acquire(); lock.sign(); print(got, flush=True); input()"
    )
    path = lock_path(plan.system, SILVER, name)
    child = subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1, text=True)
    assert child.stdout is not None and child.stdout.readline() == "True\n"
    try:
        yield child.pid
    finally:
        child.communicate("\n")


def test_a_lost_checkpoint_is_made_again_at_the_ledgers_end(plan: Plan, silver: Held) -> None:
    shutil.rmtree(silver.folder)
    found = run_heal(plan, silver.table, STORE)
    assert found is not None and found.why == "it is missing or empty"
    seen = inspect_checkpoint(silver.table, STORE)
    assert (seen.in_step, seen.planned, seen.committed) == (True, 3, 2)  # the last batch is left to Spark to run again


def test_one_in_step_is_left_as_it_is(plan: Plan, silver: Held) -> None:
    before = (silver.folder / "metadata").read_text()
    found = run_heal(plan, silver.table, STORE)
    assert found is not None and found.why is None
    assert (silver.folder / "metadata").read_text() == before


def test_healing_twice_is_healing_once(plan: Plan, silver: Held) -> None:
    (silver.folder / "commits" / "3").write_text("")
    assert run_heal(plan, silver.table, STORE) is not None
    healed = (silver.folder / "metadata").read_text()
    found = run_heal(plan, silver.table, STORE)
    assert found is not None and found.why is None
    assert (silver.folder / "metadata").read_text() == healed


class Dying(LocalStore):
    """Dies at its n-th change of a file."""

    def __init__(self, after: int) -> None:
        self.left = after

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def write(self, path: str, text: str) -> None:
        self._change()
        super().write(path, text)

    def move(self, source: str, target: str) -> None:
        self._change()
        super().move(source, target)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


def test_killed_at_any_moment_it_can_be_run_again(plan: Plan, silver: Held) -> None:
    changes = 0
    while True:
        silver.checkpoint()
        (silver.folder / "metadata").unlink()
        try:
            run_heal(plan, silver.table, Dying(changes))
        except KeyboardInterrupt:
            found = run_heal(plan, silver.table, STORE)
            assert found is not None and found.why is not None
            assert inspect_checkpoint(silver.table, STORE).in_step
            assert [path.name for path in silver.folder.parent.iterdir()] == ["1"]
            changes += 1
            continue
        break
    assert changes >= 6


def test_it_is_refused_while_a_runner_works_on_the_table(plan: Plan, silver: Held) -> None:
    shutil.rmtree(silver.folder)
    with held(plan, "run") as process:
        for attempt in (plan_heal, run_heal):
            with pytest.raises(LockHeld, match=f"process {process}"):
                attempt(plan, silver.table, STORE)
    assert not silver.folder.exists()
    assert run_heal(plan, silver.table, STORE) is not None


def test_it_waits_for_a_command_that_commits(plan: Plan, silver: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(silver.folder)
    whole = heal_module.acquire_commit
    monkeypatch.setattr(heal_module, "acquire_commit", lambda lock, table: whole(lock, table, patience=0.2))
    with held(plan, "commit"), pytest.raises(Conflict, match="has held the commit lock"):
        run_heal(plan, silver.table, STORE)
    assert run_heal(plan, silver.table, STORE) is not None


def test_others_are_told_who_heals(plan: Plan, silver: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(silver.folder)
    seen = []
    whole = heal_module.heal

    def beside(*given: object) -> None:
        seen.append(owner(lock_path(plan.system, SILVER, "run")))
        whole(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(heal_module, "heal", beside)
    run_heal(plan, silver.table, STORE)
    assert seen[0]["python"] == os.getpid()


def test_a_table_that_a_person_has_to_decide_about_is_not_healed(plan: Plan, silver: Held) -> None:
    silver.log.commit("DELETE", adds=1, removes=1)
    shutil.rmtree(silver.folder)
    with pytest.raises(TableChanged):
        run_heal(plan, silver.table, STORE)
    assert not silver.folder.exists()


def test_sparks_state_cannot_be_healed_and_the_way_on_is_said(plan: Plan) -> None:
    gold = Held(plan, GOLD)
    shutil.rmtree(gold.folder)
    with pytest.raises(Terminal, match="cannot be rebuilt") as refused:
        run_heal(plan, gold.table, STORE)
    assert "--to starting" in (refused.value.hint or "")


def test_a_state_that_was_never_begun_is_begun_by_a_run(plan: Plan) -> None:
    gold = Held(plan, GOLD, batches=0)
    shutil.rmtree(gold.folder)
    with pytest.raises(Terminal, match="which Spark alone makes") as refused:
        run_heal(plan, gold.table, STORE)
    assert refused.value.hint == "no row was written yet: `penstock run gold.sessions` begins it"


def test_without_locks_a_runner_is_known_by_what_it_said(plan: Plan, silver: Held) -> None:
    remote = replace(plan, lake=f"file://{plan.lake}")
    store = LocalStore()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    shutil.rmtree(silver.folder)

    class Here(LocalStore):
        """The lake of this test under another name."""

        def read(self, path: str) -> str | None:
            return super().read(path.removeprefix("file://"))

    write_state(store, plan.system, SILVER, RunnerStatus("running", process=1, host="another-machine"))
    with pytest.raises(LockHeld, match="another-machine"):
        run_heal(remote, silver.table, Here())
    write_state(store, plan.system, SILVER, RunnerStatus("running", process=gone.pid))
    assert run_heal(remote, silver.table, Here()) is not None
    assert inspect_checkpoint(silver.table, STORE).in_step
    assert not Path(lock_path(plan.system, SILVER, "run")).exists()


def test_the_command_says_what_it_does_and_asks_first(plan: Plan, silver: Held) -> None:
    shutil.rmtree(silver.folder)
    dry = call(plan, SILVER, "--dry-run")
    assert dry.exit_code == 0 and "it is missing or empty" in dry.stdout and "batch 1.3: version 4" in dry.stdout
    assert not silver.folder.exists()
    assert call(plan, SILVER, said="n\n").exit_code == 1
    assert not silver.folder.exists()
    assert "done" in call(plan, SILVER, said="y\n").stdout
    assert silver.folder.exists()
    assert "nothing to do" in call(plan, SILVER).stdout
    assert "nothing to heal" in call(plan, BRONZE).stdout


def test_the_command_answers_in_json(plan: Plan, silver: Held) -> None:
    shutil.rmtree(silver.folder)
    document = json.loads(call(plan, SILVER, "--yes", "--json").stdout)
    assert (document["done"], document["batch"], document["why"]) == (True, 3, "it is missing or empty")
    document = json.loads(call(plan, SILVER, "--yes", "--json").stdout)
    assert (document["done"], document["why"]) == (False, None)
    assert json.loads(call(plan, BRONZE, "--json").stdout) == {"table": BRONZE, "done": False}
