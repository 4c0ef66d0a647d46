"""Merged tables whose keys, layout and files make it hard to find the row that a change is about."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.histories import Change, latest, random_changes
from tests.integration.merged import Merged, merged_plan

from penstock.engine.merge import merging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VALUES = ["id", "part", "name", "city", "seq", "op"]
KEYS = {
    "decimal": "CAST(concat('12345678901234567890.', lpad(CAST(id AS STRING), 10, '0')) AS DECIMAL(30,10))",
    "long": "9007199254740993 + id",
    "date": "date_add(DATE'1582-09-20', CAST(id AS INT))",  # over the days that the Julian calendar does not have
    "old time": "timestamp_micros(-12219292800000000 - id * 8 * 3600 * 1000000)",
    "close times": "timestamp_micros(1700000000000001 + id * 7)",  # statistics have milliseconds
    "local time": "CAST(timestamp_micros(-2208988800000000 + id * 7) AS TIMESTAMP_NTZ)",
    "long text": "concat(repeat('ä', 40), '😀', chr(65 + id % 5), id)",  # statistics have 32 characters
    "bytes": "CAST(concat('key', id) AS BINARY)",
    "double": "CASE id WHEN 0 THEN DOUBLE('NaN') WHEN 1 THEN IF(seq % 2 = 0, -0.0D, 0.0D) ELSE id / 3 END",
    "struct": "named_struct('a', id, 'b', IF(id % 2 = 0, NULL, 'x'))",
}
"""Expressions for a key made of the id; no two ids have the same."""
COUNT = 48


def firsts() -> list[list[Change]]:
    """Every key once, in order: files that each hold a few of them."""
    made = [Change(one, f"p{one % 3}", f"first {one}", None, 0, "c") for one in range(COUNT)]
    return [made[start : start + COUNT // 2] for start in range(0, COUNT, COUNT // 2)]


def fill(table: Merged, seed: int = 5, batches: int = 1) -> None:
    chance = random.Random(seed)
    for part in firsts():
        table.write(part)
    for _ in range(batches):
        table.write(random_changes(chance, keys=COUNT, count=120))


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_of_any_type_is_found_again(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "_MANY_FILES", 1)
    table = Merged(spark, merged_plan(tmp_path), [f"{KEYS[kind]} AS k", *VALUES])
    fill(table)
    assert table.living() == latest(table.sent)


def test_a_change_that_came_again_from_a_later_place_keeps_its_rank(spark: SparkSession, tmp_path: Path) -> None:
    """Of one key and sequence, in three batches: what the latest place says stands, whichever batch brings it last."""
    said = [
        Change(1, "p", "first", None, 7, "c", place=(0, 5)),
        Change(1, "p", "first", None, 7, "c", place=(2, 1)),
        Change(1, "p", "other", None, 7, "c", place=(1, 9)),
    ]
    for history in ("scd1", "scd2"):
        plan = merged_plan(tmp_path / history, ["id", "part"], history, change_feed=True)
        table = Merged(spark, plan, VALUES)
        for one in said:
            table.write([one])
        assert [row["name"] for row in table.alive()] == ["first"], history
