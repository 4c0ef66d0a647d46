"""A record's timestamp is a number that its producer chose. Whatever it is, the record lands, and whoever asks gets an
answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import coordinates, rows, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_780_000_000_000
LAST_MS = 253_402_300_799_999
NONE = -1
HELD = [1, -5, NOW_MS, LAST_MS]
"""Milliseconds of a time within the years 1 to 9999."""
BEYOND = [NOW_MS * 1000, NOW_MS * 1_000_000, LAST_MS + 1, 2**63 - 1, 9_223_372_036_854_776, 253_402_300_800_000 * 10]
"""Microseconds, nanoseconds, and the limits."""
ANY_TIME = {"message_timestamp_before_max_ms": str(2**63 - 1), "message_timestamp_after_max_ms": str(2**63 - 1)}
HEADER = "penstock.timestamp"


def send(broker: Any, topic: str, times: list[int], value: str = '{"id": 1}') -> dict[tuple[int, int], int]:
    """Each record's place and its timestamp."""
    from confluent_kafka import Producer

    producer, sent = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1}), {}
    for number, at in enumerate(times):

        def delivered(error: Any, message: Any, at: int = at) -> None:
            assert error is None, error
            sent[message.partition(), message.offset()] = at

        producer.produce(topic, value, partition=number % 2, timestamp=at, headers=[("h", b"1")], on_delivery=delivered)
        producer.flush(30)
    assert len(sent) == len(times)
    return sent


def landed_times(found: list[dict[str, Any]]) -> dict[tuple[int, int], tuple[Any, list[tuple[str, bytes]]]]:
    return {
        (row["partition"], row["offset"]): (row["kafka_timestamp"], [(h["key"], h["value"]) for h in row["headers"]])
        for row in found
    }


def test_a_record_with_any_timestamp_lands_and_keeps_the_number(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(**ANY_TIME)
    plan = project({"bronze.t": {"from": {"kafka": name}}})
    sent = send(broker, name, [*HELD, NONE, *BEYOND, NOW_MS])
    run_well(spark, plan)
    assert coordinates(plan).total() == len(sent) == len(coordinates(plan))
    for place, (time, headers) in landed_times(rows(plan)).items():
        millis = sent[place]
        if millis in HELD:
            assert round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == millis
            assert headers == [("h", b"1")]
        elif millis == NONE:
            assert (time, headers) == (None, [("h", b"1")])
        else:
            assert time is None
            assert headers == [("h", b"1"), (HEADER, str(millis).encode())]


EXTREMES = """
SELECT id, _source,
  CASE id % 5 WHEN 0 THEN DATE'0001-01-01' WHEN 1 THEN DATE'9999-12-31' WHEN 2 THEN date_add(DATE'9999-12-31', 20000000)
    WHEN 3 THEN DATE'2026-01-01' END AS d,
  CASE id % 5 WHEN 0 THEN timestamp_micros(-62135596800000000L) WHEN 1 THEN timestamp_micros(253402300799999999L)
    WHEN 2 THEN timestamp_micros(1760000000000000000L) WHEN 3 THEN timestamp_micros(-62135596800000001L) END AS ts,
  CAST(CASE id % 5 WHEN 0 THEN timestamp_micros(-62135596800000000L) WHEN 1 THEN timestamp_micros(253402300799999999L)
    WHEN 2 THEN timestamp_micros(1760000000000000000L) END AS TIMESTAMP_NTZ) AS nt,
  CAST(concat(repeat('9', 37), id) AS DECIMAL(38, 0)) AS big, CAST('\\xff' AS BINARY) AS bytes
FROM t
"""
WITHOUT_A_JVM = [
    ["validate"],
    ["plan"],
    ["status"],
    ["status", "--json"],
    ["history", "silver.t"],
    ["history", "bronze.t", "--json"],
    ["dlq", "list"],
    ["dlq", "list", "--json"],
    ["dlq", "show", "silver.t"],
    ["dlq", "show", "silver.t", "--json", "--full"],
    ["verify", "bronze.t", "silver.t"],
    ["verify", "bronze.t", "silver.t", "--json"],
    ["doctor"],
    ["doctor", "--json"],
    ["checkpoints", "list"],
    ["checkpoints", "show", "silver.t"],
    ["optimize", "--dry-run"],
]


def test_every_verb_without_a_jvm_reads_every_value(
    spark: SparkSession, broker: Any, topic: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that an earlier version has written: then a timestamp in microseconds was the year 57850."""
    from typer.testing import CliRunner

    from penstock.cli.main import app

    name = topic(**ANY_TIME)
    merge = {"merge": {"keys": ["d", "nt"], "sequence": "ts"}}
    schema = {"decode": {"json": "value", "schema": "id BIGINT"}}
    plan = project(
        {
            "bronze.t": {"from": {"kafka": name}},
            "silver.t": {
                "from": {"table": "bronze.t"},
                **schema,
                "sql": EXTREMES,
                "write": {"partition_by": ["d", "ts"]},
            },
            "silver.m": {
                "from": {"table": "bronze.t"},
                **schema,
                "sql": EXTREMES,
                "expect": [{"name": "timed", "check": "d IS NOT NULL AND nt IS NOT NULL AND ts IS NOT NULL"}],
                "write": merge,
            },
        }
    )
    with monkeypatch.context() as before:
        before.setattr("penstock.sources.kafka._PENSTOCK_FORMAT", "kafka")
        for number in range(5):
            send(broker, name, [NOW_MS * 1000, LAST_MS], json.dumps({"id": number}))
        send(broker, name, [NOW_MS * 1000, LAST_MS], "no JSON")
        run_well(spark, plan)
    send(broker, name, [NOW_MS * 1_000_000], "no JSON either")
    run_well(spark, plan)
    for words in WITHOUT_A_JVM:
        done = CliRunner().invoke(app, ["-C", plan.root, *words], env={"COLUMNS": "120"})
        said = f"{words}: {done.exit_code}\n{done.output}\n{done.exception!r}"
        assert done.exit_code in (0, 1), said
        assert done.exception is None or isinstance(done.exception, SystemExit), said
        for false in ("cannot be read", "out of range", "Traceback", "OverflowError", "unreadable"):
            assert false not in done.output, said
    shown = json.loads(CliRunner().invoke(app, ["-C", plan.root, "dlq", "show", "silver.t", "--json"]).stdout)["shown"]
    assert [row["kafka_timestamp"] for row in shown if row["value"] == "no JSON either"] == [None]
    assert sorted(row["kafka_timestamp"] for row in shown if row["value"] == "no JSON") == [
        "+58375-12-15T20:26:40.000000Z",
        "9999-12-31T23:59:59.999Z",
    ]
