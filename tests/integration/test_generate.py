"""The generator against a real broker: what it reports is what the topic holds."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.dev.generate import Event, Faults, ensure_topic, events, produce
from penstock.errors import BrokerAway, UsageError
from tests.golden import golden, shape

if TYPE_CHECKING:
    from penstock.dev.broker import Broker

START = datetime(2026, 1, 1, tzinfo=UTC)
MIXED = Faults(malformed=0.02, late=0.02, duplicates=0.02)


@pytest.fixture
def name() -> str:
    return f"generated.{uuid.uuid4().hex[:10]}"


def everything_in(broker: Broker, topic: str, partitions: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "none", "enable.partition.eof": False})
    try:
        places = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
        wanted = sum(consumer.get_watermark_offsets(place, timeout=10)[1] for place in places)
        consumer.assign(places)
        found: list[Message] = []
        until = time.monotonic() + 30
        while len(found) < wanted and time.monotonic() < until:
            found += consumer.consume(5000, timeout=1)
        return found
    finally:
        consumer.close()


def test_the_topic_holds_exactly_the_events_that_are_reported(broker: Broker, name: str) -> None:
    made = list(events("orders", 5000, start=START, faults=MIXED))
    sent = produce(broker.bootstrap, name, made, partitions=3)
    found = everything_in(broker, name, 3)
    assert sent.count == len(found) == 5000
    assert Counter((m.key(), m.value()) for m in found) == Counter((e.key, e.value) for e in made)
    assert {tuple(m.headers() or ()) for m in found} == {made[0].headers}
    assert sent.labels == Counter(event.label for event in made)
    assert sent.bytes == sum(len(event.key or b"") + len(event.value or b"") for event in made)
    last = {m.partition(): m.offset() for m in sorted(found, key=lambda m: m.offset() or 0)}
    assert sent.offsets == dict(sorted(last.items()))


def test_events_of_one_key_stay_in_order(broker: Broker, name: str) -> None:
    produce(broker.bootstrap, name, events("customers", 5000, start=START))
    last: dict[bytes | None, int] = {}
    for message in everything_in(broker, name, 4):
        sequence = json.loads(message.value() or b"")["sequence"]
        assert sequence > last.get(message.key(), 0)
        last[message.key()] = sequence


def test_an_event_of_long_ago_is_not_old_to_the_broker(broker: Broker, name: str) -> None:
    """Retention goes by the record's timestamp: one from the event time would be deleted at once."""
    produce(broker.bootstrap, name, events("orders", 10, start=datetime(2001, 1, 1, tzinfo=UTC)), partitions=1)
    stamps = [message.timestamp()[1] for message in everything_in(broker, name, 1)]
    assert all(abs(stamp / 1000 - time.time()) < 300 for stamp in stamps)


def test_a_missing_topic_is_made_and_an_existing_one_used_as_it_is(broker: Broker, name: str) -> None:
    made = ensure_topic(broker.bootstrap, name, 3)
    assert (made.partitions, made.created) == (3, True)
    found = produce(broker.bootstrap, name, events("orders", 10, start=START), partitions=8).topic
    assert (found.partitions, found.created) == (3, False)


@pytest.mark.parametrize("wrong", ["", "a/b", "two words", "x" * 300])
def test_a_name_that_no_topic_can_have_is_refused(broker: Broker, wrong: str) -> None:
    with pytest.raises(UsageError):
        ensure_topic(broker.bootstrap, wrong, 1)


def test_a_rate_is_kept(broker: Broker, name: str) -> None:
    sent = produce(broker.bootstrap, name, events("clicks", 1000, start=START), rate=500)
    assert sent.count == 1000
    assert 1.9 < sent.seconds < 4


def test_stopping_sends_what_is_on_its_way_and_reports_it(broker: Broker, name: str) -> None:
    stop = threading.Event()
    threading.Timer(0.5, stop.set).start()
    sent = produce(broker.bootstrap, name, events("orders", start=START), rate=200, stop=stop.is_set)
    assert sent.stopped
    assert 0 < sent.count == len(everything_in(broker, name, 4))


def test_no_broker_is_said_with_what_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.dev.generate.producer.DOWN_SECONDS", 0.1)
    with pytest.raises(BrokerAway) as error:
        produce("127.0.0.1:1", "orders", [])
    assert "penstock kafka start" in (error.value.hint or "")


@pytest.mark.deep
def test_a_broker_that_dies_gives_the_number_of_events_that_were_not_acknowledged(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.dev.broker import Broker

    monkeypatch.setattr("penstock.dev.generate.producer.GIVE_UP_SECONDS", 3)
    with Broker() as own:

        def killing(stream: Iterator[Event]) -> Iterator[Event]:
            yield from islice(stream, 2000)
            own.kill()
            yield from stream

        with pytest.raises(BrokerAway, match=r"events were acknowledged and [\d,]+ were not"):
            produce(own.bootstrap, name, killing(events("orders", 20_000, start=START)))


def test_the_command_reports_as_json_what_the_topic_holds(broker: Broker, name: str) -> None:
    words = ["generate", "orders", "--topic", name, "--bootstrap", broker.bootstrap, "--count", "2k", "--start"]
    words += ["2026-01-01", "--malformed", "3%", "--partitions", "2", "--json"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.output
    answer = json.loads(ended.stdout)
    assert answer["acknowledged"] == answer["asked"] == 2000
    assert sum(answer["sent"]["malformed"].values()) == 60
    golden("documents/generate", shape(answer))
    assert answer["topic_created"] and answer["partitions"] == 2
    assert sum(last + 1 for last in answer["offsets"].values()) == 2000
    expected = events("orders", 2000, start=START, faults=Faults(malformed=0.03))
    found = everything_in(broker, name, 2)
    assert Counter((m.key(), m.value()) for m in found) == Counter((e.key, e.value) for e in expected)


def test_the_command_takes_the_broker_from_the_project(broker: Broker, name: str, tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(
        f"name: shop\nlake: ./lake\nkafka: {{bootstrap: '{broker.bootstrap}'}}\n"
        f"tables:\n  bronze.orders: {{from: {{kafka: {name}}}}}\n"
    )
    ended = CliRunner().invoke(app, ["generate", "sensors", "-C", str(tmp_path), "--topic", name, "--count", "100"])
    assert ended.exit_code == 0, ended.output
    assert "100 sensors" in ended.stdout
    assert f"made the topic {name} with 4 partitions" in ended.stderr
