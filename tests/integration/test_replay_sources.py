"""Replays of tables that read files, changes, or a table from some version on: what they have read, and no more."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import Terminal
from tests.integration.folders import Folder
from tests.integration.run_plan import rows, run_well
from tests.integration.run_replays import content, replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan


def test_rows_of_files_that_are_gone_stay_and_the_others_are_read_again(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json", 4, bad=(2,))
    folder.put("b.json", 4, bad=(1,))
    folder.run()
    folder.put("c.json", 4)
    folder.run()
    folder.check()
    (folder.path / "a.json").unlink()
    folder.plan = folder.planned(expect=[{"name": "even", "check": "id % 2 = 0"}])
    filled = replayed(spark, folder.plan, "bronze.t")
    assert filled.kept_rows == 3
    assert folder.ids() == Counter([0, 1, 3, 4, 6, 8, 10])
    aside = Counter((row["_source"]["file"], row["error_reason"]) for row in folder.quarantine)
    assert aside == Counter(
        {
            ("in/a.json", "malformed_json"): 1,
            ("in/b.json", "malformed_json"): 1,
            ("in/b.json", "expectation"): 1,
            ("in/c.json", "expectation"): 2,
        }
    )
    folder.put("d.json", 2)
    folder.run()
    assert folder.ids() == Counter([0, 1, 3, 4, 6, 8, 10, 12])


def test_a_file_that_cannot_be_read_is_set_aside_in_a_replay_too(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json", 3)
    (folder.path / "b.json.gz").write_bytes(b"this is no gzip at all")
    folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/b.json.gz"])
    assert replayed(spark, folder.plan, "bronze.t").rows == 3
    assert folder.ids() == Counter([0, 1, 2])
    assert folder.unreadable() == Counter(["in/b.json.gz"])


@pytest.mark.deep
def test_tables_over_changes_and_those_that_began_later_are_made_of_what_they_have_read(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    from confluent_kafka import Producer

    name, producer = topic(1), Producer({"bootstrap.servers": broker.bootstrap})

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            made = {"id": number % 7, "seq": number, "op": "d" if number % 5 == 4 else "u"}
            producer.produce(name, partition=0, value=json.dumps(made))
        assert producer.flush(30) == 0

    first = {
        "silver.c": {
            "from": {"kafka": name},
            "decode": {"json": "value", "schema": "id BIGINT, seq BIGINT, op STRING"},
            "write": {
                "merge": {"keys": ["id"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}},
                "change_feed": True,
            },
        },
        "bronze.t": {"from": {"kafka": name}},
    }
    then = {
        **first,
        "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        "silver.audit": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "audit": {"who": "id"}},
        "silver.later": {"from": {"table": "bronze.t", "starting": "latest"}},
        "gold.n": {
            "from": {"changes": "silver.c"},
            "aggregate": {"keys": ["id"], "metrics": {"n": "count(*)", "last": "max(seq)"}},
        },
    }
    send(0, 12)
    run_well(spark, project(first))
    plan = project(then)
    run_well(spark, plan)
    for start in (12, 24):
        send(start, 12)
        run_well(spark, plan)
    before = {name: content(plan, name) for name in ("silver.audit", "silver.later", "gold.n", "bronze.t")}
    living = Counter((row["id"], row["seq"]) for row in rows(plan, "silver.copy") if not row["_deleted"])
    assert before["silver.later"].total() == 24
    for table in (*before, "silver.copy"):
        replayed(spark, plan, table)
    for table, was in before.items():
        assert content(plan, table) == was, table
    assert Counter((r["id"], r["seq"]) for r in rows(plan, "silver.copy") if not r["_deleted"]) == living
    send(36, 12)
    run_well(spark, plan)
    copied = Counter((row["id"], row["seq"]) for row in rows(plan, "silver.copy") if not row["_deleted"])
    assert copied == Counter((row["id"], row["seq"]) for row in rows(plan, "silver.c") if not row["_deleted"])
    assert content(plan, "silver.later").total() == 36
    uri = Path(rows_uri(plan, "bronze.t"))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(uri)).checkpoint()
    for version in range(3):  # as log retention does
        (uri / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(Terminal, match="no longer known"):
        replayed(spark, plan, "silver.later")


def rows_uri(plan: Plan, name: str) -> str:
    table = plan.table(name)
    assert table is not None
    return table.uri
