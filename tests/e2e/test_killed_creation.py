"""The first run of a project, killed with SIGKILL right after each step in which it creates something in the lake."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import kill_group, start
from tests.integration.run_plan import produce, rows_at

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
"""What is created, and the table that is run for it."""
STEPS = ("_delta_log", "_delta_log/.*.tmp", f"_delta_log/{0:020d}.json", f"_delta_log/{0:020d}.crc")
RECORDS = 20
PATIENCE = 300


def killed_after(folder: Path, table: str, place: Path, step: str) -> bool:
    """Whether the run came to it; else it ended by itself. What was there before does not count."""
    before = _found(place, step)
    runner = start(folder, "--once", table)
    deadline = time.monotonic() + PATIENCE
    try:
        while runner.poll() is None:
            if _found(place, step) - before:
                return True
            assert time.monotonic() < deadline, "it hangs"
            time.sleep(0.0002)
        return False
    finally:
        with suppress(ProcessLookupError):
            kill_group(runner)
        runner.wait()


def _found(place: Path, step: str) -> set[tuple[str, int, int]]:
    found = set()
    for path in place.glob(step):
        with suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_ino, path.stat().st_ctime_ns))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("place", PLACES)
def test_a_first_run_killed_after_each_step_of_creating_something_is_finished_by_the_next(
    broker: Any, topic: Any, tmp_path: Path, place: str
) -> None:
    name, lake, table = topic(partitions=1), tmp_path / "lake", PLACES[place]
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap, topic=name))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
    for number in range(RECORDS):
        value = json.dumps({"id": number}) if number % 4 else "{"
        produce(broker.bootstrap, name, 1, partitions=[0], value=value)
    halves = 0
    for step in STEPS:
        if killed_after(tmp_path, table, lake / place, step):
            halves += not (lake / place / f"_delta_log/{0:020d}.json").exists()
    assert halves, "no run was killed in time"
    assert start(tmp_path, "--once", table).wait(PATIENCE) == 0, (tmp_path / "run.log").read_text()[-3000:]
    folder = lake / table.replace(".", "/")
    rows = rows_at(str(folder))
    if table == "bronze.k":
        assert Counter(row["offset"] for row in rows) == Counter(range(RECORDS))
        return
    rejected = Counter(row["_source"].get("offset") for row in rows_at(f"{folder}__quarantine"))
    if table == "bronze.f":
        assert Counter(row["id"] for row in rows) == Counter([1, 3]) and rejected.total() == 1
    else:
        assert Counter(row["id"] for row in rows) + rejected == Counter(range(RECORDS))
