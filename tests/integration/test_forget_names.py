"""Names of every shape, in every place that a row can have, declared or not: no byte of the lake keeps them."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.erasure.rewrite import checkpoint
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.byte_search import named
from tests.integration.forget_shop import forget
from tests.integration.run_plan import make_plan, rows, rows_at, run_well
from tests.integration.test_forget import dies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

DIGITS, ZEROS, SHORT = "47110815", "0042817", "317"
UUID = "6f1d2a3b-0c4e-4f5a-9b6c-7d8e9f0a1b2c"
MAIL, QUOTED = "zoë.müller@exämple.org", 'O"Hara\\ 😀 of/Kerry'
PREFIX, LONGER = "ann@example.org", "ann@example.org.uk"
SPACED, JUNIOR = "Jo Smith", "Jo Smith Jr"
LONG = "a-name-that-is-so-long-that-statistics-cut-it-off@example.org"
GONE = (DIGITS, ZEROS, SHORT, UUID, MAIL, QUOTED, PREFIX, SPACED, LONG)
STAY = (LONGER, JUNIOR, "4711081", "somebody else")
SCHEMA = (
    "id BIGINT, customer STRING, note STRING, ref BIGINT, amount BIGINT, tags ARRAY<STRING>, more MAP<STRING, STRING>, "
    "deep STRUCT<who: STRING>"
)


def tables(topic: str) -> dict[str, Any]:
    decoded = {"from": {"table": "bronze.o"}, "decode": {"json": "value", "schema": SCHEMA, "rescue": True}}
    who = {"subjects": {"customer": "customer"}}
    return {
        "bronze.o": {
            "from": {"kafka": topic, "max_per_trigger": 60},
            "subjects": {"customer": [{"json": "value", "path": "$.customer"}, "key"]},
        },
        "silver.o": {
            **decoded,
            **who,
            "expect": [{"name": "positive", "check": "amount > 0"}],
            "write": {"change_feed": True, "partition_by": ["note"]},
        },
        "silver.history": {
            **decoded,
            **who,
            "write": {"merge": {"keys": ["customer"], "sequence": "id", "history": "scd2"}},
        },
        "gold.notes": {"from": {"table": "silver.o"}, "aggregate": {"keys": ["note"], "metrics": {"n": "count(*)"}}},
    }


def record(number: int, who: str) -> str:
    made: dict[str, Any] = {"id": number, "customer": who, "note": who, "amount": number % 7, "unknown": {"of": who}}
    made |= {"tags": ["x", who], "more": {who: "y"}, "deep": {"who": who}}
    if who.isdigit():
        made["ref"] = int(who)
    if number % 9 == 4:
        made["amount"] = f"{who} is no amount"
    text = json.dumps(made, ensure_ascii=number % 2 == 0)
    return text[:-3] if number % 11 == 6 else text


class Canary:
    def __init__(self, bootstrap: str, topic: str, folder: Path, people: tuple[str, ...]) -> None:
        self.bootstrap, self.topic, self.folder, self.people = bootstrap, topic, folder, people
        self.sent: list[str] = []

    def plan(self, *names: str) -> Plan:
        """Of these tables, or of all."""
        known = tables(self.topic)
        return make_plan(self.folder, self.bootstrap, {name: known[name] for name in names or known})

    def send(self, count: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 1})
        for number in range(len(self.sent), len(self.sent) + count):
            who = self.people[number % len(self.people)]
            headers = [("who", who.encode())]
            producer.produce(self.topic, partition=0, key=who, value=record(number, who), headers=headers)
            self.sent.append(who)
        assert producer.flush(30) == 0


@pytest.fixture
def canary(broker: Any, topic: Any, tmp_path: Path) -> Canary:
    return Canary(broker.bootstrap, topic(1), tmp_path, (*GONE, *STAY))


@pytest.mark.parametrize("names", [("bronze.o", "silver.o"), pytest.param((), marks=pytest.mark.deep, id="all")])
def test_names_of_every_shape_leave_no_byte_behind_and_those_that_begin_alike_stay(
    spark: SparkSession, canary: Canary, names: tuple[str, ...]
) -> None:
    plan = canary.plan(*names)
    canary.send(65)
    run_well(spark, plan)
    checkpoint(spark, f"{canary.folder}/lake/silver/o")  # has the statistics of files that will be gone
    log = canary.folder / "lake/silver/o/_delta_log"
    attempt = f".{1:020d}.json.5e1f-killed.tmp"  # what a process leaves that is killed as it commits
    shutil.copyfile(log / f"{1:020d}.json", log / attempt)
    assert all(any(line.endswith(f": {name}") for line in named(canary.folder, [name], STAY)) for name in GONE)

    done = forget(spark, plan, *GONE)

    assert not done.problems, "\n".join(done.problems)
    left = named(canary.folder, GONE, STAY)
    assert not left, "\n".join(left)
    good = rows(plan, "silver.o")
    aside = rows_at(f"{canary.folder}/lake/silver/o__quarantine")
    stayed = Counter(who for who in canary.sent if who in STAY)
    assert len(good) + len(aside) == stayed.total() and {row["customer"] for row in good} == set(STAY)
    if not names:
        assert {row["note"] for row in rows(plan, "gold.notes")} == set(STAY)
        assert {row["customer"] for row in rows(plan, "silver.history")} == set(STAY)
    for report in verify(plan.tables, LocalStore()):
        assert report.ok(), report


@pytest.mark.deep
def test_a_name_in_a_row_of_somebody_else_is_told_and_nothing_is_proven(spark: SparkSession, canary: Canary) -> None:
    from penstock.erasure.certificate import document

    plan = canary.plan("bronze.o", "silver.o")
    canary.people = (DIGITS, JUNIOR)
    canary.send(20)
    run_well(spark, plan)
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": canary.bootstrap})
    for ref in (DIGITS, 5):
        made = {"id": 99, "customer": JUNIOR, "note": "n", "amount": 3, "ref": 5, "more": {"of": f"see {ref}"}}
        producer.produce(canary.topic, partition=0, key=JUNIOR, value=json.dumps(made))
    assert producer.flush(30) == 0
    run_well(spark, plan)

    done = forget(spark, plan, DIGITS)

    told = document(plan, done)
    places = {(one["in"], one["where"]) for one in told["search"]["left"]}
    assert not done.proven and places == {("bronze.o", "value.more.of"), ("silver.o", "more.value")}
    assert DIGITS not in json.dumps(told) and told["search"]["files"] and told["search"]["forms"]
    assert any("silver.o: more.value" in one and "--not-a-name" in one for one in told["problems"])
    excepted = forget(spark, plan, DIGITS, not_names=("bronze.o.value.more.of", "silver.o.more.value"))
    assert excepted.proven, "\n".join(excepted.problems)
    assert document(plan, excepted)["search"]["not_names"]


@pytest.mark.deep
@pytest.mark.parametrize("step", ["_replace", "_write_clean_checkpoint", "_drop_missing_files"])
def test_a_table_can_be_read_wherever_the_rewriting_of_its_log_is_cut_off(
    spark: SparkSession, canary: Canary, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    plan = canary.plan("bronze.o", "silver.o")
    canary.people = (PREFIX, LONGER, DIGITS, QUOTED)
    canary.send(24)
    run_well(spark, plan)
    with monkeypatch.context() as patched:
        dies(patched, f"penstock.erasure.log_files.{step}", 1)
        with contextlib.suppress(KeyboardInterrupt):
            forget(spark, plan, PREFIX, DIGITS, QUOTED)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
    assert {row["customer"] for row in rows(plan, "silver.o")} == {LONGER}
    assert spark.read.format("delta").load(f"{canary.folder}/lake/silver/o").select("customer").distinct().count() == 1
    done = forget(spark, plan, PREFIX, DIGITS, QUOTED)
    assert done.proven, "\n".join(done.problems)
    assert not named(canary.folder, [PREFIX, DIGITS, QUOTED], STAY)
