"""The same for three layers: bronze, silver with quarantine and dedupe, exact aggregates, killed at random moments.

In the end every table equals, as a multiset, what one computation over the topic gives. Duplicates are identical
copies, so it does not matter which of them stays. Readers poll meanwhile: no key twice, no group twice, at any time.

    python -m tests.e2e.chaos_layers --kills 100 --seed 7
"""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import TableNotFoundError

from penstock.dev.broker import Broker
from tests.e2e.kills import command_line, kill_again_and_again, run_to_the_end

TABLES = ("bronze.orders", "silver.orders", "gold.sales")
TOPIC = "orders"
PROJECT = """\
name: chaos
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 2g}}}}
defaults: {{trigger: 500ms}}
tables:
  bronze.orders:
    from: {{kafka: orders, max_per_trigger: 2000}}
  silver.orders:
    from: {{table: bronze.orders, max_files: 5}}
    decode: {{json: value, schema: "id BIGINT NOT NULL, who STRING, kind STRING, amount DECIMAL(9,2), ts TIMESTAMP"}}
    expect:
      - {{name: positive, check: amount > 0}}
      - {{name: no_tests, check: kind <> 'test', action: drop}}
    dedupe: {{keys: [id]}}
  gold.sales:
    from: {{table: silver.orders, max_files: 3}}
    aggregate:
      keys: [kind]
      window: {{time: ts, every: 1 hour}}
      metrics: {{orders: count(*), revenue: sum(amount), people: count(DISTINCT who)}}
"""
ONCE = {
    "bronze.orders": "SELECT count(*), count(DISTINCT concat(partition, '/', \"offset\")) FROM t",
    "silver.orders": "SELECT count(*), count(DISTINCT id) FROM t",
    "gold.sales": "SELECT count(*), count(DISTINCT concat(window_start, '/', kind)) FROM t",
}


class Flow:
    """Orders of a day, some malformed, some negative, some of tests, some sent again, out of order."""

    def __init__(self, bootstrap: str, partitions: int, rate: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "acks": "all"})
        self._partitions, self._rate, self._random = partitions, rate, random.Random(5)
        self._stop = threading.Event()
        self._before: list[bytes] = []
        self.sent = 0
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    def _record(self) -> bytes:
        chance = self._random.random()
        if chance < 0.15 and self._before:
            return self._random.choice(self._before)
        if chance < 0.18:
            return b'{"id": ' + str(self.sent).encode()
        minute = self._random.randrange(1440)
        record = {
            "id": self.sent,
            "who": f"c{self._random.randrange(40)}",
            "kind": "test" if chance > 0.97 else self._random.choice("abcd"),
            "amount": -1 if 0.95 < chance <= 0.97 else self._random.randrange(1, 10_000) / 100,
            "ts": f"2026-01-01T{minute // 60:02d}:{minute % 60:02d}:00Z",
        }
        made = json.dumps(record).encode()
        self._before.append(made)
        return made

    def _send(self) -> None:
        while not self._stop.wait(0.05):
            for _ in range(self._rate // 20):
                self._producer.produce(TOPIC, value=self._record(), partition=self.sent % self._partitions)
                self.sent += 1
            self._producer.poll(0)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


class Poller:
    def __init__(self, lake: Path) -> None:
        self._lake = lake
        self._stop = threading.Event()
        self.polls = 0
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._stop.wait(1.0):
            for table, query in ONCE.items():
                try:
                    ((rows, distinct),) = ask(self._lake / table.replace(".", "/"), query)
                except TableNotFoundError:
                    continue
                except Exception as error:
                    self.problems.append(f"a reader of {table} failed: {error}")
                    continue
                self.polls += 1
                if rows != distinct:
                    self.problems.append(f"{table}: {rows} rows, {distinct} of them different")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


def ask(table: Path, query: str) -> list[tuple[Any, ...]]:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(query).read_all()
    return list(zip(*(found.column(i).to_pylist() for i in range(found.num_columns)), strict=True))


def consumed(bootstrap: str, partitions: int) -> dict[tuple[int, int], bytes]:
    """All records of the topic, by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    records: dict[tuple[int, int], bytes] = {}
    try:
        for partition in range(partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)
            consumer.assign([TopicPartition(TOPIC, partition, 0)])
            while not records.get((partition, end - 1)) and end:
                for message in consumer.consume(10_000, timeout=5):
                    assert message.error() is None, message.error()
                    records[partition, message.offset()] = message.value()
    finally:
        consumer.close()
    return records


def check(lake: Path, records: dict[tuple[int, int], bytes]) -> dict[str, int]:
    """Every table against one computation over the topic."""
    bad: Counter[tuple[int, int]] = Counter()
    good: dict[int, dict[str, Any]] = {}
    for place, value in records.items():
        try:
            record = json.loads(value)
        except ValueError:
            bad[place] += 1
            continue
        if record["amount"] <= 0:
            bad[place] += 1
        elif record["kind"] != "test":
            good[record["id"]] = record
    bronze = ask(lake / "bronze/orders", 'SELECT partition, "offset" FROM t')
    assert Counter(bronze) == Counter(list(records)), "bronze"
    quarantine = ask(lake / "silver/orders__quarantine", "SELECT _source['partition'], _source['offset'] FROM t")
    assert Counter(quarantine) == bad, "quarantine"
    silver = ask(lake / "silver/orders", "SELECT id, who, kind, amount FROM t")
    wanted = Counter((r["id"], r["who"], r["kind"], Decimal(str(r["amount"]))) for r in good.values())
    assert Counter((*row[:3], Decimal(row[3]).normalize()) for row in silver) == Counter(
        (*row[:3], row[3].normalize()) for row in wanted.elements()
    ), "silver"
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for record in good.values():
        groups[int(record["ts"][11:13]), record["kind"]].append(record)
    sales = ask(lake / "gold/sales", "SELECT date_part('hour', window_start), kind, orders, revenue, people FROM t")
    assert Counter((int(h), kind, n, Decimal(total), people) for h, kind, n, total, people in sales) == Counter(
        (*key, len(found), sum(Decimal(str(r["amount"])) for r in found), len({r["who"] for r in found}))
        for key, found in groups.items()
    ), "gold"
    return {"bronze": len(bronze), "quarantine": len(quarantine), "silver": len(silver), "gold": len(sales)}


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
        (folder / "penstock.yml").write_text(PROJECT.format(bootstrap=broker.bootstrap))
        flow, poller = Flow(broker.bootstrap, partitions, rate), Poller(folder / "lake")

        def look_at_it(number: int, counts: Counter[str]) -> None:
            print(f"kill {number + 1}/{kills}, {poller.polls} polls, {dict(counts)}", file=sys.stderr, flush=True)
            assert not poller.problems, poller.problems

        try:
            counts = kill_again_and_again(folder, TABLES, kills, shortest, longest, only, look_at_it)
        finally:
            flow.stop()
        run_to_the_end(folder)
        poller.stop()
        assert not poller.problems, poller.problems
        found = check(folder / "lake", consumed(broker.bootstrap, partitions))
        return {**found, "polls": poller.polls, **counts}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=100, rate=200, shortest=10.0, longest=45.0)
