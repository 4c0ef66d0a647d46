"""Records that raise, at random places of random batches, in every place where a definition has an expression."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penstock.testing import table_under_test

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.deep
DECODE = {"json": "value", "schema": "id BIGINT, h BIGINT, t STRING"}
JSON = "get_json_object(value, '$.t')"
PYTHON = """
from pyspark.sql import functions as F

@F.udf("bigint")
def inverse(h):
    return 100 // h

def rated(rows):
    return rows.withColumn("x", inverse("h"))
"""
MERGE: dict[str, Any] = {"keys": ["id"]}
KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "divide": ({"sql": "SELECT *, 10 / h AS r FROM orders"}, "h"),
    "cast": ({"sql": "SELECT *, CAST(t AS INT) AS n FROM orders WHERE CAST(t AS INT) >= 0"}, "t"),
    "both": ({"sql": "SELECT *, CAST(t AS INT) / h AS n FROM orders"}, "ht"),
    "python": ({"transform": "transforms.py:rated"}, "h"),
    "where": ({"from": {"table": "bronze.orders", "where": f"CAST({JSON} AS INT) >= 0"}}, "t"),
    "sequence": ({"write": {"merge": MERGE | {"sequence": "CAST(t AS INT)"}}}, "t"),
    "delete": ({"write": {"merge": MERGE | {"sequence": "id", "delete_when": "10 / h < 0"}}}, "h"),
    "expect": ({"expect": [{"name": "a", "check": "10 / h > 0"}, {"name": "b", "check": "10 / h < 99"}]}, "h"),
    "dedupe": ({"sql": "SELECT *, 10 / h AS r FROM orders", "dedupe": {"keys": ["id"]}}, "h"),
    "explode": ({"sql": "SELECT *, explode(array(10 / h, 1)) AS r FROM orders"}, "h"),
}
CASES = 4


def test_exactly_the_records_that_raise_are_rejected_and_all_others_land(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
    print(f"SEED={seed}")
    chance = random.Random(seed)
    tables: dict[str, Any] = {"bronze.orders": {"from": {"kafka": "orders"}}}
    for kind, (more, _) in KINDS.items():
        tables[f"silver.{kind}"] = {"from": {"table": "bronze.orders"}, "decode": DECODE, **more}
    document = {"name": "shop", "lake": "./lake", "kafka": {"bootstrap": "127.0.0.1:1"}, "tables": tables}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    (tmp_path / "transforms.py").write_text(PYTHON)
    for kind, (_, by) in KINDS.items():
        with table_under_test(tmp_path, f"silver.{kind}", spark=spark) as table:
            first = 0
            for _ in range(CASES):
                count = chance.randint(1, 60)
                zero, text = (set(chance.sample(range(count), chance.randint(0, min(3, count)))) for _ in "ht")
                rows = [
                    {"value": {"id": first + n, "h": 0 if n in zero else 5, "t": "x" if n in text else str(n)}}
                    for n in range(count)
                ]
                outcome = table.run(rows)
                bad = (zero if "h" in by else set()) | (text if "t" in by else set())
                why = (seed, kind, count, zero, text)
                assert {row["id"] - first for row in outcome.written} == set(range(count)) - bad, why
                assert len(outcome.quarantined) == len(bad) and outcome.read == count, why
                reason = "expectation" if kind == "expect" else "transform_failed"
                assert {row["error_reason"] for row in outcome.quarantined} <= {reason}, why
                first += count
