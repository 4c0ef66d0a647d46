"""Random lives of a table, with mistakes put in: `verify` must name each of them, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from penstock.ledger import position
from penstock.storage.stores import LocalStore
from penstock.verify import table as verify_table
from penstock.verify.report import Report
from tests.bronze_table import BronzeTable, Where, all_between, table_plan

Rows = Counter[Where]
TOPIC = "orders"


class Life:
    """Does something to the table, and keeps by plain counting what it holds and what it should hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.table = BronzeTable(table_plan(str(folder / "orders")), {TOPIC: "id"}).genesis({TOPIC: {0: 0, 1: 7}})
        self.holds: Rows = Counter()
        self.should: Rows = Counter()
        self.then: dict[int, tuple[Rows, Rows]] = {}
        self.remember()

    def remember(self) -> None:
        self.then[self.table.version()] = (self.holds.copy(), self.should.copy())

    def at(self) -> position.Offsets:
        assert self.table.last is not None
        return position.parse(self.table.last.after[0])

    def live(self) -> None:
        doing = [self.batch] * 5 + [self.open, self.delete, self.restore, self.append, self.table.carry]
        self.rng.choice(doing)()
        self.remember()

    def batch(self) -> None:
        before = self.at()
        after = {TOPIC: {p: o + self.rng.randrange(90) for p, o in before[TOPIC].items()}}
        rows = all_between(position.dump(before), position.dump(after))
        self.should.update(rows)
        if rows and self.rng.random() < 0.4:
            wrong = self.rng.choice(rows)
            mistake = self.rng.randrange(3)
            if mistake == 0:
                rows.remove(wrong)
            elif mistake == 1:
                rows.append(wrong)
            else:
                rows.append((TOPIC, self.rng.randrange(3), self.rng.randrange(2000)))
        self.holds.update(rows)
        self.table.batch(after, rows)

    def open(self) -> None:
        self.table.open({TOPIC: {p: max(0, o + self.rng.randrange(-60, 60)) for p, o in self.at()[TOPIC].items()}})

    def append(self) -> None:
        rows = [(TOPIC, 0, self.rng.randrange(300)) for _ in range(3)]
        self.holds.update(rows)
        self.table.append(rows)

    def delete(self) -> None:
        low = self.rng.randrange(300)
        gone = Counter({where: n for where, n in self.holds.items() if low <= where[2] < low + 20})
        if gone:
            self.table.delete(f"offset >= {low} AND offset < {low + 20}")
            self.holds -= gone
            self.should -= gone
            self.remember()
            self.table.open(self.at(), "accepted")

    def restore(self) -> None:
        version = self.rng.choice(sorted(self.then))
        if self.then[version][0] != self.holds:
            self.table.restore(version)
            self.holds, self.should = (rows.copy() for rows in self.then[version])
            self.remember()
            self.table.open(self.at(), "accepted")


def found(report: Report) -> dict[str, Counter[tuple[Where, int]]]:
    """By kind: each offset with how often it is there."""
    kinds: dict[str, Counter[tuple[Where, int]]] = {"gap": Counter(), "wrong": Counter(), "unexpected": Counter()}
    for one in report.partitions:
        for start, end in one.unverifiable:
            kinds["gap"].update(((*one.key, o), 0) for o in range(start, end))
        for times in (*one.doubled, *one.short):
            kinds["wrong"].update(((*one.key, o), times.times) for o in range(times.start, times.end))
        for start, end in one.unexpected:
            kinds["unexpected"].update(((*one.key, o), 0) for o in range(start, end))
    return kinds


@pytest.mark.parametrize("seed", range(6))
def test_every_mistake_in_a_random_life_is_named_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(verify_table, "BROKER_TIMEOUT", 0.02)
    life = Life(tmp_path, seed)
    for _ in range(14):
        life.live()
    (report,) = verify_table.verify([life.table.plan], LocalStore())
    holds, should = life.holds, life.should
    assert report.chain is not None and not report.chain.broken
    assert report.rows == holds.total()
    kinds = found(report)
    assert kinds["gap"] == Counter((where, 0) for where, n in should.items() if n and not holds[where])
    assert kinds["unexpected"] == Counter((where, 0) for where, n in holds.items() if n and not should[where])
    assert kinds["wrong"] == Counter((w, n) for w, n in holds.items() if n and should[w] and n != should[w])
