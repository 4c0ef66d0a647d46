"""Whatever a value makes an expression raise, however long it takes to say so: that record is set aside, no other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import rows_at, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

SCHEMA = "id BIGINT NOT NULL, t STRING, q STRING, n BIGINT, name STRING, pattern STRING"
FINE = {"t": "1", "q": "a=1&b=2", "n": 3, "name": "somebody", "pattern": "a%"}
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a long value that is no number": ({"t": " " * 60_000 + "x"}, "CAST_INVALID_INPUT"),
    "a value that reads like a failed expectation": ({"t": "expectation x failed: y"}, "CAST_INVALID_INPUT"),
    "a value that reads like Penstock": ({"t": "[USER_RAISED_EXCEPTION] penstock: z"}, "CAST_INVALID_INPUT"),
    "a key twice": ({"q": "a=1&a=2"}, "DUPLICATED_MAP_KEY"),
    "a list that is too long": ({"n": 2**40}, "COLLECTION_SIZE_LIMIT_EXCEEDED"),
    "a text that a pattern goes too deep in": ({"name": "a-" * 20_000}, "StackOverflowError"),
    "a pattern that ends in an escape": ({"pattern": "abc\\"}, "INVALID_FORMAT"),
}
EXPRESSIONS = {
    "number": "CAST(t AS INT)",
    "pairs": "size(str_to_map(q, '&', '='))",
    "numbers": "size(sequence(1, n))",
    "word": "CAST(name RLIKE '^(\\\\w|-)+$' AS INT)",
    "like": "CAST(name LIKE pattern AS INT)",
}


@pytest.mark.deep
def test_each_value_that_makes_an_expression_raise_costs_its_own_record_only(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    from confluent_kafka import Producer

    name = topic(1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, (value, _) in enumerate([({}, ""), *HOSTILE.values(), ({}, "")]):
        producer.produce(name, partition=0, value=json.dumps({**FINE, **value, "id": number}))
    assert producer.flush(30) == 0
    made = ", ".join(f"{expression} AS {column}" for column, expression in EXPRESSIONS.items())
    checks = [
        {"name": column, "check": f"coalesce({expression} >= 0, true)"} for column, expression in EXPRESSIONS.items()
    ]
    source = {"from": {"kafka": name}, "decode": {"json": "value", "schema": SCHEMA}}
    plan = project(
        {
            "silver.sql": {**source, "sql": f"SELECT id, {made}, _source FROM input"},
            "silver.expect": {**source, "expect": checks},
        }
    )
    run_well(spark, plan)
    for table in plan.tables:
        found = rows_at(table.uri)
        assert Counter(row["id"] for row in found) == Counter([0, len(HOSTILE) + 1]), table.name
        rejected = {row["_source"]["offset"]: row["error_detail"] for row in rows_at(f"{table.uri}__quarantine")}
        assert len(rejected) == len(HOSTILE), table.name
        for offset, (what, (_, error)) in enumerate(HOSTILE.items(), 1):
            assert error in rejected[offset], (table.name, what, rejected[offset])
