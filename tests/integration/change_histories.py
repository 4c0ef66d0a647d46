"""Histories of keys, made at random, and what a merge must make of them, computed in plain Python.

A change is (key, sequence, name, deleted). Changes of one key may have the same sequence: the later one in Kafka wins,
which within a partition is the one with the higher offset.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA = "id BIGINT, part STRING, name STRING, city STRING, seq BIGINT, op STRING"
KEYS = ("id", "part")


@dataclass(frozen=True)
class Change:
    id: int
    part: str
    name: str | None
    city: str | None
    seq: int
    op: str
    place: tuple[int, int] = (0, 0)
    """Partition and offset."""

    @property
    def key(self) -> tuple[int, str]:
        return self.id, self.part

    @property
    def order(self) -> tuple[int, tuple[int, int]]:
        return self.seq, self.place

    def value(self) -> bytes:
        document = {"id": self.id, "part": self.part, "seq": self.seq, "op": self.op}
        if self.op != "d":
            document |= {"name": self.name, "city": self.city}
        return json.dumps(document).encode()


def random_changes(chance: random.Random, keys: int, count: int) -> list[Change]:
    """Inserts, updates, deletes and inserts again of many keys: shuffled, some of them twice, some contradicting."""
    made: list[Change] = []
    clock = dict.fromkeys(range(keys), 0)
    while len(made) < count:
        one = chance.randrange(keys)
        clock[one] += chance.choice((1, 1, 1, 0))  # sometimes the sequence of the change before
        op = chance.choices(("u", "c", "d"), (6, 2, 2))[0]
        made.append(
            Change(one, f"p{one % 3}", f"name {len(made)}", chance.choice((None, "Köln", "São")), clock[one], op)
        )
    made += chance.sample(made, count // 10)
    chance.shuffle(made)
    return made


def send(bootstrap: str, topic: str, changes: Sequence[Change], partitions: int, chance: random.Random) -> list[Change]:
    """To partitions at random; gives them with their places."""
    from confluent_kafka import Producer

    placed: list[Change] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    for change in changes:

        def delivered(error: Any, message: Any, change: Change = change) -> None:
            assert error is None, error
            place = (message.partition(), message.offset())
            placed.append(Change(**{**change.__dict__, "place": place}))

        producer.produce(topic, change.value(), partition=chance.randrange(partitions), on_delivery=delivered)
        producer.poll(0)
    producer.flush(30)
    assert len(placed) == len(changes)
    return placed


def latest(changes: Iterable[Change]) -> dict[tuple[int, str], dict[str, Any]]:
    """scd1: what each living key is in the end."""
    newest: dict[tuple[int, str], Change] = {}
    for change in sorted(changes, key=lambda one: one.order):
        newest[change.key] = change
    return {key: {"name": one.name, "city": one.city, "seq": one.seq} for key, one in newest.items() if one.op != "d"}


def versions(changes: Iterable[Change]) -> set[tuple[Any, ...]]:
    """scd2: (id, part, name, city, valid_from, valid_to, is_current) of every version."""
    winners: dict[tuple[tuple[int, str], int], Change] = {}
    for change in sorted(changes, key=lambda one: one.order):
        winners[(change.key, change.seq)] = change
    by_key: dict[tuple[int, str], list[Change]] = {}
    for change in winners.values():
        by_key.setdefault(change.key, []).append(change)
    found: set[tuple[Any, ...]] = set()
    for events in by_key.values():
        events.sort(key=lambda one: one.seq)
        for index, one in enumerate(events):
            until = events[index + 1].seq if index + 1 < len(events) else None
            if one.op != "d":
                found.add((one.id, one.part, one.name, one.city, one.seq, until, until is None))
    return found
