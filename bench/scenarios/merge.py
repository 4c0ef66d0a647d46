"""Scenario merge: what a batch of changes costs in tables of 0.1, 1 and 10 million rows, keys local in time.

Most changes are about what is new. So the files that can hold a batch's keys are few however many there are, and the
cost of a batch should follow those, and not the table. Delta's MERGE finds them only if its condition has literals.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping
from dataclasses import replace

from bench.arena import Arena
from bench.changes import Changes
from bench.filled import Filled, fill_tables
from bench.load import Feed, create_topics
from bench.measure import Figures
from bench.outcome import Outcome, Series, Sheet, Target, failures, ratio
from bench.process import ContenderFailed
from bench.scenarios.numbers import count, spread, times
from bench.sizes import Sizes

NAMES = ("M", "h", "h'")
PARTITIONS = 4
SLOWEST = "h'"
"""With the settings that Spark and Delta have for a cluster: minutes a run. One round says all that is to be said."""
FAR_FASTER = "h"
"""The contender that M must be three times as fast as in the largest table: the stronger of the two."""
_COLUMNS = ("rows", "contender", "ms a batch", "lowest to highest", "M is as fast", "CPU-ms a batch", "verified")
Found = Mapping[tuple[str, int], Series]
"""(contender, rows of the table) -> its runs."""


def merge(arena: Arena) -> Outcome:
    sizes = arena.sizes
    found = _compete(arena, _fill(arena))
    return Outcome(
        scenario="merge",
        setting=_setting(sizes),
        sheets=[
            Sheet("merge: a batch of changes", _COLUMNS, _rows(found, sizes)),
            Sheet(
                "merge: from the smallest table to the largest, ms a batch",
                ("contender", *(f"{rows:,} rows" for rows in sizes.merge_rows), "last to first"),
                [_grown(name, found, sizes) for name in NAMES if name not in sizes.leave_out],
            ),
        ],
        targets=targets(found, sizes),
        figures={
            name: {str(rows): [_as_json(run, sizes) for run in found[name, rows].runs] for rows in sizes.merge_rows}
            for name in NAMES
        },
        problems=failures(list(found.values())),
    )


def targets(found: Found, sizes: Sizes) -> list[Target]:
    first, last = sizes.merge_rows[0], sizes.merge_rows[-1]
    grown = ratio(_wall(found["M", last], sizes), _wall(found["M", first], sizes))
    return [
        Target(f"a batch of M in {last:,} rows against {first:,}", "at most", 2.0, "x", grown),
        *(
            Target(f"speed of M against h in {rows:,} rows", "at least", 1.0, "x", _faster("h", rows, found, sizes))
            for rows in sizes.merge_rows
        ),
        Target(
            f"speed of M against {FAR_FASTER} in {last:,} rows",
            "at least",
            3.0,
            "x",
            _faster(FAR_FASTER, last, found, sizes),
        ),
    ]


def batch_seconds(run: Figures, sizes: Sizes) -> float:
    """From commit to commit, without the warm-up. The first gap is that of batch 2."""
    return statistics.median(run.gaps[sizes.merge_warm - 1 :])


def _fill(arena: Arena) -> list[Filled]:
    sizes = arena.sizes
    topics = {rows: _topic(rows) for rows in sizes.merge_rows}
    create_topics(arena.bootstrap, list(topics.values()), PARTITIONS)
    with arena.screen.step(f"merge: tables of {_of(sizes)} rows, three of each", 1):
        filled = fill_tables(arena.folder / "merge", arena.bootstrap, topics, sizes.merge_batch, sizes.merge_per_file)
    for rows, topic in topics.items():
        feed = Feed(arena.bootstrap, Changes(rows))
        feed.send(topic, 0, sizes.merge_batch * sizes.merge_batches, PARTITIONS)
        feed.flush()
    return filled


def _compete(arena: Arena, filled: list[Filled]) -> Found:
    """Every contender in every table once per round, the order of each round drawn anew; the slowest in one alone."""
    found = {(name, one.rows): Series(name) for one in filled for name in NAMES}
    order = random.Random(f"{arena.seed}-merge")
    runs = [(name, one) for one in filled for name in NAMES if name not in arena.sizes.leave_out]
    for number in range(1, arena.sizes.rounds + 1):
        for name, one in order.sample(runs, len(runs)):
            if found[name, one.rows].failure is None and (name != SLOWEST or number == 1):
                label = f"merge into {one.rows:,} rows, round {number} of {arena.sizes.rounds}"
                found[name, one.rows] = _add(arena, found[name, one.rows], one, label)
    return found


def _add(arena: Arena, series: Series, filled: Filled, label: str) -> Series:
    sizes = arena.sizes
    try:
        figures = arena.run(series.name, _topic(filled.rows), sizes.merge_batch, label, filled=filled)
    except ContenderFailed as failure:
        arena.screen.say(f"{label}: {series.name} failed: {failure}")
        return Series(series.name, series.runs, str(failure))
    if figures.batches != sizes.merge_batches:
        problem = f"{figures.batches} commits for {sizes.merge_batches} batches"
        return Series(series.name, [*series.runs, replace(figures, problem=figures.problem or problem)])
    arena.screen.say(f"{label}: {series.name:8} {batch_seconds(figures, sizes) * 1000:>9,.0f} ms a batch")
    return Series(series.name, [*series.runs, figures])


def _wall(series: Series, sizes: Sizes) -> float | None:
    return series.median(lambda run: batch_seconds(run, sizes))


def _faster(name: str, rows: int, found: Found, sizes: Sizes) -> float | None:
    """How many times as fast M is."""
    return ratio(_wall(found[name, rows], sizes), _wall(found["M", rows], sizes))


def _rows(found: Found, sizes: Sizes) -> list[list[str]]:
    return [
        [
            f"{rows:,}",
            name,
            count(_ms(_wall(found[name, rows], sizes))),
            spread(found[name, rows], lambda run: batch_seconds(run, sizes) * 1000),
            "" if name == "M" else times(_faster(name, rows, found, sizes)),
            count(_ms(found[name, rows].median(lambda run: _cpu(run, sizes)))),
            found[name, rows].verified,
        ]
        for rows in sizes.merge_rows
        for name in NAMES
        if found[name, rows].verified != "not run"
    ]


def _grown(name: str, found: Found, sizes: Sizes) -> list[str]:
    each = [_wall(found[name, rows], sizes) for rows in sizes.merge_rows]
    return [name, *(count(_ms(one)) for one in each), times(ratio(each[-1], each[0]))]


def _cpu(run: Figures, sizes: Sizes) -> float:
    return statistics.mean(run.gap_cpu[sizes.merge_warm - 1 :])


def _as_json(run: Figures, sizes: Sizes) -> dict[str, object]:
    return {
        **run.as_json(),
        "batch_seconds": batch_seconds(run, sizes),
        "batch_cpu_seconds": _cpu(run, sizes),
        "gaps": run.gaps,
        "gap_cpu": run.gap_cpu,
    }


def _setting(sizes: Sizes) -> str:
    return (
        f"Batches of {sizes.merge_batch:,} changes into tables of {_of(sizes)} rows of 8 columns, in files of "
        f"{sizes.merge_per_file:,} in the order of their keys: 75% updates and 5% deletes of keys within the newest 2% "
        "of the table, 20% new keys. The tables are filled beforehand, and each run has a new copy and a new process. "
        f"Batches {sizes.merge_warm + 1} to {sizes.merge_batches}, commit to commit; medians over {sizes.rounds} "
        f"interleaved rounds ({SLOWEST}: one). At the end the living rows of every table are compared, column by "
        "column, with what the changes leave. The target of three times in the largest table is against "
        f"{FAR_FASTER}."
    )


def _topic(rows: int) -> str:
    return f"merge-{rows}"


def _of(sizes: Sizes) -> str:
    *most, last = (f"{rows:,}" for rows in sizes.merge_rows)
    return f"{', '.join(most)} and {last}" if most else last


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
