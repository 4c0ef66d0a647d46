"""Everything that should not be in a topic, on a real broker, among good records: nothing stops, nothing is lost."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import coordinates, produce, rows, rows_at, run_well
from tests.integration.test_decode_json import BAD, BAD_NESTED, FLAT, GOOD, GOOD_NESTED, NESTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOT_TEXT = [b"\xff", b'{"id":1,"name":"\xc3\x28"}', b"\xed\xa0\x80", b"\x00\x01\x02\xfe", b'\xff\xfe{\x00"\x00']
KEYS = [None, b"", b"\xff", b"a\x00b", b"k" * 100_000]
HEADERS: list[Any] = [None, [("", b"")], [("h", None)], [("h", b"\xff"), ("h", b"twice")]]


def corpus(nested: bool) -> list[tuple[str | bytes | None, str | None]]:
    """Payload, and the reason for which it is rejected."""
    good = [*GOOD, *(GOOD_NESTED if nested else [])] * 3
    bad = [*BAD, *(BAD_NESTED if nested else [])]
    made: list[tuple[str | bytes | None, str | None]] = [(value, None) for value in good if len(value) < 11_000_000]
    made += [(value, reason) for value, reason, _ in bad]
    return made + [(value, "not_utf8") for value in NOT_TEXT]


def send(broker: Any, topic: str, records: list[tuple[str | bytes | None, str | None]], seed: int) -> dict[Any, Any]:
    from confluent_kafka import Producer

    chance = random.Random(seed)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 64 << 20})
    sent: dict[Any, Any] = {}
    for value, reason in chance.sample(records, len(records)):

        def delivered(error: Any, message: Any, reason: str | None = reason) -> None:
            assert error is None, error
            sent[(message.topic(), message.partition(), message.offset())] = reason

        producer.produce(
            topic,
            value,
            key=chance.choice(KEYS),
            headers=chance.choice(HEADERS),
            partition=chance.randrange(3),
            on_delivery=delivered,
        )
    producer.flush(60)
    assert len(sent) == len(records)
    return sent


def test_the_stream_never_stops_and_every_record_has_one_place(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=3, max_message_bytes=str(64 << 20))
    tables = {
        "bronze.t": {"from": {"kafka": name, "max_per_trigger": 60}},
        "silver.nested": {"from": {"table": "bronze.t"}, "decode": {"json": "value", "schema": NESTED}},
        "bronze.bytes": {"from": {"kafka": name}, "payload": "binary"},
        "silver.of_bytes": {"from": {"table": "bronze.bytes"}, "decode": {"json": "value", "schema": NESTED}},
        "silver.flat": {
            "from": {"kafka": name, "max_per_trigger": 90},
            "decode": {"json": "value", "schema": FLAT, "rescue": True},
            "expect": [{"name": "sane", "check": "id IS NOT NULL"}],
        },
    }
    plan = project(tables)
    sent = send(broker, name, corpus(nested=True), seed=7)
    run_well(spark, plan)
    produce(broker.bootstrap, name, 5, partitions=[0, 1, 2], value='{"id": 5}')
    heard = run_well(spark, plan)
    assert not heard.errors
    assert coordinates(plan, "bronze.t").total() == len(sent) + 5
    for silver in ("silver.nested", "silver.of_bytes", "silver.flat"):
        table = plan.table(silver)
        assert table is not None
        good = Counter(_place(row) for row in rows(plan, silver))
        bad = {_place(row): row for row in rows_at(f"{table.uri}__quarantine")}
        assert good.total() + len(bad) == len(sent) + 5 and max(good.values()) == 1 and not set(good) & set(bad)
        if silver != "silver.flat":
            said = {place: row["error_reason"] for place, row in bad.items()}
            assert said == {place: reason for place, reason in sent.items() if reason}
        assert all(row["error_detail"] for row in bad.values())
    assert {report.verdict for report in verify(plan.tables, LocalStore())} == {"complete"}


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    source = row["_source"]
    return source["topic"], source["partition"], source["offset"]
