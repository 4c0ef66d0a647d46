"""kill -9 in the middle of a transaction, on either side of it: the copy in PostgreSQL equals the table."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.conftest import started
from tests.e2e.kills import start

if TYPE_CHECKING:
    from penstock.dev.postgres import Postgres

KEYS = 200
WRITING = b"SELECT pid FROM pg_stat_activity WHERE state = 'active' AND query ILIKE 'insert into %\"c\"%'"
PROJECT = """\
name: killed
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
defaults: {{trigger: 500ms}}
tables:
  silver.c:
    from: {{kafka: {came}, max_per_trigger: 700}}
    decode: {{json: value, schema: "id BIGINT, name STRING, seq BIGINT, op STRING"}}
    write: {{merge: {{keys: [id], sequence: seq, delete_when: "op = 'd'", columns: {{except: op}}}}, change_feed: true}}
sinks:
  out:
    from: {{changes: silver.c}}
    to: {{postgres: "{url}", table: c, user: postgres}}
"""
SLOW = """\
CREATE TABLE c (id bigint PRIMARY KEY, name text, seq bigint);
CREATE TABLE applied (id bigint, seq bigint);
CREATE FUNCTION slow() RETURNS trigger AS $$
BEGIN PERFORM pg_sleep(0.01); INSERT INTO applied VALUES (NEW.id, NEW.seq); RETURN NULL; END $$ LANGUAGE plpgsql;
CREATE TRIGGER slow AFTER INSERT OR UPDATE ON c FOR EACH ROW EXECUTE FUNCTION slow();
"""


@pytest.fixture
def server() -> Iterator[Postgres]:
    """One that may be killed."""
    from penstock.dev.postgres import Postgres

    with started(Postgres()) as found:
        yield found


class Changes:
    """Numbered changes of a few hundred rows, one in five a delete; and what they come to."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer, self._topic = Producer({"bootstrap.servers": bootstrap}), topic
        self._chance = random.Random(3)
        self._next = 0
        self.table: dict[int, tuple[str, int]] = {}

    def send(self, count: int) -> None:
        for _ in range(count):
            key, seq = self._chance.randrange(KEYS), self._next
            gone = self._chance.random() < 0.2
            value = {"id": key, "name": f"n{seq}", "seq": seq, "op": "d" if gone else "u"}
            self._producer.produce(self._topic, json.dumps(value), partition=key % 2)
            self.table.pop(key, None) if gone else self.table.update({key: (f"n{seq}", seq)})
            self._next += 1
        assert self._producer.flush(30) == 0


def wait_for_a_transaction(runner: subprocess.Popen[bytes], server: Postgres, folder: Path, changes: Changes) -> int:
    """Until the sink is among the rows of a batch; there is always something for it to do. The process that serves
    it."""
    deadline, sent = time.monotonic() + 180, time.monotonic()
    with server.connect() as connection:
        while (found := connection.execute(WRITING).fetchone()) is None:
            assert runner.poll() is None and time.monotonic() < deadline, (folder / "run.log").read_text()[-3000:]
            if time.monotonic() - sent > 5:
                changes.send(300)
                sent = time.monotonic()
            time.sleep(0.02)
    return int(found[0])


def wait_for_orphans(server: Postgres) -> None:
    """The server goes on with the statement of a client that is dead, and finds out when it is done."""
    deadline = time.monotonic() + 60
    with server.connect() as connection:
        while connection.execute(WRITING).fetchone() is not None:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def batches(folder: Path) -> int:
    return len(list((folder / "lake/_penstock/sinks/out/_delta_log").glob("*.json")))


def kill_both_sides(broker: Any, topic: Any, server: Postgres, folder: Path, rounds: int) -> None:
    came = topic(partitions=2)
    server.execute(SLOW)
    text = PROJECT.format(bootstrap=broker.bootstrap, came=came, url=server.url)
    (folder / "penstock.yml").write_text(text)
    changes = Changes(broker.bootstrap, came)
    for _ in range(rounds):
        changes.send(600)
        runner = start(folder)
        wait_for_a_transaction(runner, server, folder, changes)
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
        wait_for_orphans(server)
        runner = start(folder)
        try:
            serving = wait_for_a_transaction(runner, server, folder, changes)
            os.kill(serving, signal.SIGKILL)  # it would end its transaction first, though its server is dead
            server.kill()
            changes.send(300)
            time.sleep(1.5)
            server.start()
            before, deadline = batches(folder), time.monotonic() + 120
            while batches(folder) <= before:
                assert runner.poll() is None and time.monotonic() < deadline, (folder / "run.log").read_text()[-3000:]
                time.sleep(0.1)
        finally:
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
    assert start(folder, "--once").wait(300) == 0, (folder / "run.log").read_text()[-3000:]
    verified = subprocess.run(
        [sys.executable, "-m", "penstock", "-C", str(folder), "verify", "out"], capture_output=True
    )
    assert verified.returncode == 0, verified.stdout
    there = server.execute("SELECT id, name, seq FROM c")
    assert {row[0]: (row[1], row[2]) for row in there} == changes.table and len(there) == len(changes.table)
    applied = Counter(server.execute("SELECT id, seq FROM applied"))
    assert max(applied.values()) == 1, "no change was applied twice"
    said = (folder / "run.log").read_text()
    assert "the database does not serve" in said


@pytest.mark.deep
def test_a_copy_in_postgresql_survives_kills_on_either_side(
    broker: Any, topic: Any, server: Postgres, tmp_path: Path
) -> None:
    kill_both_sides(broker, topic, server, tmp_path, 1)


@pytest.mark.deep
def test_a_copy_in_postgresql_survives_many_kills(broker: Any, topic: Any, server: Postgres, tmp_path: Path) -> None:
    kill_both_sides(broker, topic, server, tmp_path, 5)
