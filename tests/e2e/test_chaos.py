"""A short run of the chaos that `python -m tests.e2e.chaos --kills 200` makes long."""

from __future__ import annotations

from pathlib import Path

from tests.e2e import chaos_layers
from tests.e2e.chaos import chaos


def test_kills_at_random_moments_neither_lose_nor_double_a_record(tmp_path: Path) -> None:
    found = chaos(kills=5, seed=11, partitions=3, rate=1000, shortest=6.0, longest=18.0, folder=tmp_path)
    assert found["doubled"] == 0
    assert found["polls"]


def test_three_layers_equal_one_computation_over_the_topic(tmp_path: Path) -> None:
    found = chaos_layers.chaos(kills=4, seed=3, partitions=3, rate=300, shortest=10.0, longest=25.0, folder=tmp_path)
    assert found["silver"] and found["quarantine"] and found["gold"]
