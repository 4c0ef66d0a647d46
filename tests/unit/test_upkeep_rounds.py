"""When a runner looks after which table; and what it leaves of old checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.maintenance.vacuum import leftovers, within
from penstock.plan.model import MaintenancePlan
from penstock.runtime.maintenance import maintenance_intervals, next_due
from penstock.storage.stores import LocalStore
from tests.bronze_table import plan_of, table_plan
from tests.unit.hand_ledgers import at, entry


def test_tables_share_the_first_round_and_then_keep_their_distance() -> None:
    first = [next_due(None, 1000.0, 3600.0, index, 4) for index in range(4)]
    assert first == [1900.0, 2800.0, 3700.0, 4600.0]
    assert next_due(1900.0, 1000.0, 3600.0, 0, 4) == 5500.0
    assert next_due(100.0, 5000.0, 3600.0, 0, 4) == 3700.0, "a restart does not put it off"


def test_only_what_the_project_asks_for_is_due() -> None:
    assert maintenance_intervals(MaintenancePlan()) == {}
    assert maintenance_intervals(MaintenancePlan(optimize_seconds=60.0)) == {"optimize": 60.0}
    assert maintenance_intervals(MaintenancePlan(optimize_seconds=60.0, vacuum_seconds=90.0)) == {
        "optimize": 60.0,
        "vacuum": 90.0,
    }


@pytest.mark.parametrize("local", [True, False])
def test_checkpoints_of_the_last_two_generations_stay(local: bool, tmp_path: Path) -> None:
    from dataclasses import replace

    table = table_plan(str(tmp_path / "orders"))
    plan = plan_of(tmp_path, table)
    plan = plan if local else replace(plan, lake="s3a://bucket/lake")
    for name in ("1", "2", "3", "4", "1.ab.new", "4.cd.new", "notes", "5", "0x1"):
        (Path(table.checkpoints) / name).mkdir(parents=True)
    found = leftovers(plan, table, LocalStore(), entry(7, at(0), at(1), generation=4))
    names = [one.rpartition("/")[2] for one in found]
    assert names == (["1", "1.ab.new", "2", "4.cd.new"] if local else ["1", "1.ab.new", "2"])


@pytest.mark.parametrize(
    ("path", "uri", "name"),
    [
        ("file:/lake/t/day=1/part-0", "/lake/t", "day=1/part-0"),
        ("file:///lake/t/part-0", "file:///lake/t", "part-0"),
        ("s3a://bucket/t/_change_data/c", "s3a://bucket/t", "_change_data/c"),
        ("/lake/a b/it's", "/lake/a b", "it's"),
    ],
)
def test_files_are_named_from_their_table_on(path: str, uri: str, name: str) -> None:
    assert within(path, uri) == name
