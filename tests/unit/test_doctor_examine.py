"""The whole examination, over lakes that are well, damaged, or out of reach."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from penstock.doctor import examine, topics
from penstock.doctor.check import Check
from penstock.ledger.checkpoint import heal
from penstock.operations.status import RunnerStatus, write_state
from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.bronze_table import BronzeTable
from tests.unit.doctor_tables import last, noted
from tests.unit.project_file import AWAY

STORE = LocalStore()


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TIMEOUT", 0.05)


PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
  bronze.clicks: {from: {kafka: clicks}}
"""
)


def examined(folder: Path, text: str = PROJECT) -> tuple[Plan, dict[tuple[str, str], Check]]:
    """All checks by id and subject: the worst of each."""
    (folder / "penstock.yml").write_text(text)
    project = load_project(folder)
    plan = build_plan(project)
    found: dict[tuple[str, str], Check] = {}
    for check in examine.examine(project, plan, plan.tables):
        found.setdefault((check.id, check.subject), check)
    return plan, found


def test_without_a_broker_all_else_is_checked_and_the_broker_is_one_finding(tmp_path: Path) -> None:
    plan, _ = examined(tmp_path)
    table = BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}}).batch({"orders": {0: 50}})
    heal(STORE, f"{table.plan.checkpoints}/1", last(table))
    write_state(STORE, plan.system, "bronze.orders", RunnerStatus("failed", "the disk is full", "make room"))
    _, found = examined(tmp_path)
    reds = sorted(key for key, check in found.items() if check.level == "red")
    assert reds == [("kafka.answers", "the project"), ("table.state", "bronze.orders")]
    assert found[("table.state", "bronze.orders")].fix == "make room"
    assert found[("table.state", "bronze.clicks")].level == "note"
    for unknown in ("kafka.topics", "kafka.retention", "table.silent", "pace.behind"):
        assert found[(unknown, "bronze.orders")].level == "unknown"
        assert "does not answer" in found[(unknown, "bronze.orders")].found
    assert found[("table.checkpoint", "bronze.orders")].level == "ok"
    assert found[("table.files", "bronze.orders")].found.startswith("1 file, ")
    assert "came in the last day" not in found[("disk.room", "the project")].found  # deltalake notes no sizes
    assert ("table.files", "bronze.clicks") not in found


def test_a_damaged_log_leaves_the_other_tables_alone(tmp_path: Path) -> None:
    plan, _ = examined(tmp_path)
    for one in plan.tables:
        BronzeTable(one).genesis({"orders": {0: 0}}).batch({"orders": {0: 50}})
    log = Path(plan.tables[0].uri) / "_delta_log"
    (log / f"{1:020d}.json").write_text('{"commitInfo": {"oper')
    _, found = examined(tmp_path)
    assert found[("table.state", "bronze.orders")].level == "red"
    assert found[("table.checkpoint", "bronze.orders")].level == "unknown"
    assert found[("table.files", "bronze.clicks")].level == "ok"


@pytest.mark.parametrize("text", ["[]", '"x"', "{}", "{}\n{}", "null", '{"add": 5}', "\x00\x1b[31m"])
def test_hostile_logs_are_findings_not_tracebacks(tmp_path: Path, text: str) -> None:
    plan, _ = examined(tmp_path)
    log = Path(plan.tables[0].uri) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text(text)
    (log / f"{0:020d}.crc").write_text(text)
    (log / "_last_checkpoint").write_text(text)
    _, found = examined(tmp_path)
    assert found[("table.state", "bronze.orders")].level == "red"


def test_growth_of_the_last_day_is_the_difference_of_two_notes(tmp_path: Path) -> None:
    plan, _ = examined(tmp_path)
    table = (
        BronzeTable(plan.tables[0]).genesis({"orders": {0: 0}}).batch({"orders": {0: 50}}).batch({"orders": {0: 60}})
    )
    noted(table, 0, 0, 0)
    noted(table, 1, 1, 1000)
    noted(table, 2, 2, 5000)
    now = time.time() * 1000
    assert examine.read_snapshot(plan, plan.tables[0], STORE, now).daily_growth == 5000
    path = table.log / f"{1:020d}.json"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if "commitInfo" in line:
            line["commitInfo"]["timestamp"] = now - 2 * 86_400_000
    path.write_text("\n".join(map(json.dumps, lines)))
    first = table.log / f"{0:020d}.json"
    first.write_text(first.read_text().replace(str(_time(first)), str(round(now - 3 * 86_400_000))))
    found = examine.read_snapshot(plan, plan.tables[0], STORE, now)
    assert found.daily_growth == 4000
    assert found.pause is not None and 1.9 * 86_400 < found.pause.seconds < 2.1 * 86_400
    first.unlink()
    path.unlink()  # as by a retention of less than a day: what is left of the log tells nothing of yesterday
    assert examine.read_snapshot(plan, plan.tables[0], STORE, now).daily_growth is None


def _time(path: Path) -> int:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return next(int(line["commitInfo"]["timestamp"]) for line in lines if "commitInfo" in line)


def test_a_lake_that_only_spark_can_read_is_unknown_and_the_rest_is_checked(tmp_path: Path) -> None:
    _, found = examined(tmp_path, PROJECT.replace("./lake", "hdfs://namenode/lake"))
    assert found[("lake.readable", "the project")].level == "unknown"
    assert found[("secrets.plain", "the project")].level == "ok"
    assert ("memory.driver", "the project") in found


def test_a_lake_that_may_not_be_read_is_one_red_finding(tmp_path: Path) -> None:
    plan, _ = examined(tmp_path)
    Path(plan.system).parent.mkdir(parents=True, exist_ok=True)
    Path(plan.system).symlink_to(Path(plan.system).name)  # a link to itself: nobody can follow it, not even root
    _, found = examined(tmp_path)
    assert found[("lake.readable", "the project")].level == "red"
    assert not any(subject == "bronze.orders" for _, subject in found)
