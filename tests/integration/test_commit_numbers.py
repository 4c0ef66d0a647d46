"""Commits on a store without our locks: numbered by the log, confirmed from the log, refused where one is absent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Conflict, Fenced
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import TABLE, produce, rows_at, run_well, whole_chain
from tests.integration.run_replays import replayed, work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

COUNT = 24
AHEAD = 4_000_000_000_000
"""Milliseconds in the year 2096: what a host whose clock was ahead has left in the log."""


class Clock:
    asked = 0

    def time_ns(self) -> int:
        self.asked += 1
        return (AHEAD + (1000 if self.asked > 1 else -1000)) * 1_000_000


@pytest.fixture
def shop(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], project: Callable[..., Plan]
) -> Callable[[int], Plan]:
    """Amounts are the offsets; the tables take those above a number."""
    name = topic(1)
    for number in range(COUNT):
        value = json.dumps({"id": number, "amount": number, "seq": number})
        produce(broker.bootstrap, name, 1, partitions=[0], value=value)

    def plan(least: int) -> Plan:
        decode = {"json": "value", "schema": "id BIGINT, amount BIGINT, seq BIGINT"}
        table = {"from": {"kafka": name}, "decode": decode, "expect": [{"name": "e", "check": f"amount > {least}"}]}
        merge = {"merge": {"keys": ["id"], "sequence": "seq"}}
        return project({"silver.k": table, "silver.m": {**table, "write": merge}})

    return plan


def uri(plan: Plan, name: str) -> str:
    table = plan.table(name)
    assert table is not None
    return table.uri


def number_taken(spark: SparkSession, place: str, application: str, number: int) -> None:
    nothing = spark.read.format("delta").load(place).limit(0)
    writer = nothing.write.format("delta").mode("append").option("txnAppId", application)
    writer.option("txnVersion", number).save(place)


def redriven(spark: SparkSession, plan: Plan, name: str) -> Any:
    from penstock.operations.redrive import redrive

    return redrive(work_on(spark, plan, name, remote=True), None)


def assert_split(plan: Plan, name: str, least: int) -> None:
    """Every record once: in the table or in its quarantine."""
    assert Counter(row["id"] for row in rows_at(uri(plan, name))) == Counter(range(least + 1, COUNT))
    rejected = Counter(row["_source"]["offset"] for row in rows_at(f"{uri(plan, name)}__quarantine"))
    assert rejected == Counter(range(least + 1))
    (report,) = verify([table for table in plan.tables if table.name == name], LocalStore())
    assert report.ok(allow_partial=True), report


@pytest.mark.parametrize("name", ["silver.k", pytest.param("silver.m", marks=pytest.mark.deep)])
def test_a_redrive_lands_its_rows_though_the_clock_of_the_last_one_was_ahead(
    spark: SparkSession, shop: Callable[[int], Plan], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a second when its rows were appended, and no longer when they were counted: numbered by the clock, the first
    commit was skipped, the second was not, and the rows left the quarantine without having landed."""
    run_well(spark, shop(15), name)
    number_taken(spark, uri(shop(15), name), f"penstock:{name}:redrive", AHEAD)
    monkeypatch.setattr("penstock.ledger.commit.time", Clock(), raising=False)  # it has none any more
    (done,) = redriven(spark, shop(10), name)
    assert (done.landed, done.left) == (5, 5)
    assert_split(shop(10), name, 10)


@pytest.mark.deep
def test_a_replay_settles_its_quarantine_though_the_clock_of_the_last_one_was_ahead(
    spark: SparkSession, shop: Callable[[int], Plan]
) -> None:
    run_well(spark, shop(15), "silver.k")
    number_taken(spark, f"{uri(shop(15), 'silver.k')}__quarantine", "penstock:silver.k__quarantine:fill", AHEAD)
    for least in (COUNT, 20):  # the second finds nothing to remove of before
        replayed(spark, shop(least), "silver.k", remote=True)
    assert_split(shop(20), "silver.k", 20)


@pytest.mark.deep
def test_of_two_redrives_at_once_one_lands_the_rows_and_the_other_one_says_so(
    spark: SparkSession, shop: Callable[[int], Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second finds the mark of the first, takes it for one that was cut off, and finishes it."""
    from penstock.ledger.write_target import DeltaTableTarget

    run_well(spark, shop(15), "silver.k")
    whole, begun = DeltaTableTarget.append, []

    def append(self: DeltaTableTarget, rows: Any, entry: Any) -> None:
        if not begun:
            begun.append(entry)
            redriven(spark, shop(10), "silver.k")
        whole(self, rows, entry)

    monkeypatch.setattr(DeltaTableTarget, "append", append)
    with pytest.raises(Conflict, match="another process committed first"):
        redriven(spark, shop(10), "silver.k")
    assert_split(shop(10), "silver.k", 10)
    whole_chain(shop(10), "silver.k")


def test_what_another_process_committed_under_the_same_number_is_not_taken_for_one_s_own(
    spark: SparkSession, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    from penstock.ledger.commit import append, append_entry, confirm, must_confirm
    from penstock.ledger.generations import carry_forward, open_generation
    from penstock.ledger.head import advance, read_head

    plan = project({TABLE: {"from": {"kafka": topic(1)}}})
    run_well(spark, plan)
    work = work_on(spark, plan, TABLE, remote=True)
    tail = read_head(work.log)
    assert tail is not None
    place = work.table.uri

    def opened(note: str) -> Any:
        given = {"after": tail.entry.after, "topics": tail.entry.topics, "subscription": tail.entry.subscription}
        return open_generation(spark, work.log, tail, place, **given, definition="d", note=note)

    first = opened("one runner")
    with pytest.raises(Conflict, match=r"another process committed first, open 2\.0"):
        opened("another one, which had seen the same log")
    assert first.entry.note == "one runner"

    batch = first.entry.next_entry("batch", batch=1, before=first.entry.after, counts=first.counts, seen=first.version)
    rows = spark.read.format("delta").load(place).limit(0)
    append(rows, place, batch, idempotent=True)
    now = must_confirm(first, work.log, batch)
    twice = replace(batch, id="of another process")
    append(rows, place, twice, idempotent=True)  # Delta skips it, and says nothing
    append_entry(spark, place, twice)
    assert confirm(first, work.log, twice) is None
    with pytest.raises(Conflict):
        must_confirm(first, work.log, twice)
    tail = now
    assert opened("a third").entry.generation == 3
    fenced = batch.next_entry("batch", batch=2, before=batch.after, counts=now.counts, seen=now.version)
    append(rows, place, fenced, idempotent=True)
    with pytest.raises(Fenced, match="generation 3"):
        must_confirm(now, work.log, fenced)

    end = advance(now, work.log)
    for kind in ("carry", "redrive", "forget", "fill"):
        number_taken(spark, place, f"penstock:{TABLE}:{kind}", AHEAD)
    for kind in ("redrive", "forget", "fill"):
        for _ in range(2):
            seen = advance(end, work.log)
            entry = replace(seen.carry_entry, kind=kind)
            append_entry(spark, place, entry)
            end = must_confirm(seen, work.log, entry)
        outdated = replace(entry, id="of another process")
        append_entry(spark, place, outdated)
        with pytest.raises(Conflict):
            must_confirm(seen, work.log, outdated)
    for _ in range(2):
        end = carry_forward(spark, work.log, advance(end, work.log), place, now_ms=AHEAD)
    assert end.entry.kind == "carry" and end.entry.key == (3, 0)


def test_rejected_rows_land_though_the_number_of_their_batch_is_taken(
    spark: SparkSession, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink's batch that was planned anew and is longer; a table that was put back to an older generation."""
    from penstock.errors import ChainBroken
    from penstock.ledger.entry import Entry, Pins
    from penstock.plan.quarantine import quarantine_of
    from penstock.tables import quarantine as module
    from penstock.tables.files import FileQuarantine
    from penstock.tables.quarantine import Quarantine

    place = quarantine_of("bronze.t", str(tmp_path / "t"))
    batch = Entry("batch", "bronze.t", "l", 3, 1, ("0",), ("1",), Pins(0, "d"))
    kept = FileQuarantine(spark, LocalStore(), place, "struct<file:string,row:bigint>", idempotent=True)
    kept.create(batch)

    def add(entry: Entry, *files: str) -> int:
        kept.unreadable_files = dict.fromkeys(files, "why")
        return Quarantine.add(kept, kept._file_rows(spark), entry)

    assert add(batch, "a") == 1 and kept.has(batch)
    longer = replace(batch, after=("2",))
    assert add(longer, "b", "c") == 2
    older = replace(batch, generation=2)
    assert not kept.has(older)
    assert add(older, "d") == 1 and kept.has(older)
    assert Counter(row["_source"]["file"] for row in rows_at(place.uri)) == Counter("abcd")

    monkeypatch.setattr(module, "append", lambda *given, **more: None)  # skipped, without a word
    with pytest.raises(ChainBroken, match="the log does not hold it"):
        add(replace(batch, batch=2), "e")
