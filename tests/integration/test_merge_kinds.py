"""Changes that leave values out, truncates, full extracts, numbers that follow changes."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal
from penstock.ledger.entry import dump
from penstock.storage.stores import LocalStore
from penstock.verify.recompute.run import run_checks_in
from penstock.verify.report import Report
from penstock.verify.table import verify
from tests.integration.change_histories import SCHEMA, Change, random_changes, send
from tests.integration.run_plan import log, rows, run, run_well
from tests.integration.test_merge_random import MERGE, living

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan


def patched(changes: Iterable[Change]) -> dict[tuple[int, str], dict[str, Any]]:
    """The last value of each column that was not null, since the last delete."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for change in sorted(changes, key=lambda one: one.order):
        if change.op == "d":
            found.pop(change.key, None)
            continue
        state = found.setdefault(change.key, {"name": None, "city": None, "seq": None})
        given = {"name": change.name, "city": change.city, "seq": change.seq}
        state |= {name: value for name, value in given.items() if value is not None}
    return found


def test_a_null_keeps_the_value_that_is_there_whatever_the_order_of_arrival(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    chance = random.Random(7)
    name = topic(3)
    merge = {**MERGE, "ignore_null_updates": True}
    table = {"from": {"kafka": name, "max_per_trigger": 500}, "decode": {"json": "value", "schema": SCHEMA}}
    plan = project(
        {
            "silver.c": {**table, "write": {"merge": merge, "change_feed": True}},
            "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        }
    )
    sent: list[Change] = []
    for keys in (40, 150):
        changes = [
            Change(**{**one.__dict__, "name": chance.choice((None, one.name))})
            for one in random_changes(chance, keys, 700)
        ]
        sent += send(broker.bootstrap, name, changes, 3, chance)
        run_well(spark, plan)
        assert living(plan, "silver.c") == patched(sent)
        assert living(plan, "silver.copy") == patched(sent)


def envelope(op: str, lsn: int, row: dict[str, Any] | None) -> bytes:
    source = {"connector": "postgresql", "lsn": lsn, "sequence": f'["{lsn - 1}","{lsn}"]', "ts_us": lsn * 1_000_000}
    image = {"before": row, "after": None} if op in "dt" else {"before": None, "after": row}
    return json.dumps({**image, "op": op, "source": source, "ts_ms": lsn * 1000}).encode()


def put(broker: Broker, topic: str, *records: tuple[str, int, int | None, str | None]) -> None:
    """(op, lsn, id, name)"""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for op, lsn, number, name in records:
        row = None if number is None else {"id": number, "name": name}
        producer.produce(topic, envelope(op, lsn, row), json.dumps({"id": number}).encode(), partition=0)
    producer.flush(30)


def test_a_truncate_ends_every_row_and_what_comes_late_stays_ended(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    name = topic(1)
    table = {"from": {"kafka": name}, "decode": {"debezium": "value", "schema": "id BIGINT NOT NULL, name STRING"}}
    plan = project(
        {
            "silver.c": {**table, "write": {"merge": {"keys": ["id"]}, "change_feed": True}},
            "silver.h": {**table, "write": {"merge": {"keys": ["id"], "history": "scd2"}}},
            "silver.n": {**table, "write": {"merge": {"keys": ["id"], "ignore_null_updates": True}}},
            "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        }
    )

    def names(table: str) -> dict[int, str]:
        return {row["id"]: row["name"] for row in rows(plan, table) if not row["_deleted"]}

    def versions() -> set[tuple[Any, ...]]:
        found = (row for row in rows(plan, "silver.h") if not row["_deleted"])
        return {
            (row["id"], row["name"], _second(row["valid_from"]), _second(row["valid_to"]), row["is_current"])
            for row in found
        }

    put(broker, name, ("c", 10, 1, "one"), ("c", 11, 2, "two"), ("c", 12, 3, "three"))
    run_well(spark, plan)
    put(broker, name, ("u", 20, 2, "two!"), ("t", 30, None, None), ("c", 40, 3, "three again"))
    run_well(spark, plan)
    for table in ("silver.c", "silver.n", "silver.copy"):
        assert names(table) == {3: "three again"}, table
    put(broker, name, ("c", 15, 9, "late"), ("u", 25, 1, "late"), ("c", 50, 1, "new"), ("u", 45, 3, "3!"))
    run_well(spark, plan)
    for table in ("silver.c", "silver.n", "silver.copy"):
        assert names(table) == {1: "new", 3: "3!"}, table
    assert versions() == {
        (1, "one", 10, 25, False),
        (1, "late", 25, 30, False),  # what comes late was valid until then
        (9, "late", 15, 30, False),
        (2, "two", 11, 20, False),
        (2, "two!", 20, 30, False),
        (3, "three", 12, 30, False),
        (3, "three again", 40, 45, False),
        (3, "3!", 45, None, True),
        (1, "new", 50, None, True),
    }


def until_truncated(sent: Iterable[tuple[str, int, int | None, str | None]]) -> set[tuple[Any, ...]]:
    """Every version is valid until the next change of its row, or the next truncate."""
    found = set()
    for op, lsn, number, name in sent:
        if op not in "td":
            until = min(
                (at for what, at, other, _ in sent if at > lsn and (what == "t" or other == number)), default=None
            )
            found.add((number, name, lsn, until, until is None))
    return found


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_several_truncates_the_first_after_it_ends_a_version_however_late_either_comes(
    seed: int, spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    name, chance = topic(1), random.Random(seed)
    merge = {"keys": ["id"], "history": "scd2"}
    decode = {"debezium": "value", "schema": "id BIGINT NOT NULL, name STRING"}
    plan = project({"silver.h": {"from": {"kafka": name}, "decode": decode, "write": {"merge": merge}}})
    changes: list[tuple[str, int, int | None, str | None]] = []
    for lsn in range(10, 70):
        op = chance.choices("cudt", (5, 5, 3, 1))[0]
        changes.append((op, lsn, None, None) if op == "t" else (op, lsn, chance.randrange(6), f"name {lsn}"))
    chance.shuffle(changes)
    for begin in range(0, 60, 20):
        put(broker, name, *changes[begin : begin + 20])
        run_well(spark, plan)
    made = {
        (row["id"], row["name"], _second(row["valid_from"]), _second(row["valid_to"]), row["is_current"])
        for row in rows(plan, "silver.h")
    }
    assert made == until_truncated(changes)

    def verified() -> Report:
        (report,) = verify(plan.tables, LocalStore(), known=plan.tables)
        run_checks_in(spark, plan, [(plan.tables[0], report)], LocalStore())
        return report

    report = verified()
    assert (report.verdict, report.checks[0].compared) == ("complete", len(made)), report.problems
    tail = log(plan.tables[0]).since(-1)[-1].entry
    assert tail is not None
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", dump(replace(tail, kind="carry")))
    spark.sql(f"UPDATE delta.`{plan.tables[0].uri}` SET valid_to = valid_from WHERE NOT is_current")
    spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    report = verified()
    assert (report.checks[0].outcome, report.checks[0].differing) == ("differs", sum(not one[4] for one in made))


def _second(time: Any) -> int | None:
    return None if time is None else round(time.timestamp())


EXTRACTS = {
    "files": "in",
    "format": "csv",
    "schema": "day DATE, id BIGINT NOT NULL, name STRING",
    "options": {"header": True},
}
EXTRACTED = {"keys": ["id"], "from_snapshot": "day", "columns": ["id", "name"]}


def extract(folder: Path, day: int, *found: tuple[int, str], name: str | None = None) -> None:
    lines = ["day,id,name", *(f"2026-05-{day:02d},{number},{text}" for number, text in found)]
    folder.mkdir(exist_ok=True)
    (folder / (name or f"day{day:02d}.csv")).write_text("\n".join(lines) + "\n")


@pytest.mark.deep
def test_what_an_extract_lacks_is_deleted_and_what_it_repeats_is_no_change(
    spark: SparkSession, tmp_path: Path, project: Callable[..., Plan]
) -> None:
    folder = tmp_path / "in"
    plan = project(
        {
            "silver.c": {"from": EXTRACTS, "write": {"merge": EXTRACTED, "change_feed": True}},
            "silver.h": {"from": EXTRACTS, "write": {"merge": {**EXTRACTED, "history": "scd2"}}},
            "silver.audit": {"from": {"changes": "silver.c", "starting": {"version": 0}}, "audit": True},
        }
    )

    def state() -> dict[int, str]:
        return {row["id"]: row["name"] for row in rows(plan, "silver.c") if not row["_deleted"]}

    extract(folder, 1, (1, "a"), (2, "b"), (3, "c"))
    run_well(spark, plan)
    extract(folder, 2, (1, "a"), (2, "B"), (4, "d"))
    run_well(spark, plan)
    assert state() == {1: "a", 2: "B", 4: "d"}
    extract(folder, 3, (1, "a"), (3, "c"))  # two at once: 2 and 4 are gone, 3 is back; then 2 is back
    extract(folder, 4, (1, "a"), (2, "b"), (3, "c"))
    run_well(spark, plan)
    assert state() == {1: "a", 2: "b", 3: "c"}
    found = {
        (row["id"], row["name"], row["valid_from"].day, row["valid_to"] and row["valid_to"].day)
        for row in rows(plan, "silver.h")
        if not row["_deleted"]
    }
    assert found == {
        (1, "a", 1, None),
        (2, "b", 1, 2),
        (2, "B", 2, 3),
        (2, "b", 4, None),
        (3, "c", 1, 2),
        (3, "c", 3, None),
        (4, "d", 2, 3),
    }
    changes = [(row["id"], row["change_type"]) for row in rows(plan, "silver.audit")]
    came = [(1, "insert"), (2, "insert"), (3, "insert"), (4, "insert"), (3, "insert")]
    assert sorted(changes) == sorted([*came, (2, "update"), (3, "delete"), (2, "update"), (4, "delete")])
    extract(folder, 2, (9, "late"), name="late.csv")  # newer ones have said what there is
    heard = run_well(spark, plan)
    assert state() == {1: "a", 2: "b", 3: "c"}
    assert [one.row_counts["superseded"] for one in heard.batches if one.row_counts.get("read")] == [1, 1]
    extract(folder, 4, (5, "e"), name="part.csv")
    heard = run(spark, plan)
    assert isinstance(heard.errors["silver.c"], Terminal), heard.errors
    assert "same extract" in heard.errors["silver.c"].message
    assert state() == {1: "a", 2: "b", 3: "c"}


@pytest.mark.deep
def test_a_row_that_was_rejected_is_not_one_that_is_missing(
    spark: SparkSession, tmp_path: Path, project: Callable[..., Plan]
) -> None:
    folder = tmp_path / "in"
    plan = project(
        {
            "silver.c": {
                "from": EXTRACTS,
                "expect": [{"name": "named", "check": "name <> 'bad'"}],
                "write": {"merge": EXTRACTED},
            }
        }
    )
    extract(folder, 1, (1, "a"), (2, "b"), (3, "c"))
    run_well(spark, plan)
    extract(folder, 2, (1, "A"), (2, "bad"))
    run_well(spark, plan)
    assert {row["id"]: row["name"] for row in rows(plan, "silver.c") if not row["_deleted"]} == {1: "A", 2: "b", 3: "c"}
    extract(folder, 3, (1, "A"), (2, "b"))
    run_well(spark, plan)
    assert {row["id"]: row["name"] for row in rows(plan, "silver.c") if not row["_deleted"]} == {1: "A", 2: "b"}


@pytest.mark.deep
def test_numbers_follow_updates_and_deletes(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    chance = random.Random(3)
    name = topic(2)
    plan = project(
        {
            "silver.c": {
                "from": {"kafka": name, "max_per_trigger": 400},
                "decode": {"json": "value", "schema": SCHEMA},
                "write": {"merge": MERGE, "change_feed": True},
            },
            "gold.cities": {
                "from": {"changes": "silver.c"},
                "aggregate": {"keys": ["city"], "metrics": {"n": "count(*)", "newest": "max(seq)"}},
            },
        }
    )
    for _ in range(2):
        send(broker.bootstrap, name, random_changes(chance, 60, 300), 2, chance)
        run_well(spark, plan)
        expected: dict[str | None, list[int]] = {}
        for one in living(plan, "silver.c").values():
            expected.setdefault(one["city"], []).append(one["seq"])
        found = {row["city"]: (row["n"], row["newest"]) for row in rows(plan, "gold.cities")}
        assert found == {city: (len(seqs), max(seqs)) for city, seqs in expected.items()}
