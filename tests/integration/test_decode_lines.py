"""Records that are CSV lines or plain text: every one is a row, or rejected once with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import produce, rows, rows_at, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CSV = "id BIGINT NOT NULL, amount DECIMAL(5,2), day DATE, at TIMESTAMP, name STRING, x DOUBLE"
GOOD = {
    "1,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": (1, "2.50", "ann"),
    '2,,,,"a, b",': (2, None, "a, b"),
    '3,1,2026-02-28,,"said ""no""",1e3': (3, "1.00", 'said "no"'),
    "4.0,100e-1,0001-01-01,2026-01-31 10:00 ,dan, .5": (4, "10.00", "dan"),
    '4,"","",,"",""': (4, None, ""),
    "4,  , ,\t,  ,  ": (4, None, "  "),
    '5,,,,5" pipe,': (5, None, '5" pipe'),
    '6,,,,"two\nlines",': (6, None, "two\nlines"),
    "7,,,,a\x00b,\r\n": (7, None, "a\x00b"),
}
BAD = {
    "": "empty_value",
    "nonsense": "malformed_csv",
    '1,,,,"not closed,': "malformed_csv",
    '1,,,,"a"b,': "malformed_csv",
    "1,,,,x,\n2,,,,y,": "malformed_csv",
    "1,2.50": "malformed_csv",
    "1,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1.5,more": "malformed_csv",
    ",2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": "missing_field",
    "x,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,2.505,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,1234.5,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,2.50,2026-02-30,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,2.50,2026-01-31,noon,ann,1.5": "wrong_type",
    "1,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1e400": "wrong_type",
    "1,100e2147483647,2026-01-31,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,9007199254740993": "wrong_type",
    "1,2.50,2026-1-31,2026-01-31T10:00:00Z,ann,1.5": "wrong_type",
    "1,2.50,2026-01-31,2026-01-31T10:00:00.0000001Z,ann,1.5": "wrong_type",
    "," * 30_000: "malformed_csv",
    '"",' * 160_000: "malformed_csv",
    "99999999999999999999,2.50,2026-01-31,2026-01-31T10:00:00Z,ann,1": "wrong_type",
}


def land(spark: SparkSession, broker: Any, topic: Any, project: Any, values: list[Any], **decode: Any) -> Any:
    name = topic(partitions=1)
    for value in values:
        produce(broker.bootstrap, name, 1, partitions=[0], value=value)
    plan = project({"bronze.t": {"from": {"kafka": name}}, "silver.t": {"from": {"table": "bronze.t"}, **decode}})
    run_well(spark, plan)
    assert [one.verdict for one in verify(plan.tables, LocalStore())] == ["complete", "complete"]
    return plan


def rejected(plan: Any) -> dict[Any, str]:
    found = rows_at(f"{plan.table('silver.t').uri}__quarantine")
    made = {row["value"] if row["value"] is not None else row["value_binary"]: row["error_reason"] for row in found}
    assert len(made) == len(found)
    return made


def test_csv_lines(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    decode = {"csv": "value", "schema": CSV}
    plan = land(spark, broker, topic, project, [*GOOD, *BAD, b"1,\xff"], decode=decode)
    found = {row["id"]: (row["amount"], row["name"]) for row in rows(plan, "silver.t")}
    assert len(rows(plan, "silver.t")) == len(GOOD)
    assert {number: (str(amount) if amount else None, name) for number, (amount, name) in found.items()} == {
        number: (amount, name) for number, amount, name in GOOD.values()
    }
    assert rejected(plan) == {**BAD, b"1,\xff": "not_utf8"}


def test_csv_with_other_separators(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    decode = {"csv": "value", "schema": "id INT, name STRING", "options": {"sep": ";", "quote": "'"}}
    plan = land(spark, broker, topic, project, ["1;'a;b'", "2;c,d"], decode=decode)
    assert sorted((row["id"], row["name"]) for row in rows(plan, "silver.t")) == [(1, "a;b"), (2, "c,d")]


def test_plain_text_is_taken_as_it_is(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    texts = ["a line", "", "  ", '{"not": "looked at"}', "a\x00b", "é中😀"]
    expect = [{"name": "short", "check": "length(line) < 15"}]
    decode = {"text": "value", "schema": "line STRING"}
    plan = land(spark, broker, topic, project, [*texts, b"\xff\xfe"], decode=decode, expect=expect)
    assert sorted(row["line"] for row in rows(plan, "silver.t")) == sorted(set(texts) - {texts[3]})
    assert rejected(plan) == {texts[3]: "expectation", b"\xff\xfe": "not_utf8"}
