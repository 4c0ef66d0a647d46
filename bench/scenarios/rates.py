"""Scenarios bronze and small: rows per second over a backlog, in large and in small batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.arena import Arena
from bench.load import TypedRecords
from bench.measure import Figures
from bench.outcome import Outcome, Series, Sheet, Target, failures, noise, ratio
from bench.scenarios.numbers import count, spread, times

BRONZE = ("P", "a", "a again", "a'", "c", "c+", "d")
SMALL = ("P", "a", "a again", "a'", "c")
TYPED = ("T", "t", "t'", "g'")
_COLUMNS = (
    "contender",
    "rows/s",
    "lowest to highest",
    "P (T) is",
    "warm rows/s",
    "process rows/s",
    "CPU-s/M rows",
    "process CPU-s/M",
    "verified",
)


def bronze(arena: Arena) -> Outcome:
    sizes = arena.sizes
    arena.fill("bronze", sizes.bronze_records)
    series = arena.compete(BRONZE, "bronze", sizes.bronze_batch)
    bounds = {"a": 1.0, "a'": 2.2, "c": 0.9}
    return _outcome("bronze", series, bounds, sizes.bronze_records, sizes.bronze_batch, sizes.rounds)


def small(arena: Arena) -> Outcome:
    sizes = arena.sizes
    arena.fill("small", sizes.small_records)
    series = arena.compete(SMALL, "small", sizes.small_batch)
    bounds = {"a": 1.5, "a'": 5.0}
    return _outcome("small", series, bounds, sizes.small_records, sizes.small_batch, sizes.rounds)


def typed(arena: Arena) -> Outcome:
    sizes = arena.sizes
    arena.fill("typed", sizes.typed_records, records=TypedRecords())
    series = arena.compete(TYPED, "typed", sizes.typed_batch)
    bounds = {"t": 0.95, "t'": 1.9, "g'": 2.1}
    return _outcome("typed", series, bounds, sizes.typed_records, sizes.typed_batch, sizes.rounds)


def _outcome(
    scenario: str, series: Mapping[str, Series], bounds: Mapping[str, float], records: int, per_batch: int, rounds: int
) -> Outcome:
    own = "T" if scenario == "typed" else "P"
    product = series[own].median(lambda run: run.rate)
    targets = [
        Target(f"rate of {own} against {name}", "at least", bound, "x", ratio(product, series[name].median(_rate)))
        for name, bound in bounds.items()
    ]
    return Outcome(
        scenario=scenario,
        setting=f"{records:,} records of 250 bytes in 4 partitions, lz4, {per_batch:,} a batch, available-now; "
        f"{rounds} interleaved rounds, each process new. Warm: the second half of the batches; process: from its start "
        "to its end; CPU-s/M: CPU seconds of the process tree per million rows.",
        sheets=[Sheet(f"{scenario}: rows per second", _COLUMNS, _rows(list(series.values()), product))],
        targets=targets,
        figures={name: [run.as_json() for run in one.runs] for name, one in series.items()},
        notes=noise(series, _rate) if "a again" in series else [],
        problems=failures(list(series.values())),
    )


def _rows(series: Sequence[Series], product: float | None) -> list[list[str]]:
    return [
        [
            one.name,
            count(one.median(_rate)),
            spread(one, _rate),
            "" if one.name in ("P", "T") else times(ratio(product, one.median(_rate))),
            count(one.median(lambda run: run.steady)),
            count(one.median(lambda run: run.rows / run.wall)),
            count(one.median(lambda run: run.batch_cpu / run.rows * 1e6), 1),
            count(one.median(lambda run: run.cpu / run.rows * 1e6), 1),
            one.verified,
        ]
        for one in series
        if one.verified != "not run"
    ]


def _rate(run: Figures) -> float:
    return run.rate
