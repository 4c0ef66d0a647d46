"""Files go when nobody needs them, and not before: whatever retention is asked for, streams go on without loss."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.maintenance.tables import REMOVED, SINCE
from penstock.operations.history import history
from penstock.storage.layout import snapshot_layout
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.age_lake import age
from tests.integration.change_histories import SCHEMA, Change, latest, send
from tests.integration.run_maintenance import optimize, table_of, vacuum, would_be_lost
from tests.integration.run_plan import coordinates, make_plan, produce, rows, run_well, running, wait_for, whole_chain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

DECODED = {"decode": {"json": "value", "schema": "n BIGINT"}}


def _sources(plan: Plan, name: str) -> Counter[tuple[str, int, int]]:
    found = [row["_source"] for row in rows(plan, name)]
    return Counter((one["topic"], one["partition"], one["offset"]) for one in found)


def _lost(spark: SparkSession, plan: Plan, name: str) -> set[str]:
    return would_be_lost(spark, plan, name, time.time_ns() // 1_000_000)


@pytest.mark.deep
def test_tables_that_were_stopped_go_on_after_a_vacuum_that_asked_for_no_retention(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    """One has read a part, one is within its first look at the whole table, one is not made yet and begins early."""
    name = topic(partitions=2)
    tables = {
        "bronze.t": {"from": {"kafka": name, "max_per_trigger": 4}},
        "silver.part": {"from": {"table": "bronze.t"}, **DECODED},
        "silver.whole": {"from": {"table": "bronze.t", "max_files": 1}, "trigger": "400 ms", **DECODED},
        "silver.early": {"from": {"table": "bronze.t", "starting": {"version": 2}}},
    }
    plan = project(tables)
    bronze = table_of(plan, "bronze.t")
    value = json.dumps({"n": 1})
    produced = produce(broker.bootstrap, name, 8, value=value)
    run_well(spark, plan, "bronze.t", "silver.part")
    produced += produce(broker.bootstrap, name, 16, value=value)
    run_well(spark, plan, "bronze.t")
    with running(spark, plan, "silver.whole") as heard:
        wait_for(lambda: len(heard.batches) > 0)
    assert 0 < len(rows(plan, "silver.whole")) < produced.total()

    age(spark, plan.lake, hours=30)
    made = optimize(spark, plan, "bronze.t")
    assert (made.files_before, made.files, [step.kind for step in made.done]) == (6, 1, ["compact"])
    assert not optimize(spark, plan, "bronze.t").done, "it is done"
    age(spark, plan.lake, hours=30)
    assert _lost(spark, plan, "bronze.t"), "without the guard files would go that are needed"
    kept = vacuum(spark, plan, "bronze.t")
    assert (kept.files, kept.horizon.limits[0].reader) == (0, "silver.part")

    produced += produce(broker.bootstrap, name, 4, value=value)
    run_well(spark, plan)
    assert _sources(plan, "silver.part") == _sources(plan, "silver.whole") == produced
    kept = vacuum(spark, plan, "bronze.t")
    assert kept.files == 0, "the last batch of silver.part would be run again if its checkpoint were lost"
    produced += produce(broker.bootstrap, name, 4, value=value)
    run_well(spark, plan)
    gone = vacuum(spark, plan, "bronze.t")
    assert gone.files >= 6 and gone.bytes > 0
    assert not vacuum(spark, plan, "bronze.t").files
    assert _sources(plan, "silver.part") == _sources(plan, "silver.whole") == coordinates(plan, "bronze.t") == produced
    for table in tables:
        whole_chain(plan, table)
    early = Counter((row["topic"], row["partition"], row["offset"]) for row in rows(plan, "silver.early"))
    assert early <= produced and early.total() == produced.total() - 4, "all but the first version"
    verdicts = {report.table: report.verdict for report in verify(plan.tables, LocalStore())}
    assert verdicts == {**dict.fromkeys(tables, "complete"), "silver.early": "partial"}, "version 1 is gone"
    said = {line.kind: line.note for line in history(bronze, LocalStore())}
    assert "6 files as larger ones, 6 before (a test, process" in (said["optimize"] or "")
    assert f"{gone.files} files deleted, removed before" in (said["vacuum"] or "")


@pytest.mark.deep
def test_without_any_retention_all_goes_at_once_that_nobody_needs_while_a_batch_waits(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=2)
    tables = {
        "bronze.t": {"from": {"kafka": name, "max_per_trigger": 4}, "trigger": "300ms"},
        "silver.t": {"from": {"table": "bronze.t"}, **DECODED, "trigger": "300ms"},
    }
    plan, value = project(tables), json.dumps({"n": 1})
    produced = produce(broker.bootstrap, name, 24, value=value)
    with running(spark, plan, "bronze.t") as landing, running(spark, plan, "silver.t") as heard:
        wait_for(lambda: bool(heard.batches) and _sources(plan, "silver.t") == produced)
        assert optimize(spark, plan, "bronze.t", full=True).files_before >= 6
        kept = vacuum(spark, plan, "bronze.t")
        assert (kept.files, kept.horizon.limits[0].reader) == (0, "silver.t"), "its last batch could be run again"
        produced += produce(broker.bootstrap, name, 4, value=value)
        wait_for(lambda: _sources(plan, "silver.t") == produced)
        produced += produce(broker.bootstrap, name, 4, value=value)
        wait_for(lambda: _sources(plan, "silver.t") == produced)
        gone = vacuum(spark, plan, "bronze.t")
        assert gone.files >= 6
        produced += produce(broker.bootstrap, name, 4, value=value)
        wait_for(lambda: _sources(plan, "silver.t") == produced)
    assert not landing.errors and not heard.errors
    assert coordinates(plan, "bronze.t") == produced
    assert all(report.ok() for report in verify(plan.tables, LocalStore()))


@pytest.mark.deep
def test_a_follower_of_changes_that_lags_keeps_the_feed_and_the_deleted_rows(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    chance = random.Random(1)
    broker.create_topic("vacuumed", 2)
    merge = {"keys": ["id", "part"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}
    tables = {
        "silver.c": {
            "from": {"kafka": "vacuumed"},
            "decode": {"json": "value", "schema": SCHEMA},
            "write": {"merge": merge, "change_feed": True},
        },
        "silver.copy": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "write": {"merge": {}}},
    }
    plan = make_plan(tmp_path, broker.bootstrap, tables)
    sent = send(
        broker.bootstrap, "vacuumed", [Change(n, "p", f"first {n}", None, 1, "c") for n in range(40)], 2, chance
    )
    run_well(spark, plan)
    for seq in (2, 3):
        changes = [Change(n, "p", f"{seq} {n}", None, seq, "d" if n % 5 == 0 else "u") for n in range(0, 40, seq)]
        sent += send(broker.bootstrap, "vacuumed", changes, 2, chance)
        run_well(spark, plan, "silver.c")
    age(spark, plan.lake, hours=20)
    done = optimize(spark, plan, "silver.c")
    assert [step.kind for step in done.done] == ["purge"], "a third of the rows were only marked as deleted"
    age(spark, plan.lake, hours=20)
    lost = _lost(spark, plan, "silver.c")
    assert any(one.startswith("_change_data/") for one in lost) and any(one.endswith(".bin") for one in lost)
    kept = vacuum(spark, plan, "silver.c")
    assert (kept.files, kept.horizon.limits[0].reader) == (0, "silver.copy")
    assert "has followed its changes up to version" in kept.horizon.limits[0].what

    def state(name: str) -> dict[Any, Any]:
        found = [row for row in rows(plan, name) if not row["_deleted"]]
        return {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in found}

    run_well(spark, plan)
    assert state("silver.c") == state("silver.copy") == latest(sent)


def test_a_reader_further_behind_than_delta_remembers_keeps_everything(spark: SparkSession, project: Any) -> None:
    """Told 300 hours, VACUUM would delete what was removed 240 hours ago: it has forgotten when."""
    tables = {
        "bronze.t": {"from": {"kafka": "none"}},
        "silver.late": {"from": {"table": "bronze.t", "starting": {"version": 2}}},
    }
    vacuuming = {"vacuum": {"replay_window": "9 days"}}
    plan = project(tables, maintenance=vacuuming)
    uri = table_of(plan, "bronze.t").uri
    for number in range(4):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(uri)
    spark.sql(f"OPTIMIZE delta.`{uri}`")
    age(spark, plan.lake, days=10)
    kept = vacuum(spark, plan, "bronze.t")
    assert kept.files == 0
    why = "silver.late is not made yet, and begins at version 2, and Delta has forgotten what was removed before"
    assert (kept.horizon.why or "").startswith(why)

    configuration = snapshot_layout(spark, uri).configuration
    assert configuration[REMOVED] == "interval 216 hours", "the window of nine days needs a longer memory"
    assert abs(int(configuration[SINCE]) / 1000 - (time.time() - 7 * 86400)) < 600
    assert not vacuum(spark, plan, "bronze.t").remembers_ms, "once"

    early = project({"bronze.t": tables["bronze.t"]}, maintenance=vacuuming)
    assert "the replay window of 9d keeps all" in (vacuum(spark, early, "bronze.t").horizon.why or ""), "not filled yet"
    alone = project({"bronze.t": tables["bronze.t"]})
    assert vacuum(spark, alone, "bronze.t").files == 4
    assert spark.read.format("delta").load(uri).count() == 4
