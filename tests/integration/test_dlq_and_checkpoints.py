"""`dlq` and `checkpoints` over what a real run leaves: counted, shown and healed without a JVM."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import LockHeld, Terminal
from penstock.operations.checkpoint_state import inspect_checkpoint
from penstock.operations.checkpoints import checkpoint_details, show_document
from penstock.operations.heal import plan_heal, run_heal
from penstock.operations.quarantine_rows import RejectFilter, count_kinds, count_rows, open_quarantine, read_rows
from penstock.storage.stores import LocalStore
from tests.integration.run_plan import (
    TABLE,
    checkpoint,
    coordinates,
    produce,
    rows,
    rows_at,
    run_well,
    running,
    wait_for,
    whole_chain,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan

STORE = LocalStore()
SILVER, GOLD = "silver.t", "gold.t"
BAD = {
    b'{"id": 1': ("malformed_json", "not JSON, at byte …"),
    b'{"id": "x"}': ("wrong_type", "id"),
    b'{"id": -1}': ("expectation", "positive"),
    b'{"id": 3}\xff\x1b[31m': ("not_utf8", "value is not UTF-8"),
    b'{"id": 4} \x1b[2J': ("trailing_data", "there is something behind the object"),
}
FUNCTION = """\
def counted(t):
    return t.groupBy("id").count()
"""


def chosen(plan: Plan, name: str) -> TablePlan:
    table = plan.table(name)
    assert table is not None
    return table


def test_a_run_is_counted_shown_and_healed_in_every_layer(
    spark: SparkSession, broker: Any, topic: Any, project: Any, tmp_path: Path
) -> None:
    name = topic(2)
    (tmp_path / "s.py").write_text(FUNCTION)
    plan: Plan = project(
        {
            TABLE: {"from": {"kafka": name}},
            SILVER: {
                "from": {"table": TABLE},
                "decode": {"json": "value", "schema": "id BIGINT"},
                "expect": [{"name": "positive", "check": "id > 0"}],
            },
            GOLD: {"from": {"table": SILVER}, "stream": "s.py:counted", "output": "complete"},
        }
    )
    for value in BAD:
        produce(broker.bootstrap, name, 3, value=value)
    produce(broker.bootstrap, name, 10, value=b'{"id": 7}')
    run_well(spark, plan)

    silver = chosen(plan, SILVER)
    counted = count_kinds(silver, STORE)
    there = rows_at(f"{silver.uri}__quarantine")
    assert {(kind.reason, kind.about): kind.rows for kind in counted.kinds} == dict.fromkeys(BAD.values(), 3)
    assert (counted.rows, counted.read, counted.rows_ahead) == (len(there), 25, 0)
    quarantine = open_quarantine(silver, STORE)
    assert quarantine is not None
    shown = list(read_rows(quarantine, RejectFilter(topic=name, generation=1, batch=1), 100, whole=True))
    held = [row.value.text.encode() if row.value.text is not None else row.value.data for row in shown if row.value]
    assert Counter(held) == Counter(dict.fromkeys(BAD, 3))
    places = {(row.source["partition"], row.source["offset"]) for row in shown if row.source}
    assert places == {(row["_source"]["partition"], row["_source"]["offset"]) for row in there}
    assert count_rows(quarantine, RejectFilter(since=counted.last)) == 15

    for table in plan.tables:
        found = checkpoint_details(plan, table, STORE, 5)
        json.dumps(show_document(found))
        assert (found.inspection.in_step, found.forecast.does, found.drift.kind) == (True, "go on", "unchanged"), (
            table.name
        )
        assert found.batches[0].committed
    state = checkpoint_details(plan, chosen(plan, GOLD), STORE, 5).operators
    assert [(one.label, one.partitions, one.partitions_behind) for one in state] == [("groups", 2, 0)]

    for one in (TABLE, SILVER, GOLD):
        shutil.rmtree(checkpoint(plan, name=one))
    assert [inspect_checkpoint(table, STORE).in_step for table in plan.tables] == [False, False, False]
    for one in (TABLE, SILVER):
        done = run_heal(plan, chosen(plan, one), STORE)
        assert done is not None and done.why == "it is missing or empty"
    with pytest.raises(Terminal, match="cannot be rebuilt"):
        run_heal(plan, chosen(plan, GOLD), STORE)
    produce(broker.bootstrap, name, 4, value=b'{"id": 8}')
    heard = run_well(spark, plan, TABLE, SILVER)
    assert not heard.heard("rebuilt") and heard.heard("was in the table already: skipped")
    assert len(rows(plan, SILVER)) == 14 and len(rows(plan)) == 29
    assert len(rows_at(f"{silver.uri}__quarantine")) == 15
    whole_chain(plan)
    whole_chain(plan, SILVER)


def test_a_running_table_is_in_step_whenever_it_is_looked_at_and_not_healed(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(2)
    plan: Plan = project({TABLE: {"from": {"kafka": name, "max_per_trigger": 2}, "trigger": "10ms"}})
    table = chosen(plan, TABLE)
    produced = produce(broker.bootstrap, name, 60)
    with running(spark, plan) as heard:
        wait_for(lambda: bool(heard.batches))
        while len(heard.batches) < 20:
            seen = inspect_checkpoint(table, STORE)
            assert seen.in_step, (seen.why, seen.refusal)
        with pytest.raises(LockHeld, match="works on this table"):
            plan_heal(plan, table, STORE)
        with pytest.raises(LockHeld):
            run_heal(plan, table, STORE)
        assert checkpoint_details(plan, table, STORE, 1).process
        wait_for(lambda: coordinates(plan) == produced)
    found = run_heal(plan, table, STORE)
    assert found is not None and found.why is None
