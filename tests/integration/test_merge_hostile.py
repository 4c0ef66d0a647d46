"""Merged tables whose keys, layout and files make it hard to find the row that a change is about."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged
from penstock.plan.quarantine import tombstones_of
from penstock.tables.columns import settle_columns
from penstock.tables.merge import merge
from penstock.tables.merge.truncate import from_exact_json, to_exact_json
from tests.integration.change_histories import Change, latest, random_changes, versions
from tests.integration.merged_table import Merged, merged_plan
from tests.integration.run_plan import log

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


def _deep_but(names: Iterable[str], *always: str) -> list[Any]:
    """Each case costs seconds: some are enough for every day."""
    return [name if name in always else pytest.param(name, marks=pytest.mark.deep) for name in names]


@pytest.mark.parametrize("kind", _deep_but(KEYS, "close times", "long text"))
def test_a_key_of_any_type_is_found_again(
    kind: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_MANY_FILES", 1)
    table = Merged(spark, merged_plan(tmp_path), [f"{KEYS[kind]} AS k", *VALUES])
    fill(table)
    assert table.living() == latest(table.sent)


@pytest.mark.deep
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


LAYOUTS: dict[str, dict[str, Any]] = {
    "partitioned by a key": {"partition_by": ["k"]},
    "partitioned by a value": {"partition_by": ["city"]},
    "clustered": {"cluster_by": ["id"]},
    "compacted": {"auto_compact": True},
    "rows tracked": {"properties": {"delta.enableRowTracking": "true"}},
    "log checkpointed": {"properties": {"delta.checkpointInterval": "2"}},
}
_PARTS = "element_at(array('a b/ü%41', 'x=y', '#?*:'), CAST(id % 3 AS INT) + 1)"


@pytest.mark.parametrize("layout", _deep_but(LAYOUTS, "partitioned by a key"))
def test_a_table_of_any_layout_is_merged_exactly(layout: str, spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "2")
    keys = ["k", "id"] if layout == "partitioned by a key" else ["id", "part"]
    table = Merged(spark, merged_plan(tmp_path, keys, change_feed=True, **LAYOUTS[layout]), [f"{_PARTS} AS k", *VALUES])
    fill(table, batches=2)
    assert table.living() == latest(table.sent)


@pytest.mark.deep
def test_files_that_others_rewrite_between_batches_are_seen(spark: SparkSession, tmp_path: Path) -> None:
    """The files of a table are known from the batch before, unless somebody else has committed."""
    tables = [Merged(spark, merged_plan(tmp_path / name, ["id", "part"]), VALUES) for name in ("one", "two")]
    chance = random.Random(3)

    def batch(table: Merged) -> None:
        table.write(random_changes(chance, keys=COUNT, count=60))
        assert table.living() == latest(table.sent)

    for table in tables:  # two in one process, by turns
        fill(table)
    one, two = tables
    place = f"delta.`{one.table.uri}`"
    spark.sql(f"OPTIMIZE {place}")
    batch(one)
    batch(two)
    spark.sql(f"REORG TABLE {place} APPLY (PURGE)")
    batch(one)
    batch(one)
    before, sent = len(log(one.table).versions()) - 1, list(one.sent)
    batch(one)
    spark.sql(f"RESTORE TABLE {place} TO VERSION AS OF {before}")
    one.sent = sent
    batch(one)
    shutil.rmtree(one.table.uri)
    shutil.rmtree(tombstones_of(one.table.name, one.table.uri).uri)  # a start of the table moves it aside
    again = Merged(spark, one.table, VALUES)
    for part in firsts():
        again.write(part)
    batch(again)
    batch(two)


@pytest.mark.deep
def test_more_changes_than_a_task_holds_and_many_files(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "_FEW", 10)
    monkeypatch.setattr(merge, "_MANY_FILES", 1)
    keys = ["least", "we`ird.na'me"]
    select = ["id AS least", "part AS `we``ird.na'me`", *VALUES, "map('a', name) AS m"]
    for history in ("scd1", "scd2"):
        table = Merged(spark, merged_plan(tmp_path / history, keys, history, change_feed=True), select)
        fill(table)
        if history == "scd1":
            assert table.living() == latest(table.sent)
        else:
            assert Counter(table.history()) == Counter(versions(table.sent))


def test_a_column_that_is_no_longer_made_keeps_its_history(spark: SparkSession, tmp_path: Path) -> None:
    """Closing a version writes its row again: with all that it had."""
    table = Merged(spark, merged_plan(tmp_path, ["id", "part"], "scd2", schema="evolve"), VALUES)
    table.write([Change(1, "p", "was", "Köln", 1, "c"), Change(2, "p", "stays", "São", 1, "c")])
    changed = ["seq", "id", "part", "concat('new ', name) AS title", "op"]
    table.evolved(merged_plan(tmp_path, ["id", "part"], "scd2", schema="evolve"), changed)
    table.write([Change(1, "p", "is", "Rom", 2, "u")])
    found = {(row["id"], row["seq"]): (row["name"], row["city"], row["title"]) for row in table.alive()}
    assert found == {
        (1, 1): ("was", "Köln", None),
        (1, 2): (None, None, "new is"),
        (2, 1): ("stays", "São", None),
    }


def test_the_table_decides_whether_there_is_a_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    """A property of the table, set when it was made: the project may say otherwise later, and rows of a feed must not
    become rows of the table."""
    table = Merged(spark, merged_plan(tmp_path, ["id", "part"]), VALUES)
    table.write(firsts()[0])
    table.evolved(merged_plan(tmp_path, ["id", "part"], change_feed=True), VALUES)
    table.write([Change(1, "p1", "is", None, 1, "u"), Change(2, "p2", "is", None, 1, "d")])
    assert table.living() == latest(table.sent)
    assert "_change_type" not in spark.read.format("delta").load(table.table.uri).columns
    feed = "ALTER TABLE delta.`{}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = '{}')"
    spark.sql(feed.format(table.table.uri, "true"))
    table.evolved(merged_plan(tmp_path, ["id", "part"]), VALUES)
    version = len(log(table.table).versions())
    table.write([Change(1, "p1", "then", None, 2, "u"), Change(3, "p0", "then", None, 1, "d")])
    assert table.living() == latest(table.sent)
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    told = [(row["_change_type"], row["id"]) for row in reader.load(table.table.uri).where("NOT _deleted").collect()]
    assert sorted(told) == [("delete", 3), ("update_postimage", 1), ("update_preimage", 1)]


def test_a_table_is_merged_as_it_was_made(spark: SparkSession, tmp_path: Path) -> None:
    """By fewer keys two rows of the table would be one, and each change would double it."""
    evolve: dict[str, Any] = {"schema": "evolve"}
    table = Merged(spark, merged_plan(tmp_path, ["id", "part"], **evolve), VALUES)
    table.write(firsts()[0])
    first = table.table
    for keys, history in ((["id"], "scd1"), (["id", "part"], "scd2")):
        with pytest.raises(TableChanged, match=r"was merged scd1 by id, part|its definition makes other columns"):
            table.evolved(merged_plan(tmp_path, keys, history, **evolve), VALUES)
            table.write(firsts()[1])
    wanted = spark.createDataFrame([], "id BIGINT, part STRING, name STRING, city STRING, seq BIGINT").schema
    appended = replace(first, write=replace(first.write, merge=None))
    with pytest.raises(TableChanged, match="its definition makes other columns"):
        settle_columns(spark, appended, wanted)
    assert table.living() == latest(firsts()[0])


def test_a_horizon_is_read_as_it_was_written(spark: SparkSession) -> None:
    """It stands in the ledger as text: rounded, it would be before the change that it is of."""
    values = {
        "s": ("TIMESTAMP_NTZ'2026-01-02 03:04:05.123456'", "timestamp_ntz"),
        "t": ("TIMESTAMP'1789-07-14 03:04:05.000001Z'", "timestamp"),
        "d": ("12345678901234567890.0123456789BD", "decimal(30,10)"),
        "b": ("X'00FF'", "binary"),
    }
    whole = ", ".join(f"'{name}', {value}" for name, (value, _) in values.items())
    ((text,),) = spark.sql(f"SELECT {to_exact_json(f'named_struct({whole})')}").collect()
    back = from_exact_json(text, {name: kind for name, (_, kind) in values.items()})
    same = ", ".join(f"{back}.{name} = {value}" for name, (value, _) in values.items())
    assert tuple(spark.sql(f"SELECT {same}").first() or ()) == (True,) * len(values), text
