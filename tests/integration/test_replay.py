"""A table made anew from what it has read equals one that was made so from the beginning."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.replays import content, rejected, replayed, work_on
from tests.integration.runs import (
    checkpoint,
    commits,
    coordinates,
    make_plan,
    rows,
    rows_at,
    run,
    run_well,
    running,
    wait_for,
)
from tests.integration.topics import forget_records

from penstock.engine.store import LocalStore
from penstock.errors import TableChanged
from penstock.ops.stale import stale_against
from penstock.ops.verify.table import verify

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

SCHEMA = "id BIGINT NOT NULL, amount DECIMAL(9,2), kind STRING, seq BIGINT, op STRING"
MERGE = {"keys": ["id"], "sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}


TWO = ("bronze.t", "silver.t")
DOUBLED = "CAST(amount * 2 AS DECIMAL(9,2))"


def tables(topic: str, *, rule: str = "amount > 0", shown: str = "amount") -> dict[str, Any]:
    of_bronze = {"from": {"table": "bronze.t", "max_files": 2}, "decode": {"json": "value", "schema": SCHEMA}}
    changed = {"sql": f"SELECT * EXCEPT (amount), {shown} AS amount FROM t"}
    return {
        "bronze.t": {"from": {"kafka": topic, "max_per_trigger": 60}},
        "silver.t": {
            **of_bronze,
            **changed,
            "trigger": "500ms",
            "expect": [{"name": "rule", "check": rule}, {"name": "odd", "check": "id % 9 <> 0", "action": "drop"}],
            "dedupe": {"keys": ["id", "seq"]},
        },
        "silver.c": {**of_bronze, **changed, "write": {"merge": MERGE, "change_feed": True}},
        "silver.h": {**of_bronze, **changed, "write": {"merge": {**MERGE, "history": "scd2"}}},
        "silver.copy": {"from": {"changes": "silver.c"}, "write": {"merge": {}}},
        "gold.t": {
            "from": {"table": "silver.t"},
            "aggregate": {
                "keys": ["kind"],
                "metrics": {"n": "count(*)", "sum": "sum(amount)", "ids": "count(DISTINCT id)"},
            },
        },
    }


class Shop:
    """Changes in a topic, some of them twice, some no JSON; all tables over it."""

    def __init__(self, spark: SparkSession, broker: Broker, topic: str, folder: Path) -> None:
        self.spark, self.topic, self._bootstrap, self._folder = spark, topic, broker.bootstrap, folder
        self._sent: list[dict[str, Any] | None] = []

    def send(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 1})
        for number in range(len(self._sent), len(self._sent) + count):
            one = number // 2 * 2
            made = {
                "id": one % 40,
                "amount": one % 50 - 5,
                "kind": "abc"[one % 3],
                "seq": one,
                "op": "d" if one % 7 == 0 else "u",
            }
            self._sent.append(made if number % 13 else None)
            producer.produce(self.topic, partition=0, value=json.dumps(made) if number % 13 else "{")
        assert producer.flush(30) == 0

    def good(self, least: int = 0) -> Counter[int]:
        """The offsets that silver.t must hold under the rule that amounts are more than this."""
        seen: set[tuple[int, int]] = set()
        found: Counter[int] = Counter()
        for offset, made in enumerate(self._sent):
            if made is not None and made["amount"] > least and made["id"] % 9 and (made["id"], made["seq"]) not in seen:
                seen.add((made["id"], made["seq"]))
                found[offset] += 1
        return found

    def bad(self, least: int = 0) -> Counter[int]:
        return Counter(o for o, made in enumerate(self._sent) if made is None or made["amount"] <= least)

    def plan(self, lake: str = "a", **definition: str) -> Plan:
        (self._folder / lake).mkdir(exist_ok=True)
        return make_plan(self._folder / lake, self._bootstrap, tables(self.topic, **definition))

    def made_at_once(self, **definition: str) -> Plan:
        """Another lake, in which no table has ever been anything else."""
        plan = self.plan("fresh", **definition)
        run_well(self.spark, plan)
        return plan


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker, topic(1), tmp_path)


def offsets(plan: Plan, suffix: str = "") -> Counter[int]:
    """Of silver.t, or of its quarantine."""
    table = plan.table("silver.t")
    assert table is not None
    return Counter(row["_source"]["offset"] for row in rows_at(table.uri + suffix))


def assert_silver(plan: Plan, shop: Shop, least: int = 0) -> None:
    assert offsets(plan) == shop.good(least)
    assert offsets(plan, "__quarantine") == shop.bad(least)


def assert_equal(one: Plan, other: Plan) -> None:
    for table in one.tables:
        if table.name == "silver.copy":  # its sequences are versions of its source
            living = [[r["id"] for r in rows(plan, table.name) if not r["_deleted"]] for plan in (one, other)]
            assert sorted(living[0]) == sorted(living[1])
            continue
        assert content(one, table.name) == content(other, table.name), table.name
        if table.may_reject:
            assert rejected(one, table.name) == rejected(other, table.name), table.name
    for report in verify(one.tables, LocalStore()):
        assert report.ok(), report


def test_three_layers_replayed_under_another_rule_equal_a_rebuild_and_go_on(spark: SparkSession, shop: Shop) -> None:
    from penstock.ops.replay.carry_out import carry_out
    from penstock.ops.replay.dry_run import dry_run
    from penstock.ops.replay.plan import plan_replay

    shop.send(150)
    old = shop.plan()
    run_well(spark, old)
    shop.send(50)
    run_well(spark, old)
    new = shop.plan(rule="amount > 10", shown=DOUBLED)
    silver = new.table("silver.t")
    assert silver is not None
    planned = plan_replay(new, silver, LocalStore(), version=None, as_of=None, cascade=True)
    assert [one.table.name for one in planned.cascade] == ["gold.t"] and not planned.moves

    before = content(new, "silver.t")
    outlook = dry_run(spark, new, planned)
    assert content(new, "silver.t") == before and len(commits(new, "silver.t")) == len(commits(old, "silver.t"))
    done = {table.name: filled for table, filled in carry_out(spark, new, planned, lambda *_: None)}
    now = content(new, "silver.t")
    assert outlook.rows.rows == now.total() and outlook.rows.removed == before.total() - now.total() > 0
    assert outlook.rows.changed == now.total() and outlook.rows.added == 0
    assert (
        sum(outlook.rejected_then.values()) == rejected(new, "silver.t").total() == done["silver.t"].fates["rejected"]
    )
    assert [c.entry.kind for c in commits(new, "silver.t")[-2:] if c.entry] == ["open", "fill"]
    for name in ("silver.c", "silver.h"):
        replayed(spark, new, name)
    shop.send(50)
    run_well(spark, new)
    assert_equal(new, shop.made_at_once(rule="amount > 10", shown=DOUBLED))


class Killed(Exception):
    pass


def places() -> list[tuple[Any, str, bool]]:
    """Where a replay can die: before or after these are done."""
    from penstock.engine.quarantine import Quarantine
    from penstock.engine.refill import Refill
    from penstock.engine.replay import fill

    return [
        (Refill, "append", False),
        (Refill, "append", True),
        (Quarantine, "add", True),
        (Refill, "commit", True),
        (fill, "heal", True),
        (Quarantine, "drop", True),
    ]


def test_a_replay_that_dies_anywhere_is_finished_by_the_next_start(
    spark: SparkSession, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.send(120)
    run_well(spark, shop.plan(), *TWO)
    for number, (owner, name, after) in enumerate(places()):
        plan, whole = shop.plan(rule=f"amount > {number * 5}"), getattr(owner, name)
        before = content(plan, "silver.t")

        def dies(*given: Any, whole: Any = whole, after: bool = after, **named: Any) -> None:
            if after:
                whole(*given, **named)
            raise Killed

        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(owner, name, dies)
            replayed(spark, plan, "silver.t")
        last = commits(plan, "silver.t")[-1].entry
        assert last is not None
        assert last.kind == "fill" or content(plan, "silver.t") == before, name
        run_well(spark, plan, "silver.t")
        assert_silver(plan, shop, number * 5)
    shop.send(10)
    run_well(spark, plan, *TWO)
    assert all(one.ok() for one in verify([t for t in plan.tables if t.name in TWO], LocalStore()))


def test_the_stream_waits_for_the_replay_and_goes_on_where_it_was(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *TWO)
    with running(spark, plan, "silver.t") as heard:
        shop.send(40)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.batches))
        replayed(spark, plan, "silver.t")
        shop.send(40)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: len(heard.batches) > 1)
    run_well(spark, plan, *TWO)
    assert_silver(plan, shop)
    assert not heard.errors


def test_a_runner_with_an_outdated_definition_writes_nothing_after_a_replay(spark: SparkSession, shop: Shop) -> None:
    plan = shop.plan()
    shop.send(60)
    run_well(spark, plan, *TWO)
    with running(spark, plan, "silver.t") as heard:
        shop.send(20)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.batches))
        new = shop.plan(rule="amount > 20")
        replayed(spark, new, "silver.t")
        shop.send(20)
        run_well(spark, plan, "bronze.t")
        wait_for(lambda: bool(heard.errors))
    assert isinstance(heard.errors["silver.t"], TableChanged)
    run_well(spark, new, *TWO)
    assert_silver(new, shop, 20)


def test_without_our_locks_a_table_is_replayed_again_and_again(spark: SparkSession, shop: Shop) -> None:
    from penstock.engine.redrive.redrive import redrive

    shop.send(60)
    run_well(spark, shop.plan(), *TWO)
    for least in (5, 30):
        plan = shop.plan(rule=f"amount > {least}")
        replayed(spark, plan, "silver.t", remote=True)
        assert_silver(plan, shop, least)
    plan = shop.plan(rule="amount > 20")
    for _ in range(2):
        redrive(work_on(spark, plan, "silver.t", remote=True), None)
        assert offsets(plan, "__quarantine") == shop.bad(20)
        assert {row["seq"] for row in rows(plan, "silver.t")} == {offset // 2 * 2 for offset in shop.good(20)}
    shop.send(20)
    run_well(spark, plan, *TWO)
    assert offsets(plan, "__quarantine") == shop.bad(20)


def test_a_table_over_kafka_keeps_the_rows_whose_records_are_gone(
    spark: SparkSession, shop: Shop, broker: Broker
) -> None:
    from penstock.ops.replay.plan import plan_replay

    shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, "bronze.t")
    before = coordinates(plan)
    forget_records(broker.bootstrap, shop.topic, 0, 25)
    shop.send(10)
    bronze = plan.table("bronze.t")
    assert bronze is not None
    assert plan_replay(plan, bronze, LocalStore(), version=None, as_of=None, cascade=False).lost == {shop.topic: 25}
    filled = replayed(spark, plan, "bronze.t")
    assert (filled.kept, filled.rows) == (25, 35)
    assert coordinates(plan) == before
    run_well(spark, plan, "bronze.t")
    assert coordinates(plan).total() == 70 and set(coordinates(plan).values()) == {1}
    (report,) = verify([bronze], LocalStore())
    assert report.ok(allow_unverifiable=True), report


def test_a_position_within_a_version_is_read_up_to_there_and_no_further(spark: SparkSession, shop: Shop) -> None:
    import threading

    from tests.integration.runs import Heard

    from penstock.runtime.runner import choose, run_in

    for _ in range(3):  # bronze in several files of one version
        shop.send(60)
    plan = shop.plan()
    run_well(spark, plan, "bronze.t")
    spark.read.format("delta").load(rows_uri(plan, "bronze.t")).repartition(6).write.format("delta").mode(
        "overwrite"
    ).option("dataChange", "false").save(rows_uri(plan, "bronze.t"))
    stop = threading.Event()

    class Stops(Heard):
        def batch(self, table: str, written: Any, seconds: float) -> None:
            super().batch(table, written, seconds)
            stop.set()

    run_in(spark, plan, choose(plan, ["silver.t"]), Stops(), once=True, stop=stop)
    part = content(plan, "silver.t")
    position = commits(plan, "silver.t")[-1].entry
    assert position is not None and json.loads(position.after[0])["index"] > 0
    whole = len(rows(plan, "bronze.t"))
    assert 0 < part.total() + rejected(plan, "silver.t").total() < whole
    replayed(spark, plan, "silver.t")
    assert content(plan, "silver.t") == part
    run_well(spark, plan, "silver.t")
    (report,) = verify([t for t in plan.tables if t.name == "silver.t"], LocalStore())
    assert report.ok(), report
    good = shop.good()
    assert {row["seq"] for row in rows(plan, "silver.t")} == {offset // 2 * 2 for offset in good}


def rows_uri(plan: Plan, name: str) -> str:
    table = plan.table(name)
    assert table is not None
    return table.uri


def test_what_is_made_of_the_old_rows_is_stale_until_it_is_made_anew(spark: SparkSession, shop: Shop) -> None:
    from penstock.engine.protocol.ledger import read_tail
    from penstock.engine.replay.resume import abort, open_replay, owed

    plan = shop.plan()
    names = ("bronze.t", "silver.t", "silver.c", "gold.t")
    shop.send(40)
    run_well(spark, plan, *names)

    def is_stale(name: str) -> bool:
        table = plan.table(name)
        assert table is not None
        tail = read_tail(work_on(spark, plan, name).log)
        assert tail is not None
        return stale_against(table, tail, LocalStore()) is not None

    assert not is_stale("silver.t") and not is_stale("gold.t")
    replayed(spark, plan, "bronze.t")
    assert is_stale("silver.t") and is_stale("silver.c") and not is_stale("gold.t")
    replayed(spark, plan, "silver.t", at=commits(plan, "bronze.t")[-1].version)
    assert not is_stale("silver.t") and is_stale("gold.t")
    shop.send(40)
    run_well(spark, plan, *names)
    assert not is_stale("gold.t") and is_stale("silver.c")

    before = content(plan, "silver.t")
    work = work_on(spark, plan, "silver.t")
    open_replay(work, None, "test")
    tail = owed(work)
    assert tail is not None
    position = abort(work, tail).entry.after
    assert position == tail.entry.before and content(plan, "silver.t") == before
    assert not run(spark, plan, "silver.t").errors
    assert (checkpoint(plan, tail.entry.generation + 1, "silver.t") / "offsets").exists()
