"""The first run of a project, killed with SIGKILL at each step in which it creates something in the lake.

strace kills the process that enters the system call: the folder is about to be made, or the commit to get its name.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import start
from tests.integration.runs import produce, rows_at

PROJECT = """\
name: killed
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
tables:
  bronze.k: {{from: {{kafka: {topic}}}}}
  bronze.f: {{from: {{files: in, format: json, schema: id BIGINT NOT NULL}}}}
  silver.q: {{from: {{kafka: {topic}}}, decode: {{json: value, schema: id BIGINT}}}}
"""
PLACES = {
    "_penstock/files/bronze.f": "bronze.f",
    "bronze/k": "bronze.k",
    "bronze/f__quarantine": "bronze.f",
    "silver/q": "silver.q",
    "silver/q__quarantine": "silver.q",
}
"""In the order in which they are created; with the table that is run for it."""
FIRST = f"/_delta_log/{0:020d}"
STEPS = ("", "/_delta_log", f"{FIRST}.json", f"/_delta_log/.{0:020d}.json.crc", f"{FIRST}.crc")
CHECKPOINTS = {f"_penstock/checkpoints/{table}/1": table for table in ("bronze.k", "bronze.f")}
CALLS = "mkdir,mkdirat,rename,renameat,renameat2"
PATIENCE = 300


def killed_at(folder: Path, table: str, place: Path) -> bool:
    """Whether the run came to it; else it ended by itself."""
    inject = f"inject={CALLS}:signal=SIGKILL:when=1"
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(folder / "trace"), "-P", str(place)]
    command += ["-e", f"trace={CALLS}", "-e", inject]
    command += [sys.executable, "-m", "penstock", "-C", str(folder), "run", "--once", table]
    (folder / "trace").unlink(missing_ok=True)
    with (folder / "run.log").open("ab") as log:
        runner = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + PATIENCE
    try:
        while runner.poll() is None and "SIGKILL" not in _text(folder / "trace"):
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(0.05)
        return "SIGKILL" in _text(folder / "trace")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()


def _text(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not there")
def test_a_first_run_killed_at_each_step_of_creating_its_tables_is_finished_by_the_next(
    broker: Any, topic: Any, tmp_path: Path
) -> None:
    name = topic(partitions=1)
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap, topic=name))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
    for number in range(20):
        produce(broker.bootstrap, name, 1, partitions=[0], value=json.dumps({"id": number}) if number % 4 else "{")
    lake, killed, halves = tmp_path / "lake", [], []
    places = {f"{place}{step}": table for place, table in PLACES.items() for step in STEPS}
    for place, table in {**places, **CHECKPOINTS}.items():
        if killed_at(tmp_path, table, lake / place):
            killed.append(place)
            halves += [log for log in lake.glob("**/_delta_log") if not (log / f"{0:020d}.json").exists()]
    assert len(killed) > len(places) // 2 and halves, f"killed at {killed} only"
    last = start(tmp_path, "--once")
    assert last.wait(PATIENCE) == 0, _text(tmp_path / "run.log")[-3000:]
    every = Counter(range(20))
    assert Counter(row["offset"] for row in rows_at(str(lake / "bronze/k"))) == every
    rejected = Counter(row["_source"]["offset"] for row in rows_at(str(lake / "silver/q__quarantine")))
    assert Counter(row["id"] for row in rows_at(str(lake / "silver/q"))) + rejected == every
    assert Counter(row["id"] for row in rows_at(str(lake / "bronze/f"))) == Counter([1, 3])
    assert len(rows_at(str(lake / "bronze/f__quarantine"))) == 1
