"""`keep_deleted`: tombstones go when they are old enough, and nobody sees a difference."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.histories import SCHEMA, Change, latest, send
from tests.integration.merged import Merged, merged_plan
from tests.integration.runs import log, make_plan, rows, run_well, whole_chain

from penstock.engine.merge import purge as purging
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.store import LocalStore
from penstock.ops.status import status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

FIRST = [Change(one, "p", f"first {one}", None, 1, "c") for one in range(40)]
GONE = [Change(one, "p", None, None, 5, "d") for one in range(0, 40, 3)]


def _state(plan: Plan, name: str) -> dict[tuple[int, str], dict[str, Any]]:
    found = [row for row in rows(plan, name) if not row["_deleted"]]
    return {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in found}


def _tombstones(plan: Plan, name: str) -> int:
    return sum(row["_deleted"] for row in rows(plan, name))


def test_old_tombstones_go_at_the_next_start_and_the_tables_stay_as_they_are(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    chance = random.Random(1)
    broker.create_topic("purged", 2)
    merge = {"keys": ["id", "part"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}

    def table(keep: str) -> dict[str, Any]:
        return {
            "from": {"kafka": "purged", "starting": "earliest"},
            "decode": {"json": "value", "schema": SCHEMA},
            "write": {"merge": {**merge, "keep_deleted": keep}, "change_feed": True},
        }

    tables = {
        "silver.c": table("1s"),
        "silver.young": table("30 days"),
        "silver.copy": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "write": {"merge": {}}},
    }
    plan = make_plan(tmp_path, broker.bootstrap, tables)
    sent = send(broker.bootstrap, "purged", FIRST, 2, chance)
    run_well(spark, plan)
    sent += send(broker.bootstrap, "purged", GONE, 2, chance)
    run_well(spark, plan)
    assert _tombstones(plan, "silver.c") == _tombstones(plan, "silver.young") == len(GONE)

    time.sleep(1.1)
    run_well(spark, plan)
    assert (_tombstones(plan, "silver.c"), _tombstones(plan, "silver.young")) == (0, len(GONE))
    assert all(_state(plan, name) == latest(sent) for name in tables)
    assert [one.lag for one in status(plan, plan.tables, LocalStore())] == [0, 0, 0]
    assert [entry.kind for entry in whole_chain(plan, "silver.c")].count("carry") == 1

    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    silver = plan.table("silver.c")
    assert silver is not None
    told = feed.load(silver.uri).groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in told} == {"insert": len(FIRST), "delete": len(GONE)}, "the purge is in no feed"

    late = [Change(0, "p", "late", None, 3, "u")]  # from before the delete: only the young tombstone knows that
    send(broker.bootstrap, "purged", late, 2, chance)
    run_well(spark, plan)
    assert (0, "p") not in _state(plan, "silver.young")
    assert _state(plan, "silver.c")[(0, "p")]["name"] == _state(plan, "silver.copy")[(0, "p")]["name"] == "late"
    whole_chain(plan, "silver.c")


def test_only_files_with_tombstones_are_read(spark: SparkSession, tmp_path: Path) -> None:
    plan = merged_plan(tmp_path, ["id", "part"])
    table = Merged(spark, plan, ["id", "part", "name", "city", "seq", "op"])
    for start in range(0, 40, 10):
        table.write(FIRST[start : start + 10])
    table.write(GONE)
    deleted = purging.Exchange(spark, plan.uri)
    assert (deleted.files, deleted.look(purging.until(spark, 1 << 42))) == (5, 1)
    assert deleted.look(purging.until(spark, 0)) == 0
    tail = read_tail(log(plan))
    assert tail is not None
    assert purging.purge(spark, plan, log(plan), tail) is tail, "nothing without keep_deleted"
