"""Scenario growth: what a batch costs in a table of 1, 4 and 16 times the rows: dedupe within a bound, hourly groups.

The rows come in the order of their time, as events do, so the files that can hold a batch's keys, or the rows of its
groups, are few however many there are. The cost of a batch should follow those, and not the table.
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from bench.arena import Arena
from bench.load import RECORD_BYTES, Feed, Records, create_topics
from bench.outcome import Outcome, Sheet, Target, ratio
from bench.process import ContenderFailed
from bench.product import penstock
from bench.progress import DeltaProgress, Offsets
from bench.scenarios.numbers import count, times

_UNCOUNTED = 5
_PER_HOUR = 20_000
TABLES: dict[str, Any] = {
    "silver.events": {
        "decode": {"json": "value", "schema": "id BIGINT, who STRING, ts TIMESTAMP, amount DECIMAL(18,4)"},
        "dedupe": {"keys": ["id"], "within": "2 hours", "time": "ts"},
    },
    "gold.hours": {
        "from": {"table": "silver.events"},
        "aggregate": {
            "window": {"time": "ts", "every": "1 hour"},
            "metrics": {"events": "count(*)", "revenue": "sum(amount)", "people": "count(DISTINCT who)"},
        },
    },
}


class TimedRecords(Records):
    """A steady stream of events; every fiftieth is a copy of one a little earlier."""

    def value(self, n: int) -> str:
        number = n - 700 if n % 50 == 0 and n > 700 else n
        seconds = 1_767_225_600 + number * 3600 // _PER_HOUR
        ts = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
        head = f'{{"id":{number},"who":"{self.key(number)}","ts":"{ts}","amount":{number % 900}.25,"note":"'
        return head + "x" * (RECORD_BYTES - len(head) - 2) + '"}'


def growth(arena: Arena) -> Outcome:
    sizes = arena.sizes
    found: dict[int, dict[str, float]] = {}
    for factor in sizes.growth_times:
        with arena.screen.step(f"growth: {factor} times {sizes.growth_rows:,} rows", 1):
            found[factor] = _measure(arena, factor)
        said = ", ".join(f"{table} {seconds * 1000:,.0f} ms a batch" for table, seconds in found[factor].items())
        arena.screen.say(f"growth: {factor:>2} times: {said}")
    first, last = sizes.growth_times[0], sizes.growth_times[-1]
    return Outcome(
        scenario="growth",
        setting=f"Batches of {sizes.growth_batch:,} records, in the order of their time, into tables of "
        f"{sizes.growth_rows:,} rows and multiples; medians of {sizes.growth_batches - _UNCOUNTED} batches, commit to "
        "commit.",
        sheets=[
            Sheet(
                "growth: ms a batch",
                ("table", *(f"{factor} times" for factor in found), "last to first"),
                [
                    [
                        table,
                        *(count(one[table] * 1000) for one in found.values()),
                        times(ratio(found[last][table], found[first][table])),
                    ]
                    for table in TABLES
                ],
            )
        ],
        targets=[
            Target(
                f"a batch of {table} at {last} times the rows",
                "at most",
                1.5,
                "x",
                ratio(found[last][table], found[first][table]),
            )
            for table in TABLES
        ],
        figures={str(factor): one for factor, one in found.items()},
    )


def _measure(arena: Arena, factor: int) -> dict[str, float]:
    sizes, topic = arena.sizes, f"growth-{factor}"
    folder = arena.folder / topic
    create_topics(arena.bootstrap, [topic], 2)
    feed = Feed(arena.bootstrap, TimedRecords())
    rows = sizes.growth_rows * factor
    feed.send(topic, 0, rows, 2)
    feed.flush()
    _run(folder, arena.bootstrap, topic, 200_000)
    feed.send(topic, rows, sizes.growth_batch * sizes.growth_batches, 2)
    feed.flush()
    progress = {table: DeltaProgress(folder / "lake" / table.replace(".", "/"), Offsets(folder)) for table in TABLES}
    before = {table: len(one.commits()) for table, one in progress.items()}
    _run(folder, arena.bootstrap, topic, sizes.growth_batch)
    return {
        table: statistics.median(_gaps([commit.at for commit in one.commits()[before[table] :]]))
        for table, one in progress.items()
    }


def _gaps(moments: list[float]) -> Iterator[float]:
    for earlier, later in list(itertools.pairwise(moments))[_UNCOUNTED - 1 :]:
        yield later - earlier


def _run(folder: Path, bootstrap: str, topic: str, per_batch: int) -> None:
    tables = json.loads(json.dumps(TABLES))
    tables["silver.events"]["from"] = {"kafka": topic, "max_per_trigger": per_batch}
    tables["gold.hours"]["from"]["max_files"] = 1
    folder.mkdir(parents=True, exist_ok=True)
    project = {"name": "growth", "lake": "./lake", "kafka": {"bootstrap": bootstrap}, "tables": tables}
    (folder / "penstock.yml").write_text(yaml.safe_dump(project, sort_keys=False))
    ended = subprocess.run(penstock(folder, "run", "--once"), capture_output=True, text=True, timeout=1800)
    if ended.returncode:
        raise ContenderFailed(f"`penstock run` ended with code {ended.returncode}\n{ended.stderr[-2000:]}")
