"""The same for three layers: bronze, silver with quarantine and dedupe, exact aggregates, killed at random moments.

In the end every table equals, as a multiset, what one computation over the topic gives. Duplicates are identical
copies, so it does not matter which of them stays. Readers poll meanwhile: no key twice, no group twice, at any time.

    python -m tests.e2e.chaos_layers --kills 100 --seed 7
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.e2e.chaos_frame import Asked, command_line, live_through, set_up
from tests.e2e.producer_and_poller import Poller, Producing
from tests.e2e.tables import ask

TABLES = ("bronze.orders", "silver.orders", "gold.sales")
TOPIC = "orders"
YML = """\
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


class Flow(Producing):
    """Orders of a day, some malformed, some negative, some of tests, some sent again, out of order."""

    def __init__(self, bootstrap: str, rate: int, partitions: int) -> None:
        super().__init__(bootstrap, rate)
        self._partitions, self._random = partitions, random.Random(5)
        self._before: list[bytes] = []

    def send_one(self) -> None:
        self._producer.produce(TOPIC, value=self._record(), partition=self.sent % self._partitions)
        self.sent += 1

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


def check(folder: Path, records: dict[tuple[int, int], bytes]) -> dict[str, int]:
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
    bronze = ask(folder, "bronze.orders", 'SELECT partition, "offset" FROM t')
    assert Counter(bronze) == Counter(list(records)), "bronze"
    quarantine = ask(folder, "silver.orders__quarantine", "SELECT _source['partition'], _source['offset'] FROM t")
    assert Counter(quarantine) == bad, "quarantine"
    silver = ask(folder, "silver.orders", "SELECT id, who, kind, amount FROM t")
    wanted = Counter((r["id"], r["who"], r["kind"], Decimal(str(r["amount"]))) for r in good.values())
    assert Counter((*row[:3], Decimal(row[3]).normalize()) for row in silver) == Counter(
        (*row[:3], row[3].normalize()) for row in wanted.elements()
    ), "silver"
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for record in good.values():
        groups[int(record["ts"][11:13]), record["kind"]].append(record)
    sales = ask(folder, "gold.sales", "SELECT date_part('hour', window_start), kind, orders, revenue, people FROM t")
    assert Counter((int(h), kind, n, Decimal(total), people) for h, kind, n, total, people in sales) == Counter(
        (*key, len(found), sum(Decimal(str(r["amount"])) for r in found), len({r["who"] for r in found}))
        for key, found in groups.items()
    ), "gold"
    return {"bronze": len(bronze), "quarantine": len(quarantine), "silver": len(silver), "gold": len(sales)}


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML) as bootstrap:
        flow = Flow(bootstrap, asked.rate, asked.partitions)
        lived = live_through(asked, TABLES, flow, Poller(asked.folder, ONCE))
        return {**check(asked.folder, consumed(bootstrap, asked.partitions)), **lived}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=100, rate=200, shortest=10.0, longest=45.0)
