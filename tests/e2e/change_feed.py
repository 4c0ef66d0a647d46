"""The change feed of a table of a project, as Delta itself reads it, in a process of its own: a line per change, JSON.

python -m tests.e2e.change_feed FOLDER TABLE
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def change_feed(folder: Path, table: str) -> list[dict[str, Any]]:
    """Every change of every version, with `_change_type` and `_commit_version`."""
    command = [sys.executable, "-m", "tests.e2e.change_feed", str(folder), table]
    said = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr[-3000:]
    return [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]


def _print(folder: Path, name: str) -> None:
    from penstock.plan.build import build_plan
    from penstock.spark.session import spark_session
    from penstock.spec.load import load_project

    plan = build_plan(load_project(folder))
    table = plan.table(name)
    assert table is not None
    with spark_session(plan) as spark:
        reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        for row in reader.load(table.uri).drop("_commit_timestamp").toLocalIterator():
            print(json.dumps(row.asDict(recursive=True), default=str))


if __name__ == "__main__":
    _print(Path(sys.argv[1]), sys.argv[2])
