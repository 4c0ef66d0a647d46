"""What a batch of changes comes to, beside a replay in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from penstock.sinks.base import DELETED, REJECTION, net_changes
from penstock.sources.columns import CHANGE, TIME, VERSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = f"a INT, b STRING, v INT, {CHANGE} STRING, {VERSION} BIGINT, {TIME} TIMESTAMP"
THEN = datetime(2026, 1, 1, tzinfo=UTC)
Change = tuple[Any, Any, Any, str, int]


def effect(spark: SparkSession, changes: list[Change]) -> Counter[tuple[Any, ...]]:
    rows = spark.createDataFrame([(*change, THEN) for change in changes], SCHEMA)
    found = net_changes(rows.repartition(3), ["a", "b"])
    assert set(found.columns) == {"a", "b", "v", VERSION, TIME, DELETED, REJECTION}
    return Counter(
        (row.a, row.b, None if row[DELETED] else row.v, row[VERSION], row[DELETED], row[REJECTION])
        for row in found.collect()
    )


def test_the_last_version_of_a_key_decides_and_what_is_there_at_its_end(spark: SparkSession) -> None:
    changes = [
        (1, "x", 1, "insert", 1),
        (1, "x", 1, "update_preimage", 2),
        (1, "x", 2, "update_postimage", 2),
        (2, "x", 1, "insert", 1),
        (2, "x", 1, "delete", 3),
        (3, "x", 1, "delete", 2),  # deleted and inserted again by an overwrite
        (3, "x", 9, "insert", 2),
        (4, "x", 5, "update_preimage", 4),  # an update that gives the row another key
        (5, "x", 5, "update_postimage", 4),
        (None, "x", 1, "insert", 1),
        (None, "x", 1, "insert", 2),
        (None, "x", 1, "delete", 2),
        (6, None, 1, "update_postimage", 2),
        (7, "x", 1, "insert", 2),
        (7, "x", 2, "insert", 2),
        (7, "x", 3, "insert", 1),
    ]
    found = effect(spark, changes)
    ambiguous = [one for one in found if one[5] == "ambiguous_key"]
    assert [(one[0], one[3]) for one in ambiguous] == [(7, 2)]
    assert found - Counter(ambiguous) == Counter(
        [
            (1, "x", 2, 2, False, None),
            (2, "x", None, 3, True, None),
            (3, "x", 9, 2, False, None),
            (4, "x", None, 4, True, None),
            (5, "x", 5, 4, False, None),
            (None, "x", 1, 1, False, "null_key"),
            (None, "x", 1, 2, False, "null_key"),
            (6, None, 1, 2, False, "null_key"),
        ]
    )


def test_random_histories_come_to_what_the_table_holds(spark: SparkSession) -> None:
    chance = random.Random(5)
    table: dict[tuple[int, str], int] = {}
    changes: list[Change] = []
    touched: dict[tuple[int, str], int] = {}
    for version in range(1, 60):
        for key in {(chance.randrange(40), chance.choice("xy")) for _ in range(chance.randrange(12))}:
            old, new = table.get(key), chance.randrange(1000)
            how = chance.choice(["set", "delete", "rewrite"])
            if how == "delete" and old is not None:
                changes.append((*key, old, "delete", version))
                del table[key]
            elif old is None:
                changes.append((*key, new, "insert", version))
                table[key] = new
            else:
                kinds = ("update_preimage", "update_postimage") if how == "set" else ("delete", "insert")
                changes += [(*key, old, kinds[0], version), (*key, new, kinds[1], version)]
                table[key] = new
            touched[key] = version
    chance.shuffle(changes)
    expected = Counter((*key, table.get(key), version, key not in table, None) for key, version in touched.items())
    assert effect(spark, changes) == expected
