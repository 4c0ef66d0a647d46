"""A lake that is not a local folder: Hadoop's file systems, no locks, Delta's own transaction mark.

The lake is reached by a `file:` URI, so every step takes the way that an object store takes, on this machine's disk.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.errors import TableChanged
from penstock.plan.model import Plan
from tests.integration.run_plan import TABLE, coordinates, produce, run_well, running, wait_for, whole_chain


def by_uri(plan: Plan) -> Plan:
    def uri(path: str) -> str:
        return f"file://{path}"

    tables = tuple(replace(t, uri=uri(t.uri), checkpoints=uri(t.checkpoints)) for t in plan.tables)
    found = replace(plan, lake=uri(plan.lake), tables=tables)
    assert not found.local
    return found


def test_every_run_has_a_generation_of_its_own_and_every_write_delta_s_mark(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(2)
    plan = project({TABLE: {"from": {"kafka": name}}})
    produced = produce(broker.bootstrap, name, 20)
    run_well(spark, by_uri(plan))
    produced += produce(broker.bootstrap, name, 20)
    run_well(spark, by_uri(plan))
    shutil.rmtree(Path(plan.tables[0].checkpoints))
    produced += produce(broker.bootstrap, name, 20)
    healed = run_well(spark, by_uri(plan))
    assert healed.heard("rebuilt from the ledger")
    assert coordinates(plan) == produced
    entries = whole_chain(plan)
    assert [entry.generation for entry in entries if entry.kind != "batch"] == [1, 2, 3]
    log = Path(plan.tables[0].uri) / "_delta_log"
    marks = [file.read_text().count(f'"appId":"penstock:{TABLE}"') for file in sorted(log.glob("*.json"))]
    assert marks[0] == 0 and set(marks[1:]) == {1}, "genesis makes the table, all else carries the mark"
    assert not (Path(plan.lake) / "_penstock/locks").exists()


def test_of_two_runners_the_newest_goes_on_and_the_other_ends(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(2)
    plan = project({TABLE: {"from": {"kafka": name}, "trigger": "200ms"}})
    produced = produce(broker.bootstrap, name, 20)
    with running(spark, by_uri(plan)) as first:
        wait_for(lambda: bool(first.batches))
        run_well(spark, by_uri(plan))
        produced += produce(broker.bootstrap, name, 20)
        wait_for(lambda: bool(first.errors))
    assert isinstance(first.errors[TABLE], TableChanged)
    assert "taken over by another process" in first.errors[TABLE].message
    run_well(spark, by_uri(plan))
    assert coordinates(plan) == produced
    whole_chain(plan)
