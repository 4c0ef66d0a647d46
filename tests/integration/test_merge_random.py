"""Whatever the order of arrival, and however it is cut into batches: what a plain Python reference says."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.table import verify
from tests.integration.change_histories import KEYS, SCHEMA, Change, latest, random_changes, send, versions
from tests.integration.run_plan import rows, run_well

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

MERGE = {"keys": list(KEYS), "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}


def tables(topic: str, most: int) -> dict[str, Any]:
    source = {"kafka": topic, "max_per_trigger": most}
    decode = {"json": "value", "schema": SCHEMA}
    return {
        "silver.c": {"from": source, "decode": decode, "write": {"merge": MERGE, "change_feed": True}},
        "silver.h": {
            "from": source,
            "decode": decode,
            "write": {"merge": {**MERGE, "history": "scd2"}, "change_feed": True},
        },
        "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        "silver.audit": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "audit": {"who": "name"}},
    }


def living(plan: Plan, name: str) -> dict[tuple[int, str], dict[str, Any]]:
    found = [row for row in rows(plan, name) if not row["_deleted"]]
    made = {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in found}
    assert len(made) == len(found)  # no key twice
    return made


def history(plan: Plan, name: str) -> set[tuple[Any, ...]]:
    columns = ("id", "part", "name", "city", "valid_from", "valid_to", "is_current")
    found = [tuple(row[column] for column in columns) for row in rows(plan, name) if not row["_deleted"]]
    assert len(set(found)) == len(found)
    return set(found)


def replayed(plan: Plan) -> dict[tuple[int, str], Any]:
    """The state that the audit table tells, change by change: each must begin where the last one ended."""
    state: dict[tuple[int, str], Any] = {}
    for row in sorted(rows(plan, "silver.audit"), key=lambda one: one["version"]):
        key = (row["id"], row["part"])
        assert state.get(key) == row["before"], row
        assert (row["change_type"] == "insert") == (row["before"] is None)
        state[key] = row["after"]
    return {
        key: {name: after[name] for name in ("name", "city", "seq")}
        for key, after in state.items()
        if after is not None
    }


@pytest.mark.parametrize(
    ("seed", "proven"), [(1, False), *(pytest.param(seed, True, marks=pytest.mark.deep) for seed in (1, 2, 3))]
)
def test_random_histories_give_what_a_reference_says(
    seed: int,
    proven: bool,
    spark: SparkSession,
    broker: Broker,
    topic: Callable[..., str],
    project: Callable[..., Plan],
) -> None:
    chance = random.Random(seed)
    partitions = chance.choice((1, 3, 5))
    name = topic(partitions)
    sent: list[Change] = []
    for part in range(2):
        changes = random_changes(chance, keys=chance.choice((5, 400)), count=600)
        sent += send(broker.bootstrap, name, changes, partitions, chance)
        plan = project(tables(name, chance.choice((100, 700, 5000))))
        heard = run_well(spark, plan)
        assert living(plan, "silver.c") == latest(sent), part
        assert history(plan, "silver.h") == versions(sent), part
        assert living(plan, "silver.copy") == latest(sent), part
        assert replayed(plan) == latest(sent), part
        for batch in (one for one in heard.batches if one.row_counts.get("read")):
            row_counts = batch.row_counts
            assert row_counts["read"] + row_counts["reshaped"] == batch.rows + sum(
                row_counts[fate] for fate in ("rejected", "dropped", "duplicates", "superseded") if fate in row_counts
            )
    if not proven:
        return
    reports = verify(plan.tables, LocalStore(), known=plan.tables)
    run_checks_in(spark, plan, tables_to_check(plan.tables, reports, deep=True), LocalStore(), deep=True)
    checks = {one.table: [(check.name, check.outcome, check.said) for check in one.checks] for one in reports}
    assert all(one.verdict == "complete" for one in reports), checks
    assert [name for name, *_ in checks["silver.h"][:2]] == ["merge", "tombstones"]
