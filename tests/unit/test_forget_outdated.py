"""A runner that may not know of a subject is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.erasure.request import outdated
from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from penstock.storage.locks import lock_path

PROJECT = """\
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:9"}
tables: {bronze.orders: {from: {kafka: orders}, subjects: {customer: key}}}
"""
HOLD = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"


@pytest.mark.parametrize(("changed", "named"), [("2026-01-02", True), ("2025-12-31", False)])
def test_a_runner_from_before_the_project_file_was_changed_is_named(tmp_path: Path, changed: str, named: bool) -> None:
    from datetime import UTC, datetime

    (tmp_path / "penstock.yml").write_text(PROJECT)
    plan = build_plan(load_project(tmp_path))
    time = datetime.fromisoformat(changed).replace(tzinfo=UTC).timestamp()
    os.utime(tmp_path / "penstock.yml", (time, time))
    assert outdated(plan, plan.tables) == {}
    lock = Path(lock_path(plan.system, "bronze.orders", "run"))
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"python": 1, "since": "2026-01-01T10:00:00Z"}))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], **pipes) as runner:  # type: ignore[call-overload]
        runner.stdout.readline()
        found = outdated(plan, plan.tables)
        runner.communicate()
    assert list(found) == (["bronze.orders"] if named else [])
