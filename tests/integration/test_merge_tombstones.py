"""Whoever reads a merged table sees living rows only; a table beside it remembers which were deleted."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Fenced, Terminal
from penstock.ledger.head import read_head
from penstock.operations import prepare as table_module
from penstock.operations.status import status
from penstock.plan.merge import TOMBSTONES_PROPERTY
from penstock.plan.quarantine import tombstones_of
from penstock.storage.stores import LocalStore
from penstock.tables.merge.row_exchange import Exchange
from penstock.tables.merge.tombstones import TombstoneTable
from penstock.verify.recompute.run import run_checks_in
from penstock.verify.table import verify
from tests.integration.change_histories import SCHEMA, Change, latest, random_changes, send, versions
from tests.integration.merged_table import Merged, merged_plan
from tests.integration.run_plan import log, make_plan, rows, rows_at, run, run_well, whole_chain
from tests.integration.run_replays import replayed
from tests.integration.test_rewind import rewound
from tests.integration.test_without_locks import by_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan

FIRST = [Change(one, "p", f"first {one}", None, 1, "c") for one in range(40)]
GONE = [Change(one, "p", None, None, 5, "d") for one in range(0, 40, 3)]
LATE = [Change(0, "p", "late", None, 3, "u"), Change(1, "p", "newer", None, 7, "u")]
MERGE = {"keys": ["id", "part"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}
KINDS = [("scd2", False), ("scd1", True)]


def _table(topic: str, **merge: Any) -> dict[str, Any]:
    return {
        "from": {"kafka": topic, "starting": "earliest"},
        "decode": {"json": "value", "schema": SCHEMA},
        "write": {"merge": {**MERGE, **merge}, "change_feed": True},
    }


def _state(plan: Plan, name: str) -> dict[tuple[int, str], dict[str, Any]]:
    found = rows(plan, name)
    assert not any(row["_deleted"] for row in found), "a reader would see deleted rows"
    return {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in found}


def _tombstones(plan: Plan, name: str) -> list[tuple[int, int]]:
    """Key and sequence of each."""
    table = plan.table(name)
    assert table is not None
    return sorted((row["id"], row["_sequence"]) for row in rows_at(tombstones_of(table.name, table.uri).uri))


@pytest.mark.deep
def test_old_tombstones_go_at_the_next_start_and_the_tables_stay_as_they_are(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    chance = random.Random(1)
    broker.create_topic("purged", 2)
    tables = {
        "silver.c": _table("purged", keep_deleted="1s"),
        "silver.young": _table("purged"),
        "silver.copy": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "write": {"merge": {}}},
    }
    plan = make_plan(tmp_path, broker.bootstrap, tables)
    sent = send(broker.bootstrap, "purged", FIRST, 2, chance)
    run_well(spark, plan)
    sent += send(broker.bootstrap, "purged", GONE, 2, chance)
    run_well(spark, plan)
    assert _tombstones(plan, "silver.c") == _tombstones(plan, "silver.young") == [(one.id, 5) for one in GONE]

    time.sleep(1.1)
    run_well(spark, plan)
    assert (_tombstones(plan, "silver.c"), len(_tombstones(plan, "silver.young"))) == ([], len(GONE))
    assert all(_state(plan, name) == latest(sent) for name in tables)
    assert [one.lag for one in status(plan, plan.tables, LocalStore())] == [0, 0, 0]

    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    silver = plan.table("silver.c")
    assert silver is not None
    told = feed.load(silver.uri).groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in told} == {"insert": len(FIRST), "delete": len(GONE)}

    send(broker.bootstrap, "purged", LATE, 2, chance)  # only the young tombstone knows that one is from before a delete
    run_well(spark, plan)
    assert (0, "p") not in _state(plan, "silver.young")
    assert _state(plan, "silver.c")[(0, "p")]["name"] == _state(plan, "silver.copy")[(0, "p")]["name"] == "late"
    whole_chain(plan, "silver.c")


def test_a_batch_that_was_cut_off_leaves_no_tombstone_of_a_delete_that_never_was(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tombstones are written first. If the definition then says that it was no delete, they must not count."""
    chance = random.Random(2)
    broker.create_topic("cut", 2)
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("cut")})
    sent = send(broker.bootstrap, "cut", FIRST, 2, chance)
    run_well(spark, plan)
    sent += send(broker.bootstrap, "cut", GONE, 2, chance)

    with monkeypatch.context() as patched:
        patched.setattr("penstock.tables.merge.tombstones.TombstoneTable.add", _then_die(TombstoneTable.add))
        assert run(spark, plan).errors
    assert len(_tombstones(plan, "silver.c")) == len(GONE)
    assert len(_state(plan, "silver.c")) == len(FIRST), "nothing was deleted yet"

    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("cut", delete_when="op = 'x'")})
    run_well(spark, plan)
    assert _tombstones(plan, "silver.c") == []
    assert len(_state(plan, "silver.c")) == len(FIRST)

    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("cut")})
    sent += send(broker.bootstrap, "cut", LATE, 2, chance)
    run_well(spark, plan)
    sent += send(broker.bootstrap, "cut", [Change(one.id, "p", None, None, 8, "d") for one in GONE], 2, chance)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.tables.merge.tombstones.TombstoneTable.add", _then_die(TombstoneTable.add))
        assert run(spark, plan).errors
    run_well(spark, plan)
    assert _tombstones(plan, "silver.c") == [(one.id, 8) for one in GONE], "each once"
    assert _state(plan, "silver.c") == {key: row for key, row in latest(sent).items() if row["name"] is not None}


def _then_die(add: Any) -> Any:
    def added(self: TombstoneTable, *args: Any, **more: Any) -> None:
        add(self, *args, **more)
        raise RuntimeError("the process ends here")

    return added


def _dies_after_removal(self: Exchange, *given: Any, does: Any = Exchange.commit, seen: bool = True) -> int:
    version = does(self, *given, seen=seen)
    if not seen:
        raise RuntimeError("the process ends here")
    return int(version)


@pytest.mark.parametrize("history", ["scd1", pytest.param("scd2", marks=pytest.mark.deep)])
def test_a_table_made_before_is_migrated_at_its_next_start(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: str
) -> None:
    chance, topic = random.Random(3), f"migrated-{history}"
    broker.create_topic(topic, 2)
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table(topic, history=history)})
    sent = send(broker.bootstrap, topic, [*FIRST, *GONE], 2, chance)
    run_well(spark, plan)
    _as_before(spark, plan.tables[0])
    assert sum(row["_deleted"] for row in rows(plan, "silver.c")) == len(GONE)

    with monkeypatch.context() as patched:  # cut off when the tombstones are written
        patched.setattr(TombstoneTable, "add", _then_die(TombstoneTable.add))
        assert run(spark, plan).errors
    assert sum(row["_deleted"] for row in rows(plan, "silver.c")) == len(GONE), "they are still where they were"
    with monkeypatch.context() as patched:  # and when they are gone from the table
        patched.setattr(Exchange, "commit", _dies_after_removal)
        run(spark, plan)
    heard = run_well(spark, plan)
    assert not any(row["_deleted"] for row in rows(plan, "silver.c"))
    assert _tombstones(plan, "silver.c") == [(one.id, 5) for one in GONE]
    assert not heard.heard("tombstones moved"), "they had been, before the second kill"

    sent += send(broker.bootstrap, topic, LATE, 2, chance)
    run_well(spark, plan)
    if history == "scd1":
        assert _state(plan, "silver.c") == latest(sent)
    else:
        columns = ("id", "part", "name", "city", "valid_from", "valid_to", "is_current")
        assert {tuple(row[column] for column in columns) for row in rows(plan, "silver.c")} == versions(sent)
    whole_chain(plan, "silver.c")


def _as_before(spark: SparkSession, table: TablePlan) -> None:
    """The table as earlier versions of Penstock made it: tombstones are rows of it, and nothing lies beside it."""
    import shutil

    place = tombstones_of(table.name, table.uri)
    dead = spark.read.format("delta").load(place.uri).drop("generation", "batch")
    schema = spark.read.format("delta").load(table.uri).schema
    whole = spark.createDataFrame([], schema).unionByName(dead, allowMissingColumns=True)
    whole = whole.selectExpr(*(f"true AS {n}" if n == "_deleted" else n for n in schema.names))
    if "is_current" in schema.names:
        whole = whole.selectExpr(*(f"false AS {n}" if n == "is_current" else n for n in schema.names))
    whole.write.format("delta").mode("append").option("dataChange", "false").save(table.uri)
    spark.sql(f"ALTER TABLE delta.`{table.uri}` UNSET TBLPROPERTIES ('{TOMBSTONES_PROPERTY}')")
    shutil.rmtree(place.uri.removeprefix("file://"))


@pytest.mark.deep
def test_a_table_that_goes_back_has_the_tombstones_of_then(spark: SparkSession, broker: Any, tmp_path: Path) -> None:
    chance = random.Random(4)
    broker.create_topic("back", 2)
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("back")})
    early, late = GONE[:5], GONE[5:]
    sent = send(broker.bootstrap, "back", [*FIRST, *early], 2, chance)
    run_well(spark, plan)
    before, version = _state(plan, "silver.c"), log(plan.tables[0]).versions()[-1]
    sent += send(broker.bootstrap, "back", late, 2, chance)
    run_well(spark, plan)
    assert len(_tombstones(plan, "silver.c")) == len(GONE)

    rewound(spark, plan, "silver.c", version)
    assert _state(plan, "silver.c") == before
    assert _tombstones(plan, "silver.c") == [(one.id, 5) for one in early]
    sent += send(broker.bootstrap, "back", LATE, 2, chance)
    run_well(spark, plan)
    assert _state(plan, "silver.c") == latest(sent)
    assert len(_tombstones(plan, "silver.c")) == len(GONE)

    beside = tombstones_of("silver.c", plan.tables[0].uri).uri
    spark.sql(f"OPTIMIZE delta.`{beside}`")
    kept = {Path(one).name for one in spark.read.format("delta").load(beside).inputFiles()}
    for file in Path(beside).glob("*.parquet"):
        if file.name not in kept:
            file.unlink()
    with pytest.raises(Terminal, match="c__tombstones are no longer there"):
        rewound(spark, plan, "silver.c", version)
    assert len(_tombstones(plan, "silver.c")) == len(GONE)


@pytest.mark.deep
@pytest.mark.parametrize("history", ["scd1", "scd2"])
def test_batches_of_changes_in_any_order_give_the_same_whatever_was_deleted_between(
    spark: SparkSession, tmp_path: Path, history: str
) -> None:
    chance = random.Random(5)
    plan = merged_plan(tmp_path, ["id", "part"], history)
    table = Merged(spark, plan, ["id", "part", "name", "city", "seq", "op"])
    changes = random_changes(chance, 12, 120)
    for start in range(0, len(changes), 30):
        table.write(changes[start : start + 30])
    if history == "scd1":
        assert table.living() == latest(table.sent)
    else:
        assert set(table.history()) == versions(table.sent)


def test_only_files_that_can_hold_the_keys_are_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    plan = merged_plan(tmp_path, ["id", "part"])
    table = Merged(spark, plan, ["id", "part", "name", "city", "seq", "op"])
    table.write(FIRST)
    for start in (0, 5):
        table.write(GONE[start : start + 5])
    place = tombstones_of(plan.name, plan.uri)
    dead = Exchange(spark, place.uri)
    ranges = spark.range(1).selectExpr("array(struct(30L AS low, 39L AS high)) AS id")._jdf.first()
    assert (dead.files, dead.select_files(None), dead.select_files(ranges)) == (2, 2, 0)
    tail = read_head(log(plan))
    assert tail is not None
    table.tombstones.drop_old(tail.entry)
    assert len(rows_at(place.uri)) == 10, "none is old enough"


@pytest.mark.deep
def test_tombstones_follow_keys_and_sequences_that_are_widened(spark: SparkSession, tmp_path: Path) -> None:
    plan = merged_plan(tmp_path, ["id", "part"], schema="evolve")
    narrow = ["CAST(id AS INT) AS id", "part", "name", "city", "CAST(seq AS INT) AS seq", "op"]
    table = Merged(spark, plan, narrow)
    table.write(FIRST)
    table.write(GONE)
    table.evolved(plan, ["id", "part", "name", "city", "seq", "op"])
    more = Change(2**40, "p", "large", None, 2**40, "c")
    table.write([*LATE, more])
    table.write([Change(2**40, "p", None, None, 2**41, "d"), Change(0, "p", "late", None, 4, "u")])
    table.write([Change(2**40, "p", "late", None, 2**40 + 1, "u")])
    living = spark.read.format("delta").load(plan.uri).collect()  # delta-rs reads no table that was widened
    made = {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in living}
    assert (made, len(living)) == (latest(table.sent), len(made))
    dead = spark.read.format("delta").load(tombstones_of(plan.name, plan.uri).uri).collect()
    assert {row["id"]: row["_sequence"] for row in dead} == {**{one.id: 5 for one in GONE}, 2**40: 2**41}


@pytest.mark.parametrize(
    ("history", "ignore_nulls"), [("scd1", False), *(pytest.param(*one, marks=pytest.mark.deep) for one in KINDS)]
)
def test_sequences_and_values_may_be_structs_that_forbid_null_and_have_any_names(
    spark: SparkSession, tmp_path: Path, history: str, ignore_nulls: bool
) -> None:
    """As the sequence of a table that follows changes is: (version, kind of change)."""
    merge = {"history": history, "ignore_null_updates": ignore_nulls}
    plan = merged_plan(tmp_path, ["id", "part"], merge=merge, change_feed=True)
    assert plan.write.merge is not None
    plan = replace(plan, write=replace(plan.write, merge=replace(plan.write.merge, truncate="op = 't'")))
    numbered = "named_struct('the-`number`', seq, 'kind:of', 1) AS seq"
    table = Merged(spark, plan, ["id", "part", "named_struct('a-b', name, 'c', 1) AS name", "city", numbered, "op"])
    table.write(FIRST)
    table.write(GONE[:5])
    table.write([*GONE[3:], Change(0, "p", "late", None, 3, "u"), Change(3, "p", "back", None, 9, "c")])
    table.write([Change(3, "p", None, None, 10, "d"), Change(1, "p", None, None, 10, "d")])
    dead = {one.id for one in GONE} | {1}
    assert {row["id"] for row in table.alive() if row.get("is_current", True)} == {*range(40)} - dead
    assert {row["id"] for row in rows_at(tombstones_of(plan.name, plan.uri).uri)} == dead
    table.write([Change(0, "p", None, None, 50, "t"), Change(2, "p", "after", None, 51, "c")])
    assert {row["id"] for row in table.alive() if row.get("is_current", True)} == {2}


@pytest.mark.deep
def test_on_an_object_store_tombstones_are_written_also_where_no_batch_was(
    spark: SparkSession, broker: Any, tmp_path: Path
) -> None:
    """By a start after one that read nothing, for a table made before; and by a replay before the first run."""
    chance = random.Random(6)
    broker.create_topic("remote", 2)
    whole = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("remote")})
    never = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("remote", delete_when=None)})
    sent = send(broker.bootstrap, "remote", [*FIRST, *GONE], 2, chance)
    run_well(spark, by_uri(never))
    assert len(_state(never, "silver.c")) == len(FIRST)
    replayed(spark, whole, "silver.c", remote=True)
    assert _tombstones(whole, "silver.c") == [(one.id, 5) for one in GONE]

    run_well(spark, by_uri(whole))
    _as_before(spark, whole.tables[0])
    assert run_well(spark, by_uri(whole)).heard("tombstones moved")
    assert _tombstones(whole, "silver.c") == [(one.id, 5) for one in GONE]
    sent += send(broker.bootstrap, "remote", LATE, 2, chance)
    run_well(spark, by_uri(whole))
    assert _state(whole, "silver.c") == latest(sent)


@pytest.mark.deep
def test_a_process_that_takes_over_leaves_the_tombstones_of_a_batch_that_is_committed_meanwhile(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has read the end of the ledger when this one has written its tombstones and not yet its batch."""
    chance = random.Random(7)
    broker.create_topic("live", 2)
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("live")})
    sent = send(broker.bootstrap, "live", FIRST, 2, chance)
    run_well(spark, by_uri(plan))
    sent += send(broker.bootstrap, "live", GONE, 2, chance)
    added, goes_on, first = threading.Event(), threading.Event(), []

    def add(self: TombstoneTable, *given: Any, does: Any = TombstoneTable.add, **more: Any) -> None:
        does(self, *given, **more)
        added.set()
        assert goes_on.wait(60)

    monkeypatch.setattr(TombstoneTable, "add", add)
    runner = threading.Thread(target=lambda: first.append(run(spark, by_uri(plan))))
    runner.start()
    assert added.wait(60)

    def opened(*given: Any, does: Any = table_module.open_generation, **more: Any) -> Any:
        goes_on.set()
        runner.join(60)
        return does(*given, **more)

    monkeypatch.setattr(table_module, "open_generation", opened)
    run(spark, by_uri(plan))
    monkeypatch.undo()
    run_well(spark, by_uri(plan))
    assert not first[0].errors
    assert _tombstones(plan, "silver.c") == [(one.id, 5) for one in GONE]
    sent += send(broker.bootstrap, "live", LATE, 2, chance)
    run_well(spark, by_uri(plan))
    assert _state(plan, "silver.c") == latest(sent)
    whole_chain(plan, "silver.c")


@pytest.mark.deep
def test_without_locks_a_runner_that_was_replaced_writes_no_tombstone(
    spark: SparkSession, broker: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And those that it had written, of a batch that another process has written since, are there once."""
    chance = random.Random(8)
    broker.create_topic("replaced", 2)
    plan = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("replaced")})
    sent = send(broker.bootstrap, "replaced", FIRST, 2, chance)
    run_well(spark, by_uri(plan))
    sent += send(broker.bootstrap, "replaced", GONE, 2, chance)
    with monkeypatch.context() as patched:
        patched.setattr(TombstoneTable, "add", _then_die(TombstoneTable.add))
        assert run(spark, by_uri(plan)).errors
    assert len(_tombstones(plan, "silver.c")) == len(GONE)
    tail = read_head(log(plan.tables[0]))
    assert tail is not None
    old = TombstoneTable(spark, LocalStore(), plan.tables[0], idempotent=True)
    changed = make_plan(tmp_path, broker.bootstrap, {"silver.c": _table("replaced", delete_when="op = 'x'")})
    run_well(spark, by_uri(changed))
    assert _tombstones(plan, "silver.c") == []
    dead = spark.read.format("delta").option("versionAsOf", old.log.versions()[1]).load(old.uri)
    with pytest.raises(Fenced):
        old.add(dead, replace(tail.entry, kind="batch", batch=tail.entry.batch + 1))
    assert _tombstones(plan, "silver.c") == []


@pytest.mark.deep
def test_a_history_that_follows_changes_takes_deletes_in_more_than_one_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its sequence is a struct, of which one field cannot be NULL; in tombstones that are read again it can."""
    place = str(tmp_path / "followed")
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true, delta.enableInCommitTimestamps = true)"
    spark.sql(f"CREATE TABLE delta.`{place}` (id BIGINT, name STRING) USING delta {feed}")
    merge = {"keys": ["id"], "history": "scd2"}
    source = {"changes": place, "starting": {"version": 0}}
    plan = make_plan(tmp_path, "127.0.0.1:1", {"silver.past": {"from": source, "write": {"merge": merge}}})
    spark.sql(f"INSERT INTO delta.`{place}` VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    for gone in ("1, 3", "2"):
        spark.sql(f"DELETE FROM delta.`{place}` WHERE id IN ({gone})")
        run_well(spark, plan)
    current = {row["id"]: row["is_current"] for row in rows(plan, "silver.past")}
    assert current == {1: False, 2: False, 3: False, 4: True}
    dead = rows_at(tombstones_of("silver.past", plan.tables[0].uri).uri)
    assert {row["id"]: row["_sequence"]["version"] for row in dead} == {1: 2, 2: 3, 3: 2}
    (report,) = verify(plan.tables, LocalStore(), known=plan.tables)
    run_checks_in(spark, plan, [(plan.tables[0], report)], LocalStore())
    checks = [(one.name, one.outcome, one.compared) for one in report.checks]
    assert (report.verdict, checks) == ("complete", [("merge", "same", 4), ("tombstones", "same", 3)])
