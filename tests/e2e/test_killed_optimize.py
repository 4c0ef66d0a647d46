"""`optimize` beside a runner of another process, killed in the middle and run again; then `vacuum`. No row is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import start
from tests.integration.age_lake import turn_back
from tests.integration.run_plan import produce, rows_at

PROJECT = """\
name: killed
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
defaults: {{trigger: 1s}}
tables:
  bronze.orders: {{from: {{kafka: {topic}, max_per_trigger: 10}}}}
  silver.orders: {{from: {{table: bronze.orders}}}}
"""


def _wait(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert process.poll() is None, "it has ended"
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def _command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "-C", str(folder), *words]


def _answer(folder: Path, *words: str) -> dict[str, Any]:
    done = subprocess.run(_command(folder, *words, "--json"), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.deep
def test_an_optimize_that_is_killed_beside_a_runner_is_run_again(broker: Any, topic: Any, tmp_path: Path) -> None:
    name = topic(partitions=2)
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap, topic=name))
    sent = produce(broker.bootstrap, name, 80)
    silver = tmp_path / "lake/silver/orders"

    def landed() -> Counter[tuple[str, int, int]]:
        if not (silver / "_delta_log" / f"{0:020d}.json").exists():
            return Counter()
        return Counter((row["topic"], row["partition"], row["offset"]) for row in rows_at(str(silver)))

    runner = start(tmp_path)
    try:
        _wait(lambda: landed() == sent, runner)
        memory = tmp_path / "lake/_penstock/upkeep/bronze.orders.json"
        killed = subprocess.Popen(
            _command(tmp_path, "optimize", "bronze.orders", "--full", "--yes"),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _wait(lambda: memory.exists() and '"began"' in memory.read_text(), killed)
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait(30)

        sent += produce(broker.bootstrap, name, 40)
        again = _answer(tmp_path, "optimize", "--full", "--yes")
        assert all(table["error"] is None for table in again["tables"])
        assert again["tables"][0]["files"] > again["tables"][0]["files_after"]
        assert '"began"' not in memory.read_text()
        _wait(lambda: landed() == sent, runner)
        runner.send_signal(signal.SIGINT)
        assert runner.wait(60) == 0
    finally:
        if runner.poll() is None:
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
    kinds = [line["kind"] for line in _answer(tmp_path, "history", "bronze.orders")["commits"]]
    assert "optimize" in kinds
    turn_back(tmp_path / "lake", hours=30)
    found = {one["table"]: one for one in _answer(tmp_path, "vacuum", "--retain", "0s", "--yes")["tables"]}
    assert found["silver.orders"]["deleted_files"] >= 2, "nobody reads it: what was compacted goes"
    assert landed() == sent
    assert _answer(tmp_path, "verify")["complete"]
