"""A short run of the chaos that `python -m tests.e2e.chaos --kills 200` makes long."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.chaos import chaos


def test_kills_at_random_moments_neither_lose_nor_double_a_record(tmp_path: Path) -> None:
    found = chaos(kills=5, seed=11, partitions=3, rate=1000, shortest=6.0, longest=18.0, folder=tmp_path)
    assert found["doubled"] == 0
    assert found["polls"]
