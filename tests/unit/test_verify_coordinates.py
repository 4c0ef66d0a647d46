from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from penstock.ledger.spans import Spans
from penstock.verify import coordinates
from penstock.verify.coordinates import Coordinates, landed, read_coordinates
from tests.bronze_table import BronzeTable, Where, table_plan

RENAMED = {"value": "payload", "topic": 'the "topic"', "partition": "Part Nr", "offset": "select"}


def made(folder: Path, *commits: list[Where], columns: dict[str, str] | None = None) -> BronzeTable:
    table = BronzeTable(table_plan(str(folder / "orders"), columns=columns)).genesis({"orders": {0: 0}})
    for rows in commits:
        table.append(rows)
    return table


def read(table: BronzeTable, within: dict[tuple[str, int], Spans] | None = None) -> Coordinates:
    return read_coordinates(table.table(), landed(table.plan.columns), within or {})


def counted(found: Coordinates) -> Counter[Where]:
    offsets: Counter[Where] = Counter()
    for (topic, partition), levels in found.levels().items():
        for level in levels:
            offsets.update((topic, partition, o) for start, end in level for o in range(start, end))
    return offsets


def some_rows(seed: int, count: int = 3000) -> list[Where]:
    rng = random.Random(seed)
    return [(rng.choice(["orders", "o'clock", "ä.b-c"]), rng.randrange(3), rng.randrange(1500)) for _ in range(count)]


@pytest.mark.parametrize("columns", [None, RENAMED])
def test_every_offset_comes_out_as_often_as_it_is_there(tmp_path: Path, columns: dict[str, str] | None) -> None:
    rows = some_rows(1)
    found = read(made(tmp_path, rows[:1000], rows[1000:], columns=columns))
    assert counted(found) == Counter(rows)
    assert found.rows == 3000


def test_a_table_read_in_slices_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(2) + [("orders", 0, 9_000_000)] * 3 + [("orders", 0, -7)]
    table = made(tmp_path, rows)
    monkeypatch.setattr(coordinates, "OFFSETS_PER_SLICE", 1920)
    monkeypatch.setattr(coordinates, "OFFSETS_PER_RECOUNT", 400)
    within = {("orders", p): Spans([(100, 1500)]) for p in range(3)}
    assert len(coordinates._slices(within)) > 2
    assert counted(read(table, within)) == Counter(rows)


def test_one_long_partition_among_many_short_ones_makes_few_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinates, "OFFSETS_PER_SLICE", 1000)
    within = {("short", p): Spans([(0, 10)]) for p in range(500)} | {("long", 0): Spans([(5, 20_000)])}
    slices = coordinates._slices(within)
    assert (slices[0][0], slices[-1][1]) == (None, None)
    assert [high for _, high in slices[:-1]] == [low for low, _ in slices[1:]]
    assert 20 < len(slices) < 30


def test_rows_without_coordinates_are_counted_apart(tmp_path: Path) -> None:
    strangers = [(None, 0, 5), ("orders", None, 5), ("orders", 0, None), (None, None, None)]
    found = read(made(tmp_path, [("orders", 0, 5), *strangers]))  # type: ignore[list-item]
    assert found.without == 4
    assert counted(found) == Counter([("orders", 0, 5)])


def test_deleted_and_compacted_rows_are_seen_as_they_are_now(tmp_path: Path) -> None:
    table = made(tmp_path, [("orders", 0, o) for o in range(100)], [("orders", 0, o) for o in range(100, 200)])
    table.delete("offset % 50 = 7")
    table.table().optimize.compact()
    assert list(read(table).present["orders", 0]) == [(0, 7), (8, 57), (58, 107), (108, 157), (158, 200)]


def test_an_empty_table_has_no_coordinates(tmp_path: Path) -> None:
    assert read(made(tmp_path)) == Coordinates()


def test_stretches_of_equally_doubled_offsets_come_as_one(tmp_path: Path) -> None:
    rows = [("orders", 0, o) for o in range(1000)]
    found = read(made(tmp_path, rows, rows[200:700], rows[300:301]))
    assert [(r.start, r.end, r.times) for r in found.repeated["orders", 0]] == [
        (200, 300, 2),
        (300, 301, 3),
        (301, 700, 2),
    ]
