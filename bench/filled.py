"""Tables that are full before anything is measured. They are made once; each run changes a copy of its own.

Penstock's is made by Penstock, from a topic that is still empty, so its ledger is whole; Spark then appends the rows in
the table's own columns, which the ledger sees as an append by others. The hand-written jobs' tables get the same rows.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.changes import DELETES, FIELDS
from bench.jobs.fill_job import Fill, FillFile
from bench.process import ContenderFailed
from bench.product import Chosen, penstock, read_plan, write_project
from bench.stock import stock_conf, tuned_conf

TABLE = "silver.items"
MERGED: Mapping[str, Any] = {
    "decode": {"json": "value", "schema": ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())},
    "write": {"merge": {"keys": ["id"], "sequence": "seq", "delete_when": DELETES, "columns": {"except": ["op"]}}},
}
_PATIENCE = 900


@dataclass(frozen=True)
class Filled:
    """Below `folder`: `project`, a project of Penstock with its lake, and the tables `tuned` and `stock`."""

    folder: Path
    rows: int

    def copy(self, name: str, to: Path) -> None:
        """Files of rows are never written again, so a copy shares them; the log is copied for real."""
        shutil.copytree(self.folder / name, to, copy_function=_link)


def _link(file: str, to: str) -> None:
    if file.endswith(".parquet"):
        os.link(file, to)
    else:
        shutil.copy2(file, to)


def fill_tables(folder: Path, bootstrap: str, topics: Mapping[int, str], per_batch: int, per_file: int) -> list[Filled]:
    """`topics`: rows -> the topic that their changes will come from. It must be there, and empty."""
    made = [Filled(folder / str(rows), rows) for rows in topics]
    chosen = [_create(one, bootstrap, topics[one.rows], per_batch) for one in made]
    master, conf = chosen[0].master, tuned_conf(dict(chosen[0].conf))
    tuned = [
        fill
        for one, plan in zip(made, chosen, strict=True)
        for fill in (
            Fill(str(plan.tables[TABLE]), one.rows, per_file, None),
            Fill(str(one.folder / "tuned"), one.rows, per_file, dict(plan.properties)),
        )
    ]
    stock = [Fill(str(one.folder / "stock"), one.rows, per_file, {}) for one in made]
    for name, conf_, fills in (("tuned", conf, tuned), ("stock", stock_conf(), stock)):
        file = folder / f"{name}.json"
        FillFile(master, conf_, fills).write(file)
        _finish([sys.executable, "-m", "bench.jobs.fill_job", str(file)])
    return made


def _create(one: Filled, bootstrap: str, topic: str, per_batch: int) -> Chosen:
    project = one.folder / "project"
    write_project(project, bootstrap, {TABLE: topic}, per_batch=per_batch, stages=MERGED)
    _finish(penstock(project, "run", "--once"))
    return read_plan(project)


def _finish(command: Sequence[str]) -> None:
    root = Path(__file__).resolve().parents[1]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, cwd=root)
    if ended.returncode:
        raise ContenderFailed(f"the tables could not be filled: code {ended.returncode}\n{ended.stderr[-2000:]}")
