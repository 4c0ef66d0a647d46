"""A table made anew from what it has read equals one that was made so from the beginning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.replays import replayed
from tests.integration.runs import commits, make_plan, produce, rows_at, run_well

from penstock.engine.store import LocalStore
from penstock.ops.verify.table import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

SCHEMA = "id BIGINT NOT NULL, amount DECIMAL(9,2), kind STRING, ts TIMESTAMP"


def tables(topic: str, *, rule: str, shown: str = "amount") -> dict[str, Any]:
    return {
        "bronze.t": {"from": {"kafka": topic}},
        "silver.t": {
            "from": {"table": "bronze.t", "max_files": 2},
            "decode": {"json": "value", "schema": SCHEMA},
            "sql": f"SELECT _source, id, kind, ts, {shown} AS amount FROM t",
            "expect": [{"name": "rule", "check": rule}],
            "dedupe": {"keys": ["id"]},
        },
        "gold.t": {
            "from": {"table": "silver.t"},
            "aggregate": {
                "keys": ["kind"],
                "metrics": {"n": "count(*)", "sum": "sum(amount)", "ids": "count(DISTINCT id)"},
            },
        },
    }


def send(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Every other id twice, with the same content; some that are no JSON."""
    for number in range(first, first + count):
        one = number // 2 * 2
        made = {"id": one, "amount": one % 50 - 5, "kind": "abc"[one % 3], "ts": "2026-01-01T00:00:00Z"}
        produce(bootstrap, topic, 1, partitions=[0], value=json.dumps(made) if number % 13 else "{")


def content(plan: Plan, name: str, *leave: str) -> Counter[str]:
    table = plan.table(name)
    assert table is not None
    return contents(table.uri, *leave)


def contents(uri: str, *leave: str) -> Counter[str]:
    return Counter(
        json.dumps({k: str(v) for k, v in row.items() if k not in leave}, sort_keys=True) for row in rows_at(uri)
    )


def rejected(plan: Plan) -> Counter[str]:
    table = plan.table("silver.t")
    assert table is not None
    return contents(
        f"{table.uri}__quarantine", "generation", "batch", "error_timestamp", "definition", "ingestion_timestamp"
    )


def test_a_silver_table_replayed_under_another_rule_equals_one_made_by_it(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    old = make_plan(tmp_path / "a", broker.bootstrap, tables(name, rule="amount > 0"))
    for first in (0, 40, 80):
        send(broker.bootstrap, name, first, 40)
        run_well(spark, old)
    new = make_plan(tmp_path / "a", broker.bootstrap, tables(name, rule="amount > 10", shown="amount * 2"))
    fill = replayed(spark, new, "silver.t")
    assert fill.rows and fill.fates["rejected"]
    assert [c.entry.kind for c in commits(new, "silver.t")[-2:] if c.entry] == ["open", "fill"]
    replayed(spark, new, "gold.t", at=commits(new, "silver.t")[-1].version)
    send(broker.bootstrap, name, 120, 40)
    run_well(spark, new)

    fresh = make_plan(tmp_path / "b", broker.bootstrap, tables(name, rule="amount > 10", shown="amount * 2"))
    run_well(spark, fresh)
    assert content(new, "bronze.t", "ingestion_timestamp") == content(fresh, "bronze.t", "ingestion_timestamp")
    assert content(new, "silver.t") == content(fresh, "silver.t")
    assert content(new, "gold.t") == content(fresh, "gold.t")
    assert rejected(new) == rejected(fresh)
    for report in verify(new.tables, LocalStore()):
        assert report.ok(), report
