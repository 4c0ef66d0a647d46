"""Scenario floor: what a small batch costs in a warm process, from commit to commit over a backlog."""

from __future__ import annotations

import statistics

from bench.arena import Arena
from bench.measure import Figures
from bench.outcome import Outcome, Sheet, Target, failures, ratio
from bench.scenarios.numbers import count, spread, times

NAMES = ("P", "a", "parquet")
_COLUMNS = ("contender", "ms a batch", "lowest to highest", "P is", "mean ms", "CPU-ms a batch", "verified")


def floor(arena: Arena) -> Outcome:
    sizes = arena.sizes
    warm, measured = sizes.floor_warm, sizes.floor_measured
    arena.fill("floor", (warm + measured) * sizes.floor_batch)
    series = arena.compete(NAMES, "floor", sizes.floor_batch)

    def gaps(run: Figures) -> list[float]:
        """The gap before batch warm+1 is the first that counts; gaps begin with batch 2."""
        return run.gaps[warm - 1 : warm - 1 + measured]

    def wall(run: Figures) -> float:
        return statistics.median(gaps(run))

    def cpu(run: Figures) -> float:
        return sum(run.gap_cpu[warm - 1 : warm - 1 + measured]) / measured

    product = series["P"].median(wall)
    bounds = {"a": 0.5, "parquet": 1.5}
    return Outcome(
        scenario="floor",
        setting=f"{sizes.floor_batch:,} records a batch in 4 partitions, back to back; batches {warm + 1} to "
        f"{warm + measured} of one process, commit to commit; {sizes.rounds} interleaved rounds.",
        sheets=[
            Sheet(
                "floor: a small batch when warm",
                _COLUMNS,
                [
                    [
                        one.name,
                        count(_ms(one.median(wall))),
                        spread(one, lambda run: wall(run) * 1000),
                        "" if one.name == "P" else times(ratio(product, one.median(wall))),
                        count(_ms(one.median(lambda run: statistics.mean(gaps(run))))),
                        count(_ms(one.median(cpu))),
                        one.verified,
                    ]
                    for one in series.values()
                    if one.verified != "not run"
                ],
            )
        ],
        targets=[
            Target(f"floor of P against {name}", "at most", bound, "x", ratio(product, series[name].median(wall)))
            for name, bound in bounds.items()
        ],
        figures={
            name: [{**run.as_json(), "batch_seconds": wall(run), "batch_cpu_seconds": cpu(run)} for run in one.runs]
            for name, one in series.items()
        },
        problems=failures(list(series.values())),
    )


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
