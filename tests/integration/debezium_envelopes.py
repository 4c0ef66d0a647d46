"""Debezium's envelopes, hand-made, and what a table makes of a batch of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT NOT NULL, name STRING NOT NULL, amount DECIMAL(9,2), ts TIMESTAMP, tn TIMESTAMP_NTZ, d DATE, ok BOOLEAN,"
    " b BINARY, x DOUBLE, f FLOAT, n INT, xs ARRAY<INT>, ss ARRAY<STRING>, ds ARRAY<DECIMAL(5,2)>, m MAP<STRING,STRING>"
)
TS_US = 1_767_225_600_123_456
AT = datetime(2026, 1, 1, 0, 0, 0, 123456)
SOURCE = {"connector": "postgresql", "lsn": 0x20, "sequence": '["16","32"]', "ts_ms": TS_US // 1000, "ts_us": TS_US}
AFTER = {"id": 1, "name": "a"}
PLACEHOLDER = "__debezium_unavailable_value"
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}


def change(op: str | None = "c", after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    """As Debezium writes it, in its order of fields."""
    source = {**SOURCE, **more.pop("source", {})}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 5, **more}


def with_schema(payload: dict[str, Any], **columns: dict[str, Any] | str) -> dict[str, Any]:
    """Beside its schema, in which only some columns stand."""
    fields = [{"field": k, **({"type": v} if isinstance(v, str) else v)} for k, v in columns.items()]
    images = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
    return {"schema": {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}]}, "payload": payload}


def text(name: str) -> dict[str, Any]:
    return {"type": "string", "name": name}


@dataclass(frozen=True)
class Outcome:
    """What a batch became, in the order of its records."""

    written: list[dict[str, Any]]
    rejected: list[tuple[str, str]]
    dropped: int
    unmet: int


def run(spark: SparkSession, values: Iterable[Any], *, keys: list[Any] | None = None, **table: Any) -> Outcome:
    """One batch of records with these values; `table` has further keys of decode, or whole stages."""
    from penstock.ledger.entry import Pins
    from penstock.plan.build import build_plan
    from penstock.spec.project import Project
    from penstock.tables.pipeline import StagedPipeline
    from penstock.testing.table_under_test import records

    stages = {name: table.pop(name) for name in ("expect", "payload") if name in table}
    decode = {"debezium": "value", "schema": SCHEMA, **table}
    tables = {"silver.t": {"from": {"kafka": "t"}, "decode": decode, **stages}}
    project = Project(name="t", lake="/lake", kafka={"bootstrap": "127.0.0.1:1"}, tables=tables)  # type: ignore[arg-type]
    rows = [{"value": value, "key": key} for value, key in zip_longest(values, keys or [])]
    staged = StagedPipeline(build_plan(project).tables[0])
    made = staged.run(records(spark, rows, "t", 0).coalesce(1), Pins(0, "d"), {})
    written = [row.asDict() for row in made.rows.sort("_source.offset").collect()]
    explained = staged.with_reasons(made.classified[0].rejected_rows()).sort("_source.offset").select("why.*")
    rejected = [(row[0], row[1]) for row in explained.collect()]
    told = made.metrics[0].result()
    assert told is not None
    assert len(rows) == told["read"] == len(written) + len(rejected) + told["dropped"]
    assert len(rejected) == told["rejected"]
    return Outcome(written, rejected, told["dropped"], sum(told[name] for name in told if name.startswith("unmet_")))


def written(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.rejected == [], outcome.rejected
    return outcome.written


def said(outcome: Outcome) -> list[tuple[str, str]]:
    assert outcome.written == [], outcome.written
    return outcome.rejected
