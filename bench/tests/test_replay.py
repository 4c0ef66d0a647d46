import json
from collections import Counter
from pathlib import Path

import pytest

from bench.measure import Figures
from bench.outcome import Series
from bench.replayed import Made, ReplayedRecords, expected_counts
from bench.scenarios.replay import BOUNDS, NAMES, by_round, targets


def _run(name: str, rate: float, problem: str | None = None) -> Figures:
    return Figures(name, 100, 1, rate, rate, 100 / rate, 1.0, 1.0, 1.0, 1, problem=problem)


def _found(**rates: float) -> dict[str, Series]:
    return {name: Series(name, [_run(name, rates.get(name, 10.0))]) for name in NAMES}


def test_expected_counts_are_those_of_a_plain_reader() -> None:
    made, keys, good = ReplayedRecords(), Counter[int](), 0
    for n in range(3_000):
        try:
            record = json.loads(made.value(n))
        except json.JSONDecodeError:
            continue
        if record["amount"] > 10:
            good += 1
            keys[record["order_id"]] += 1
    assert expected_counts(3_000, unique=False) == {"rows": good, "rejected": 3_000 - good}
    assert expected_counts(3_000, unique=True) == {"rows": len(keys), "rejected": 3_000 - good}
    assert good > len(keys)


def test_ratios_are_taken_within_a_round() -> None:
    own = Series("R", [_run("R", 10.0), _run("R", 1.0), _run("R", 10.0)])
    other = Series("b", [_run("b", 10.0), _run("b", 1.0), _run("b", 8.0)])
    assert by_round(own, other, lambda run: run.rate) == 1.0
    assert by_round(own, Series("b"), lambda run: run.rate) is None


@pytest.mark.parametrize("name", BOUNDS)
def test_a_replay_that_is_slower_than_a_job_by_hand_misses_its_target(name: str) -> None:
    assert all(target.met for target in targets(_found()))
    missed = [target.what for target in targets(_found(**{name: 8.0})) if not target.met]
    assert missed and all(f"of {name} " in what for what in missed)


def test_a_table_that_differs_from_the_others_misses_its_targets() -> None:
    found = _found()
    found["R"] = Series("R", [_run("R", 99.0, problem="rows: 1 are missing, 0 should not be there")])
    assert not any(target.met for target in targets(found) if " of R " in target.what)


def test_only_commits_since_the_start_count(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / "00000000000000000000.json").touch()
    made = Made(tmp_path, tmp_path / "none")
    assert (made.first_batch(), made.commits()) == (None, [])
    (log / "00000000000000000001.json").touch()
    (log / "00000000000000000001.crc").touch()
    assert len(made.commits()) == 1
