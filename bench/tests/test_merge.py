from dataclasses import replace

import pytest

from bench.measure import Figures
from bench.outcome import Series
from bench.scenarios.merge import NAMES, batch_seconds, targets
from bench.sizes import Sizes

SIZES = replace(Sizes(), merge_rows=(1, 2), merge_batches=5, merge_warm=3)


def _run(name: str, seconds: float, problem: str | None = None) -> Figures:
    gaps = [99.0, 99.0, seconds, seconds]
    return Figures(name, 10, 5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1, gaps=gaps, gap_cpu=gaps, problem=problem)


def _found(**seconds: tuple[float, float]) -> dict[tuple[str, int], Series]:
    return {
        (name, rows): Series(name, [_run(name, seconds.get(name[0], (4.0, 4.0))[rows - 1])])
        for name in NAMES
        for rows in SIZES.merge_rows
    }


def test_batches_of_the_warm_up_do_not_count() -> None:
    assert batch_seconds(_run("M", 0.5), SIZES) == 0.5


def test_all_targets_are_met_by_a_merge_that_does_not_grow_and_is_far_faster() -> None:
    assert all(target.met for target in targets(_found(M=(1.0, 1.0)), SIZES))


@pytest.mark.parametrize(
    ("seconds", "missed"),
    [
        ((0.5, 1.1), ["a batch of M in 2 rows against 1"]),
        ((5.0, 1.0), ["speed of M against h in 1 rows"]),
        ((1.5, 1.5), ["speed of M against h in 2 rows"]),
    ],
)
def test_each_target_can_be_missed(seconds: tuple[float, float], missed: list[str]) -> None:
    assert [target.what for target in targets(_found(M=seconds), SIZES) if not target.met] == missed


def test_a_table_that_does_not_verify_misses_its_targets() -> None:
    found = _found(M=(1.0, 1.0))
    found["M", 2] = Series("M", [_run("M", 1.0, problem="1 rows are missing")])
    assert sum(not target.met for target in targets(found, SIZES)) == 3
