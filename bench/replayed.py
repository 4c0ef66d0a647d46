"""A lake that is full before a replay is measured: records landed in bronze, decoded and judged in silver, by Penstock.

It is made once; each run works on a copy of its own, in which one rule has changed. The hand-written jobs read the same
bronze table as of the same version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from deltalake import DeltaTable, QueryBuilder

from bench.filled import Filled
from bench.jobs.job import FIELDS
from bench.load import BAD_EVERY, TypedRecords
from bench.process import ContenderFailed
from bench.product import Chosen, penstock, read_plan
from bench.progress import Commit

BRONZE = "bronze.orders"
SILVER = "silver.orders"
UNIQUE = "silver.unique"
"""The same with duplicates left out."""
RULE_BEFORE, RULE_NOW = "amount > 0", "amount > 10"
"""1% of the amounts are below: with the records that are no JSON, 2% of all are rejected by the new rule."""
_AGAIN_EVERY, _BACK = 50, 700
_PATIENCE = 1800


class ReplayedRecords(TypedRecords):
    """Every fiftieth record is a copy of an earlier one."""

    def value(self, n: int) -> str:
        return super().value(n - _BACK if n % _AGAIN_EVERY == 7 and n > _BACK else n)


@dataclass(frozen=True)
class Lake:
    folder: Path
    records: int
    version: int
    """Of bronze: what silver has read."""

    def copy(self, to: Path) -> Chosen:
        """The project with its lake and the rule of now; and what Penstock has chosen for it."""
        Filled(self.folder, self.records).copy("project", to)
        file = to / "penstock.yml"
        changed = file.read_text().replace(RULE_BEFORE, RULE_NOW)
        file.unlink()  # never the original, whatever a copy is
        file.write_text(changed)
        return read_plan(to)


def make_lake(folder: Path, bootstrap: str, topic: str, records: int, per_batch: int) -> Lake:
    project = folder / "project"
    project.mkdir(parents=True)
    (project / "penstock.yml").write_text(yaml.safe_dump(_project(bootstrap, topic, per_batch), sort_keys=False))
    ended = subprocess.run(penstock(project, "run", "--once"), capture_output=True, text=True, timeout=_PATIENCE)
    if ended.returncode:
        raise ContenderFailed(f"the lake could not be made: code {ended.returncode}\n{ended.stderr[-2000:]}")
    return Lake(folder, records, DeltaTable(read_plan(project).tables[BRONZE]).version())


def _project(bootstrap: str, topic: str, per_batch: int) -> dict[str, Any]:
    stages = {
        "from": {"table": BRONZE},
        "decode": {"json": "value", "schema": ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())},
        "expect": [{"name": "has_id", "check": "order_id IS NOT NULL"}, {"name": "enough", "check": RULE_BEFORE}],
    }
    return {
        "name": "bench",
        "lake": "./lake",
        "kafka": {"bootstrap": bootstrap},
        "tables": {
            BRONZE: {"from": {"kafka": topic, "starting": "earliest", "max_per_trigger": per_batch}},
            SILVER: stages,
            UNIQUE: {**stages, "dedupe": {"keys": ["order_id"]}},
        },
    }


class Made:
    """What a replay, or a job in its place, has committed to a table and to its quarantine since it was started."""

    def __init__(self, *tables: Path) -> None:
        self._logs = [table / "_delta_log" for table in tables]
        self._before = {log: _versions(log) for log in self._logs}

    def _new(self) -> list[float]:
        return sorted((log / name).stat().st_mtime for log in self._logs for name in _versions(log) - self._before[log])

    def first_batch(self) -> float | None:
        """The first commit of a replay opens it: nothing has been read before."""
        return next(iter(self._new()), None)

    def commits(self) -> list[Commit]:
        return [Commit(number, at, 1) for number, at in enumerate(self._new())]


def _versions(log: Path) -> set[str]:
    try:
        return {file.name for file in log.iterdir() if file.suffix == ".json" and file.stem.isdigit()}
    except FileNotFoundError:
        return set()


_PLACE = "_source['partition'] AS p, _source['offset'] AS o"
_ROWS = f"SELECT {', '.join(FIELDS)}, {_PLACE} FROM "
_REJECTS = f"SELECT value, {_PLACE} FROM "
_SURPLUS = """
    SELECT coalesce(sum(CASE WHEN d > 0 THEN d ELSE 0 END), 0) AS more,
           coalesce(sum(CASE WHEN d < 0 THEN -d ELSE 0 END), 0) AS fewer
    FROM (SELECT sum(side) AS d FROM (SELECT *, 1 AS side FROM ({one} a) UNION ALL SELECT *, -1 AS side FROM ({one} b))
          GROUP BY {columns})
"""
"""As multisets: DataFusion's EXCEPT ALL is none."""


def check_replayed(lake: Lake, table: Path, quarantine: Path | None, *, unique: bool) -> str | None:
    """None if the rows, and the rejected ones, are those of every other contender, column by column; and if there are
    as many as the seed of the records says."""
    parts = {"rows": table, **({"rejected": quarantine} if quarantine else {})}
    for what, folder in parts.items():
        if not DeltaTable.is_deltatable(str(folder)):
            return f"no table of {what}"
        kept = lake.folder / f"{what}-{'unique' if unique else 'all'}"
        problem = _compared(folder, kept, what) if kept.exists() else _counted(lake, folder, what, unique)
        if problem:
            return problem
        if not kept.exists():
            shutil.copytree(folder, kept, copy_function=os.link)
    return None


def _counted(lake: Lake, folder: Path, what: str, unique: bool) -> str | None:
    found = QueryBuilder().register("a", DeltaTable(folder)).execute("SELECT count(*) AS n FROM a").read_all()
    wanted = expected_counts(lake.records, unique)[what]
    there = found.column("n")[0].as_py()
    return None if there == wanted else f"{there} {what}, {wanted} expected"


def expected_counts(records: int, unique: bool) -> dict[str, int]:
    made, good, keys = ReplayedRecords(), 0, set()
    least = float(RULE_NOW.rpartition(" ")[2])
    for n in range(records):
        value = made.value(n)
        if n % BAD_EVERY and float(value.partition('"amount":')[2].partition(",")[0]) > least:
            good += 1
            keys.add(value[: value.index(",")])
    return {"rows": len(keys) if unique else good, "rejected": records - good}


def _compared(folder: Path, kept: Path, what: str) -> str | None:
    one, columns = (_ROWS, [*FIELDS, "p", "o"]) if what == "rows" else (_REJECTS, ["value", "p", "o"])
    both = QueryBuilder().register("a", DeltaTable(folder)).register("b", DeltaTable(kept))
    found = both.execute(_SURPLUS.format(one=one, columns=", ".join(columns))).read_all()
    more, fewer = (found.column(name)[0].as_py() for name in ("more", "fewer"))
    return f"{what}: {fewer} are missing, {more} should not be there" if more or fewer else None
