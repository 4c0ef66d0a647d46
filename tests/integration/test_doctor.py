"""`doctor` against a real broker and real tables: a topic that is about to delete what a table has not read."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.doctor.check import Check
from penstock.doctor.examine import examine
from penstock.kafka.client import Admin, first_records
from penstock.plan.model import Plan
from penstock.plan.sources import Cluster, KafkaSource, StartingPlan
from penstock.spec.load import load_project
from tests.integration.run_plan import produce, run_well, transaction
from tests.integration.topics import forget_records

HOUR_MS = 3_600_000


def examined(plan: Plan) -> dict[tuple[str, str], Check]:
    checks = examine(load_project(Path(plan.root)), plan, plan.tables)
    return {(check.id, check.subject): check for check in checks}


def test_what_is_about_to_be_deleted_is_told_from_the_broker(
    spark: Any, broker: Any, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    name = topic(2, retention_ms=str(24 * HOUR_MS), message_timestamp_type="CreateTime")
    plan = project(
        {
            "bronze.t": {"from": {"kafka": name}, "trigger": "30s"},
            "silver.t": {"from": {"table": "bronze.t"}, "decode": {"json": "value", "schema": "id BIGINT"}},
        }
    )
    produce(broker.bootstrap, name, 30, value=json.dumps({"id": 1}))
    produce(broker.bootstrap, name, 10, value=json.dumps({"id": "card 4111"}))
    run_well(spark, plan)

    # All is read: what a table and its topic are, with numbers.
    found = examined(plan)
    table_levels = {key: check.level for key, check in found.items() if key[1] != "the project"}
    assert {key for key, level in table_levels.items() if level not in ("ok", "note")} == {
        ("quarantine.share", "silver.t")
    }
    assert found[("kafka.answers", "the project")].level == "ok"
    assert found[("clock.skew", "the project")].level == "ok"
    assert found[("kafka.retention", "bronze.t")].found == f"{name} keeps a record for 1 d"
    assert found[("table.silent", "bronze.t")].found.startswith("all is read, 40 rows so far; the newest record")
    assert found[("table.checkpoint", "silver.t")].found == "it says what the ledger says: batch 1.1"
    assert found[("table.files", "bronze.t")].found.startswith("1 file, ")
    assert found[("table.log", "bronze.t")].found.endswith("(one is made every 100)")
    assert "bronze.t keeps its log for 30 d, replaced files for 7 d" in found[("delta.retention", "silver.t")].found
    rejected = found[("quarantine.share", "silver.t")]
    assert "10 rows to quarantine" in rejected.found
    assert "(25.0% of 40 read): 10 wrong_type id" in rejected.found
    assert "4111" not in rejected.found

    # Records that are nearly a day old wait, and nobody runs the table.
    old = round(time.time() * 1000) - 24 * HOUR_MS + HOUR_MS // 2
    produce(broker.bootstrap, name, 20, timestamp=old)
    found = examined(plan)
    late = found[("kafka.retention", "bronze.t")]
    assert late.level == "red"
    assert late.found.startswith(f"20 records not read yet, and the table is not running; the oldest, in {name}-")
    assert re.search(r"is 23 h 30 min old and kept for 1 d: at the earliest in (29 min \d+ s|30 min) it is", late.found)
    assert found[("table.silent", "bronze.t")].level == "warn"

    # Retention takes some of them.
    forget_records(broker.bootstrap, name, 0, 25)
    lost = examined(plan)[("kafka.retention", "bronze.t")]
    assert lost.level == "red"
    assert lost.found == f"5 offsets of {name}-0 were deleted before they were read"


def test_single_records_are_looked_at_where_there_are_any(broker: Any, topic: Callable[..., str]) -> None:
    name = topic(4)
    source = KafkaSource(Cluster("default", broker.bootstrap), (name,), None, StartingPlan("earliest"), None, None)
    produce(broker.bootstrap, name, 6, partitions=(0,), timestamp=1_700_000_000_000)
    with transaction(broker.bootstrap, f"doctor-{name}") as producer:
        producer.produce(name, partition=1, value="never", timestamp=1_600_000_000_000)
        producer.flush(10)
        producer.abort_transaction(10)
    at = {(name, 0): 3, (name, 1): 0, (name, 2): 0, (name, 3): 77}
    began = time.monotonic()
    found = first_records(source, at, timeout=5.0)
    assert time.monotonic() - began < 5  # the ends of the others are told, not waited for
    assert set(found) == {(name, 0)}
    assert (found[(name, 0)].offset, found[(name, 0)].timestamp_ms) == (3, 1_700_000_000_000)
    admin = Admin(source.cluster)
    assert admin.newest_times(admin.topics(source))[name][0] == 1_700_000_000_000
    assert admin.settings([name])[name]["cleanup.policy"] == "delete"
    assert name in admin.names()


def test_peeking_at_a_broker_that_is_away_ends_in_time() -> None:
    source = KafkaSource(Cluster("default", "127.0.0.1:1"), ("t",), None, StartingPlan("earliest"), None, None)
    began = time.monotonic()
    assert first_records(source, {("t", 0): 0}, timeout=0.5) == {}
    assert time.monotonic() - began < 5
