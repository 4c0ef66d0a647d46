"""Scenario start: from the start of the process to the first commit with rows."""

from __future__ import annotations

import random
import shutil

from bench.arena import Arena
from bench.load import Feed
from bench.measure import Figures
from bench.outcome import Outcome, Series, Sheet, Target, failures, noise, ratio
from bench.process import ContenderFailed
from bench.scenarios.numbers import count, spread, times

NAMES = ("P", "a", "a again")
PARTITIONS = 4
_COLUMNS = ("contender", "new table, s", "spread", "P is", "table exists, s", "spread", "P is", "verified")


def start(arena: Arena) -> Outcome:
    """Each run has a topic of its own: first it makes its table, then it comes back to it with new records."""
    new = {name: Series(name) for name in NAMES}
    back = {name: Series(name) for name in NAMES}
    order = random.Random(f"{arena.seed}-start")
    for number in range(1, arena.sizes.rounds + 1):
        for name in order.sample(NAMES, len(NAMES)):
            if new[name].failure is None and name not in arena.sizes.leave_out:
                try:
                    first, second = _twice(arena, name, number)
                except ContenderFailed as failure:
                    arena.screen.say(f"start, round {number}: {name} failed: {failure}")
                    new[name] = Series(name, new[name].runs, str(failure))
                    back[name] = Series(name, back[name].runs, str(failure))
                else:
                    new[name] = Series(name, [*new[name].runs, first])
                    back[name] = Series(name, [*back[name].runs, second])
    fresh, again = new["P"].median(_first), back["P"].median(_first)
    return Outcome(
        scenario="start",
        setting=f"{arena.sizes.start_records:,} records wait in {PARTITIONS} partitions; from the start of the process "
        f"to the first commit with rows; {arena.sizes.rounds} interleaved rounds.",
        sheets=[
            Sheet(
                "start: seconds to the first commit",
                _COLUMNS,
                [
                    [
                        name,
                        count(new[name].median(_first), 1),
                        spread(new[name], _first, 1),
                        "" if name == "P" else times(ratio(fresh, new[name].median(_first))),
                        count(back[name].median(_first), 1),
                        spread(back[name], _first, 1),
                        "" if name == "P" else times(ratio(again, back[name].median(_first))),
                        new[name].verified if new[name].problem else back[name].verified,
                    ]
                    for name in NAMES
                    if new[name].verified != "not run"
                ],
            )
        ],
        targets=[
            Target("first commit of P against a, new table", "at most", 1.2, "x", _against_a(new)),
            Target("first commit of P against a, table exists", "at most", 1.2, "x", _against_a(back)),
        ],
        figures={
            "new": {name: [run.as_json() for run in one.runs] for name, one in new.items()},
            "exists": {name: [run.as_json() for run in one.runs] for name, one in back.items()},
        },
        notes=noise(new, _first),
        problems=failures([*new.values(), *back.values()]),
    )


def _twice(arena: Arena, name: str, number: int) -> tuple[Figures, Figures]:
    count = arena.sizes.start_records
    topic = f"start-{number}-{NAMES.index(name)}"
    folder = arena.folder / topic
    label = f"start, round {number} of {arena.sizes.rounds}"
    arena.fill(topic, count, PARTITIONS)
    first = arena.run(name, topic, count, f"{label}, new table", folder=folder)
    feed = Feed(arena.bootstrap)
    feed.send(topic, count, count, PARTITIONS)
    feed.flush()
    second = arena.run(name, topic, count, f"{label}, table exists", folder=folder)
    shutil.rmtree(folder)
    return first, second


def _first(run: Figures) -> float:
    return run.first_commit


def _against_a(series: dict[str, Series]) -> float | None:
    return ratio(series["P"].median(_first), series["a"].median(_first))
