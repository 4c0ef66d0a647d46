"""`status` without a broker: the runner's words, the lock, the end of the log."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.ledger.delta_log import RecentLog
from penstock.operations import status as status_module
from penstock.operations.status import RunnerPhase, RunnerStatus, Status, document, status, write_state
from penstock.plan.model import Plan
from penstock.storage.locks import lock_path
from penstock.storage.stores import LocalStore
from tests.bronze_table import BronzeTable, plan_of, table_plan


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "BROKER_TIMEOUT", 0.05)


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    table = BronzeTable(table_plan(str(tmp_path / "lake" / "orders")), {"orders": "id-1"})
    return table.genesis({"orders": {0: 0, 1: 10}})


@pytest.fixture
def plan(tmp_path: Path, orders: BronzeTable) -> Plan:
    return plan_of(tmp_path, orders.plan)


def shown(plan: Plan) -> Status:
    (found,) = status(plan, plan.tables, LocalStore())
    json.dumps(document(found))
    return found


def say(plan: Plan, kind: RunnerPhase, reason: str | None = None, hint: str | None = None, process: int = 1) -> None:
    write_state(LocalStore(), plan.system, "bronze.orders", RunnerStatus(kind, reason, hint, process=process))


def hold(plan: Plan) -> subprocess.Popen[str]:
    """Another process that holds the run lock, as a runner does."""
    path = lock_path(plan.system, "bronze.orders", "run")
    code = (
        "import fcntl, os, pathlib, sys; p = pathlib.Path(sys.argv[1]); p.parent.mkdir(parents=True, exist_ok=True); "
        "f = os.open(p, os.O_RDWR | os.O_CREAT); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    )
    child = subprocess.Popen([sys.executable, "-c", code, path], stdin=-1, stdout=-1, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_the_last_batch_its_rows_and_its_position_are_shown(plan: Plan, orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}}).batch({"orders": {0: 150, 1: 12}}).carry()
    found = shown(plan)
    assert (found.state, found.generation, found.batch, found.version) == ("stopped", 1, 2, 3)
    assert found.rows == 152
    assert [(p.topic, p.partition, p.position) for p in found.partition_lags] == [("orders", 0, 150), ("orders", 1, 12)]
    age = found.age(orders.last.pins.time_ms + 5000)  # type: ignore[union-attr]
    assert age is not None and 0 <= age < 6


def test_without_a_broker_the_lag_is_unknown_and_the_rest_is_there(plan: Plan, orders: BronzeTable) -> None:
    orders.batch({"orders": {0: 100}})
    found = shown(plan)
    assert found.lag is None
    assert "does not answer" in (found.lag_unknown or "")
    assert found.rows == 100


def test_a_table_that_was_never_made_is_not_created(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, table_plan(str(tmp_path / "lake" / "none")))
    assert shown(plan).state == "not created"


def test_a_table_that_could_not_be_made_has_failed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, table_plan(str(tmp_path / "lake" / "none")))
    say(plan, "failed", "topic orders does not exist", "create it")
    found = shown(plan)
    assert (found.state, found.reason, found.hint) == ("failed", "topic orders does not exist", "create it")


def test_a_table_whose_lock_is_held_runs(plan: Plan) -> None:
    say(plan, "running")
    child = hold(plan)
    try:
        found = shown(plan)
        assert (found.state, found.process) == ("running", child.pid)
    finally:
        child.communicate("\n")
    assert shown(plan).state == "crashed"


def test_a_runner_that_vanished_without_a_word_has_crashed(plan: Plan) -> None:
    say(plan, "retrying", "the broker is away", process=4711)
    found = shown(plan)
    assert found.state == "crashed"
    assert "process 4711 died" in (found.reason or "")
    assert found.hint


@pytest.mark.parametrize("kind", ["failed", "finished", "stopped"])
def test_what_a_runner_said_in_the_end_stays(plan: Plan, kind: RunnerPhase) -> None:
    say(plan, kind, "because")
    assert (shown(plan).state, shown(plan).reason) == (kind, "because")


def test_on_an_object_store_a_runner_of_this_machine_that_is_gone_has_crashed(plan: Plan, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    remote = Plan("test", str(tmp_path), "s3://bucket/lake", "local[2]", 2, {}, (), plan.tables)

    class Here(LocalStore):
        """The lake of this test under another name."""

        def read(self, path: str) -> str | None:
            return super().read(path.replace("s3://bucket/lake", str(tmp_path / "remote")))

        def write(self, path: str, text: str) -> None:
            super().write(path.replace("s3://bucket/lake", str(tmp_path / "remote")), text)

    store = Here()
    for process, host, expected in (
        (gone.pid, socket.gethostname(), "crashed"),
        (os.getpid(), socket.gethostname(), "running"),
        (gone.pid, "another-machine", "running"),
    ):
        write_state(store, remote.system, "bronze.orders", RunnerStatus("running", process=process, host=host))
        (found,) = status(remote, remote.tables, store)
        assert found.state == expected


def committed_at(orders: BronzeTable, version: int, timestamp_ms: float) -> None:
    file = orders.log / f"{version:020d}.json"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = round(timestamp_ms)
    file.write_text("\n".join(map(json.dumps, lines)))


def test_rates_are_those_of_the_window_and_an_idle_table_has_none(plan: Plan, orders: BronzeTable) -> None:
    now = time.time() * 1000
    committed_at(orders, 0, now - 3_600_000)
    for number in range(1, 4):  # 100 rows a minute, each batch in half a second
        committed = now - (3 - number) * 60_000 - 1000
        orders.batch({"orders": {0: number * 100}}, started_ms=round(committed) - 500)
        committed_at(orders, number, committed)
    found = document(shown(plan))
    assert found["input_rows_per_second"] == 1.0 and found["window_seconds"] == pytest.approx(300, abs=1)
    assert found["processed_rows_per_second"] == found["rows_per_second"] == 200.0
    assert (found["last_batch_rows"], found["last_batch_seconds"]) == (100, 0.5)
    for number in range(1, 4):
        committed_at(orders, number, now - 900_000 + number * 1000)
    found = document(shown(plan))
    assert found["input_rows_per_second"] == 0.0 and found["processed_rows_per_second"] is None
    assert found["last_batch_rows"] == 100, "the last batch is told however long ago it was"


def test_commits_by_others_since_the_last_entry_are_pending(plan: Plan, orders: BronzeTable) -> None:
    orders.append([("orders", 0, 0)])
    orders.batch({"orders": {0: 100}})
    orders.append([("orders", 0, 7)])
    orders.delete("offset = 3")
    orders.commit(None, "VACUUM END")
    assert [(c.version, c.origin.value) for c in shown(plan).foreign] == [(3, "foreign append"), (4, "foreign change")]


def test_a_table_without_a_ledger_is_unreadable_and_says_why(tmp_path: Path, orders: BronzeTable) -> None:
    plan = plan_of(tmp_path, table_plan(orders.plan.uri, name="bronze.other"))
    found = shown(plan)
    assert found.state == "unreadable"
    assert "without a ledger entry" in (found.reason or "")
    assert found.hint


def test_a_log_that_is_damaged_is_unreadable_and_leaves_the_others_alone(tmp_path: Path, orders: BronzeTable) -> None:
    other = BronzeTable(table_plan(str(tmp_path / "lake" / "other"), name="bronze.other")).genesis({"orders": {0: 0}})
    (other.log / f"{0:020d}.json").write_text('{"commitInfo": {"oper')
    plan = plan_of(tmp_path, other.plan, orders.plan)
    damaged, whole = status(plan, plan.tables, LocalStore())
    assert (damaged.state, whole.state) == ("unreadable", "stopped")


@pytest.mark.parametrize("commits", [1, 2, 7, 20])
@pytest.mark.parametrize("checkpoint", [None, 0, 1, 6])
def test_the_end_of_a_log_is_found_from_its_checkpoint(tmp_path: Path, commits: int, checkpoint: int | None) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(commits):
        (log / f"{version:020d}.json").write_text('{"commitInfo": {"operation": "WRITE"}}')
    if checkpoint is not None:
        (log / "_last_checkpoint").write_text(json.dumps({"version": checkpoint}))
    found = [commit.version for commit in RecentLog(LocalStore(), str(tmp_path), "t").backwards()]
    assert found == list(range(commits - 1, -1, -1))


def test_a_log_that_was_cleaned_up_ends_where_it_ends(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(40, 60):
        (log / f"{version:020d}.json").write_text('{"commitInfo": {"operation": "WRITE"}}')
    (log / "_last_checkpoint").write_text('{"version": 50}')
    found = [commit.version for commit in RecentLog(LocalStore(), str(tmp_path), "t").backwards()]
    assert found == list(range(59, 39, -1))


def test_looking_does_not_take_the_lock(plan: Plan) -> None:
    path = Path(lock_path(plan.system, "bronze.orders", "run"))
    path.parent.mkdir(parents=True)
    path.touch()
    shown(plan)
    with path.open("r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
