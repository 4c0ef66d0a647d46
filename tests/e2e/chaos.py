"""Kill a running project again and again, and look at the table all the while.

A producer sends numbered records without pause; a reader polls the table; the runner is killed with SIGKILL at random
moments (the whole process group, Python alone, the JVM alone), and after some kills its checkpoint is damaged. At no
poll may the table hold a coordinate twice, and in the end it holds exactly what the broker has, once.

    python -m tests.e2e.chaos --kills 200 --seed 7
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from pathlib import Path

from confluent_kafka import Producer
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from penstock.dev.broker import Broker
from tests.e2e.kills import command_line, kill_again_and_again, run_to_the_end

TABLE = "bronze.orders"
TOPIC = "chaos.orders-v1"
PROJECT = """\
name: chaos
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 1g}}}}
defaults: {{trigger: 500ms}}
tables:
  bronze.orders:
    from: {{kafka: {topic}, max_per_trigger: 3000}}
"""


class Flow:
    """The producer: a steady stream of records until it is stopped."""

    def __init__(self, bootstrap: str, partitions: int, rate: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._partitions, self._rate = partitions, rate
        self._stop = threading.Event()
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _send(self) -> None:
        while not self._stop.wait(0.05):
            for _ in range(self._rate // 20):
                value = f'{{"n":{self.sent},"pad":"{"x" * (self.sent % 200)}"}}'
                self._producer.produce(TOPIC, key=str(self.sent), value=value, partition=self.sent % self._partitions)
                self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Poller:
    """The concurrent reader: every version that it sees must be free of duplicates, and must only grow."""

    def __init__(self, uri: Path) -> None:
        self._uri = uri
        self._stop = threading.Event()
        self.polls = 0
        self.problems: list[str] = []
        self._rows = 0
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.wait(1.0):
            try:
                rows, doubled = look(self._uri)
            except TableNotFoundError:
                continue
            except Exception as error:
                self.problems.append(f"a reader failed: {error}")
                continue
            self.polls += 1
            if doubled:
                self.problems.append(f"poll {self.polls}: {doubled} coordinates twice")
            if rows < self._rows:
                self.problems.append(f"poll {self.polls}: {self._rows} rows became {rows}")
            self._rows = rows

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def look(uri: Path) -> tuple[int, int]:
    """Rows, and how many of them are one too many."""
    query = "SELECT count(*) AS n, count(DISTINCT concat(topic, '/', partition, '/', \"offset\")) AS d FROM t"
    found = QueryBuilder().register("t", DeltaTable(str(uri))).execute(query).read_all()
    rows, distinct = (int(found.column(i)[0].as_py()) for i in range(2))
    return rows, rows - distinct


def chaos(
    kills: int,
    seed: int,
    partitions: int,
    rate: int,
    shortest: float,
    longest: float,
    folder: Path,
    only: str | None = None,
) -> dict[str, object]:
    random.seed(seed)
    with Broker() as broker:
        broker.create_topic(TOPIC, partitions)
        (folder / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap, topic=TOPIC))
        flow, poller = Flow(broker.bootstrap, partitions, rate), Poller(folder / "lake/bronze/orders")

        def look_at_it(number: int, counts: Counter[str]) -> None:
            print(f"kill {number + 1}/{kills}, {poller.polls} polls, {dict(counts)}", file=sys.stderr, flush=True)
            assert not poller.problems, poller.problems

        try:
            counts = kill_again_and_again(folder, [TABLE], kills, shortest, longest, only, look_at_it)
        finally:
            flow.stop()
        run_to_the_end(folder)
        poller.stop()
        assert not poller.problems, poller.problems
        rows, doubled = look(folder / "lake/bronze/orders")
        assert (rows, doubled) == (flow.sent, 0), f"{rows} rows, {doubled} doubled, {flow.sent} sent"
        commits = len(list((folder / "lake/bronze/orders/_delta_log").glob("*.json")))
        return {"rows": rows, "doubled": doubled, "polls": poller.polls, "commits": commits, **counts}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=200, rate=2000, shortest=1.0, longest=20.0)
