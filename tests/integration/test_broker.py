"""The development broker, for real: it keeps what was produced through crashes, and ends with its owner."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.dev.broker import Broker, TopicCount, count_topics
from penstock.dev.process import identity
from penstock.errors import SetupError

QUIET = {"log_level": 0}


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 64 * 1024 * 1024, **QUIET})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "t", "fetch.message.max.bytes": 64 << 20, **QUIET})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    until = time.monotonic() + 60
    while len(values) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    consumer.close()
    return values


@pytest.mark.deep
def test_records_survive_a_crash_and_a_restart_on_the_same_port() -> None:
    values = [f"record {n}".encode() for n in range(500)] + [b"x" * 31_000_000]
    with Broker() as broker:
        assert broker.create_topic("kept.by-name", 1)
        assert not broker.create_topic("kept.by-name", 1)
        produce(broker.bootstrap, "kept.by-name", values)
        address, first = broker.bootstrap, broker.pid

        broker.kill()
        assert not broker.running
        broker.start()
        assert (broker.bootstrap, broker.running) == (address, True)
        assert broker.pid != first
        assert consume(address, "kept.by-name", len(values)) == values
        assert count_topics(address) == [TopicCount("kept.by-name", 1, len(values))]

        broker.restart()
        assert count_topics(address) == [TopicCount("kept.by-name", 1, len(values))]
    assert not broker.running
    assert not broker.data_dir.exists()


def test_a_paused_broker_answers_again_when_resumed(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    broker.create_topic("paused", 1)
    broker.pause()
    try:
        producer.produce("paused", b"while it sleeps")
        assert producer.flush(1.0) == 1
    finally:
        broker.resume()
    assert producer.flush(30.0) == 0


def test_a_broker_does_not_outlive_an_owner_that_is_killed() -> None:
    program = (
        "import os, signal; from penstock.dev.broker import Broker; broker = Broker().start();"
        "print(broker.pid, broker.data_dir, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL
    pid, folder = done.stdout.split()
    until = time.monotonic() + 20
    while (identity(int(pid)) or Path(folder).exists()) and time.monotonic() < until:
        time.sleep(0.1)
    assert identity(int(pid)) is None
    assert not Path(folder).exists()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broken = Broker(data_dir=tmp_path, overrides={"log.segment.bytes": "not a number"})
    with pytest.raises(SetupError) as caught:
        broken.start()
    assert "log.segment.bytes" in caught.value.message
    assert not broken.running
