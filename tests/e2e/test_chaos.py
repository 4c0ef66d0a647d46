"""A short run of the chaos that `python -m tests.e2e.chaos --kills 200` makes long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e import chaos_changes, chaos_forget, chaos_layers
from tests.e2e.chaos import chaos
from tests.e2e.chaos_frame import Asked


@pytest.mark.deep  # the next one has this layer too
@pytest.mark.parametrize("kills", [3, 12])
def test_kills_at_random_moments_neither_lose_nor_double_a_record(kills: int, tmp_path: Path) -> None:
    asked = Asked(kills=kills, seed=11, partitions=3, rate=1000, shortest=6.0, longest=18.0, folder=tmp_path)
    found = chaos(asked)
    assert found["doubled"] == 0
    assert found["polls"]


@pytest.mark.parametrize("kills", [1, pytest.param(6, marks=pytest.mark.deep)])
def test_three_layers_equal_one_computation_over_the_topic(kills: int, tmp_path: Path) -> None:
    asked = Asked(kills=kills, seed=3, partitions=3, rate=300, shortest=16.0, longest=28.0, folder=tmp_path)
    found = chaos_layers.chaos(asked)
    assert found["silver"] and found["quarantine"] and found["gold"]


@pytest.mark.deep
@pytest.mark.parametrize("kills", [1, 12])
def test_merged_tables_their_replicas_and_their_audit_equal_a_reference(kills: int, tmp_path: Path) -> None:
    asked = Asked(kills=kills, seed=5, partitions=3, rate=200, shortest=0.0, longest=4.0, folder=tmp_path)
    found = chaos_changes.chaos(asked, batches=1 + (kills > 1))
    assert found["living"] and found["versions"] and found["matching versions"] and found["audited"] and found["polls"]


@pytest.mark.deep
def test_people_forgotten_by_commands_that_are_killed_are_nowhere_and_all_others_are_whole(tmp_path: Path) -> None:
    asked = Asked(kills=4, seed=2, partitions=2, rate=100, shortest=5.0, longest=40.0, folder=tmp_path)
    found = chaos_forget.chaos(asked)
    assert found["silver"] and found["quarantine"] and found["redacted"] and found["gold"]
