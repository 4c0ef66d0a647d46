"""A record's timestamp is a number that its producer chose. Whatever it is, the record lands, and whoever asks gets an
answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tests.integration.runs import coordinates, rows, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_780_000_000_000
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999
HELD = [1, NOW_MS, LAST_MS]
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
    sent = send(broker, name, [*HELD, *BEYOND, NOW_MS])
    run_well(spark, plan)
    assert coordinates(plan).total() == len(sent) == len(coordinates(plan))
    for place, (time, headers) in landed_times(rows(plan)).items():
        millis = sent[place]
        if millis in HELD:
            assert round((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000) == millis
            assert headers == [("h", b"1")]
        else:
            assert time is None
            assert headers == [("h", b"1"), (HEADER, str(millis).encode())]
