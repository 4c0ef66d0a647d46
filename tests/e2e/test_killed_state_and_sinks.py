"""kill -9 while rows go through a table with Spark's state and out to a topic: no group wrong, no row missing there."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.e2e.kills import start
from tests.integration.run_plan import rows_at
from tests.integration.topic_records import consume

KILLS = 3
PROJECT = """\
name: killed
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
defaults: {{trigger: 500ms}}
tables:
  bronze.clicks: {{from: {{kafka: {came}, max_per_trigger: 300}}}}
  silver.clicks:
    from: {{table: bronze.clicks}}
    decode: {{json: value, schema: "id BIGINT, kind STRING, ts TIMESTAMP"}}
  gold.kinds: {{from: {{table: silver.clicks}}, stream: "s.py:kinds", output: complete}}
  gold.once: {{from: {{table: silver.clicks}}, stream: "s.py:once"}}
sinks:
  out: {{from: {{table: silver.clicks}}, to: {{kafka: {goes}}}, key: id}}
"""
FUNCTIONS = """\
def kinds(clicks):
    return clicks.groupBy("kind").count()


def once(clicks):
    return clicks.select("id", "ts").withWatermark("ts", "1 hour").dropDuplicatesWithinWatermark(["id"])
"""


class Flow:
    """Each record twice, some way apart."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._topic = topic
        self._stop = threading.Event()
        self.ids: list[int] = []
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.wait(0.1):
            for _ in range(20):
                number = len(self.ids) // 2 if len(self.ids) % 2 == 0 else max(0, len(self.ids) // 2 - 10)
                value = {"id": number, "kind": f"k{number % 7}", "ts": f"2026-01-01T00:{number % 60:02d}:00Z"}
                self._producer.produce(self._topic, json.dumps(value), partition=number % 2)
                self.ids.append(number)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


def commits(folder: Path) -> list[int]:
    places = ("_penstock/sinks/out", "gold/kinds", "gold/once")
    return [len(list((folder / "lake" / place / "_delta_log").glob("*.json"))) for place in places]


def wait_for_batches(runner: subprocess.Popen[bytes], folder: Path) -> None:
    """Until each of the tables that are looked at has written something in this life."""
    before, deadline = commits(folder), time.monotonic() + 120
    while any(now <= then for now, then in zip(commits(folder), before, strict=True)):
        assert runner.poll() is None and time.monotonic() < deadline, (folder / "run.log").read_text()[-3000:]
        time.sleep(0.1)


@pytest.mark.deep
def test_state_and_sinks_survive_kills(broker: Any, topic: Any, tmp_path: Path) -> None:
    came, goes = topic(partitions=2), topic(partitions=3)
    (tmp_path / "s.py").write_text(FUNCTIONS)
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap, came=came, goes=goes))
    flow, chance = Flow(broker.bootstrap, came), random.Random(7)
    try:
        for _ in range(KILLS):
            runner = start(tmp_path)
            wait_for_batches(runner, tmp_path)
            time.sleep(chance.uniform(0, 2))
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
    finally:
        flow.stop()
    last = start(tmp_path, "--once")
    assert last.wait(300) == 0, (tmp_path / "run.log").read_text()[-3000:]
    sent = Counter(flow.ids)
    lake = tmp_path / "lake"
    assert Counter(row["id"] for row in rows_at(str(lake / "silver/clicks"))) == sent
    kinds = Counter(f"k{number % 7}" for number in flow.ids)
    assert {row["kind"]: row["count"] for row in rows_at(str(lake / "gold/kinds"))} == kinds
    assert Counter(row["id"] for row in rows_at(str(lake / "gold/once"))) == Counter(set(flow.ids))
    records = consume(broker.bootstrap, goes)
    by_id = {record.id: record.value for record in records}
    assert Counter(json.loads(value or b"")["id"] for value in by_id.values()) == sent, "distinct ids are the rows"
    assert all(by_id[record.id] == record.value for record in records)
