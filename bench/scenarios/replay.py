"""Scenario replay: a silver table made anew from bronze after a rule has changed, beside batch jobs written by hand.

A replay has to be worth having: nobody should write a job of his own because it is faster. So it is compared with what
such a job takes, round by round, and both results with each other, row by row.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Mapping

from bench.arena import Arena
from bench.measure import Figures
from bench.outcome import Outcome, Series, Sheet, Target, failures
from bench.process import ContenderFailed
from bench.replayed import Lake, ReplayedRecords, make_lake
from bench.scenarios.numbers import count, spread, times

NAMES = ("R", "b", "b+", "b0", "b'", "Rd", "bd")
BOUNDS = {"R": {"b": 0.9, "b+": 0.9}, "Rd": {"bd": 0.9}}
TOPIC = "replay"
_COLUMNS = (
    "contender",
    "rows/s",
    "lowest to highest",
    "R (Rd) is",
    "process rows/s",
    "R (Rd) is",
    "CPU-s/M rows",
    "verified",
)


def replay(arena: Arena) -> Outcome:
    sizes = arena.sizes
    arena.fill(TOPIC, sizes.replay_records, records=ReplayedRecords())
    with arena.screen.step(f"replay: a lake of {sizes.replay_records:,} records", 1):
        lake = make_lake(arena.folder / "replay", arena.bootstrap, TOPIC, sizes.replay_records, sizes.replay_batch)
    found = _compete(arena, lake)
    return Outcome(
        scenario="replay",
        setting=f"{sizes.replay_records:,} JSON records of 250 bytes in bronze; silver decodes nine fields and judges "
        "them by two rules, of which one has changed: 2% of the records are rejected then. Rd and bd leave out "
        f"duplicates besides, 2% of the records. {sizes.rounds} interleaved rounds, each process new, after one that "
        "does not count. rows/s: records of bronze, from the open replay (by hand: the version is known) to the last "
        "commit, that of the quarantine included; process: from its start to its end. Ratios are medians of those of "
        "the rounds. Rows and rejected rows of all contenders are compared, column by column, as multisets.",
        sheets=[Sheet("replay: records per second", _COLUMNS, _rows(found))],
        targets=targets(found),
        figures={name: [run.as_json() for run in one.runs] for name, one in found.items()},
        problems=failures(list(found.values())),
    )


def targets(found: Mapping[str, Series]) -> list[Target]:
    """Of the reading, which grows with the table. The start does not, and is shown beside it."""
    return [
        Target(f"rate of {own} against {name}", "at least", bound, "x", by_round(found[own], found[name], _rate))
        for own, bounds in BOUNDS.items()
        for name, bound in bounds.items()
    ]


def by_round(own: Series, other: Series, of: Callable[[Figures], float]) -> float | None:
    """The median of the ratios within a round: what else the machine does meanwhile, it does to both."""
    if own.problem or other.problem or not own.runs or len(own.runs) != len(other.runs):
        return None
    return statistics.median(of(one) / of(two) for one, two in zip(own.runs, other.runs, strict=True))


def _compete(arena: Arena, lake: Lake) -> Mapping[str, Series]:
    """Each once per round, the order of each round drawn anew; the round before the first does not count."""
    found = {name: Series(name) for name in NAMES}
    order = random.Random(f"{arena.seed}-replay")
    names = [name for name in NAMES if name not in arena.sizes.leave_out]
    for number in range(0 if arena.sizes.warm_up else 1, arena.sizes.rounds + 1):
        label = f"replay, round {number} of {arena.sizes.rounds}" if number else "replay, uncounted"
        for name in order.sample(names, len(names)):
            if found[name].failure is None:
                run = _add(arena, found[name], lake, label)
                found[name] = run if number or run.problem else found[name]
    return found


def _add(arena: Arena, series: Series, lake: Lake, label: str) -> Series:
    try:
        figures = arena.run(series.name, TOPIC, arena.sizes.replay_batch, label, lake=lake)
    except ContenderFailed as failure:
        arena.screen.say(f"{label}: {series.name} failed: {failure}")
        return Series(series.name, series.runs, str(failure))
    return Series(series.name, [*series.runs, figures])


def _rows(found: Mapping[str, Series]) -> list[list[str]]:
    return [
        [
            name,
            count(one.median(_rate)),
            spread(one, _rate),
            "" if name in BOUNDS else times(by_round(_own(name, found), one, _rate)),
            count(one.median(_process)),
            "" if name in BOUNDS else times(by_round(_own(name, found), one, _process)),
            count(one.median(lambda run: run.cpu / run.rows * 1e6), 1),
            one.verified,
        ]
        for name, one in found.items()
        if one.verified != "not run"
    ]


def _own(name: str, found: Mapping[str, Series]) -> Series:
    return found["Rd" if name == "bd" else "R"]


def _rate(run: Figures) -> float:
    return run.rate


def _process(run: Figures) -> float:
    return run.rows / run.wall
