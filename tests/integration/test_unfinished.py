"""A process that is killed while it creates tables: the next start finishes that, or begins again, by itself."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged
from tests.conftest import make_plan
from tests.integration.run_plan import coordinates, produce, rows, rows_at, run, run_well, whole_chain
from tests.integration.unfinished_tables import CHECKPOINT, DONE, STEPS, cut_off, cut_off_checkpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker
    from penstock.plan.model import Plan

RECORDS = 24
LIST_WITH_AN_EMPTY_LOG = 7
REJECTING = ("silver.q", "silver.d", "silver.m")


def tables(topic: str) -> dict[str, Any]:
    decode = {"json": "value", "schema": "id BIGINT NOT NULL, seq BIGINT, day DATE"}
    merge = {"merge": {"keys": ["id"], "sequence": "seq"}}
    source = {"from": {"kafka": topic}, "decode": decode}
    return {
        "bronze.k": {"from": {"kafka": topic}},
        "bronze.f": {"from": {"files": "in", "format": "json", "schema": "id BIGINT NOT NULL"}},
        "silver.q": {**source, "write": {"partition_by": ["day"]}},
        "silver.d": {**source, "write": {"cluster_by": ["id"]}},
        "silver.m": {**source, "write": merge},
        "gold.a": {"from": {"table": "bronze.k"}, "aggregate": {"keys": ["partition"], "metrics": {"n": "count(*)"}}},
    }


@dataclass
class Lake:
    spark: SparkSession
    root: Path
    topic: str
    bootstrap: str
    goes: str
    names: tuple[str, ...]

    def plan(self, root: Path | None = None) -> Plan:
        sinks = {"out": {"from": {"table": "bronze.k"}, "to": {"kafka": self.goes}}} if "out" in self.names else {}
        made = {name: table for name, table in tables(self.topic).items() if name in self.names}
        return make_plan(root or self.root, self.bootstrap, made, sinks=sinks)

    def copied(self, root: Path) -> Plan:
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        (root / "in" / "1.json").write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
        return self.plan(root)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return created(spark, broker, tmp_path_factory.mktemp("few"), "bronze.k", "bronze.f", "silver.q")


@pytest.fixture(scope="module")
def whole_lake(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return created(spark, broker, tmp_path_factory.mktemp("all"), *tables(""), "out")


def created(spark: SparkSession, broker: Broker, root: Path, *names: str) -> Lake:
    """Created whole, over sources that had nothing yet; what it reads came afterwards."""
    from confluent_kafka import Producer

    made = Lake(spark, root, f"{root.name}-t", broker.bootstrap, f"{root.name}-out", names)
    for name in (made.topic, made.goes):
        broker.create_topic(name, 2)
    (root / "in").mkdir()
    run_well(spark, made.plan())
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        value = json.dumps({"id": number, "seq": number, "day": "2026-05-01"}) if number % 4 else "{"
        producer.produce(made.topic, value, partition=number % 2)
    assert producer.flush(30) == 0
    return made


def places(plan: Plan, name: str) -> tuple[Path, Path]:
    """The folders of a table and of its checkpoint."""
    table = plan.table(name)
    assert table is not None
    return Path(table.uri), Path(table.checkpoints) / "1"


def assert_whole(plan: Plan) -> None:
    """Every record once, in the table or in its quarantine."""
    every = Counter((number % 2, number // 2) for number in range(RECORDS))
    landed = Counter({at[1:]: count for at, count in coordinates(plan, "bronze.k").items()})
    assert landed == every
    names = [table.name for table in plan.tables]
    for name in REJECTING:
        if name not in names:
            continue
        uri = places(plan, name)[0]
        rejected = Counter(
            (row["_source"]["partition"], row["_source"]["offset"]) for row in rows_at(f"{uri}__quarantine")
        )
        good = Counter((row["id"] % 2, row["id"] // 2) for row in rows(plan, name))
        assert good + rejected == every and rejected.total() == RECORDS // 4, name
    for name, column in (("gold.a", "n"), ("out", "sent")):
        assert name not in names or sum(row[column] for row in rows(plan, name)) == RECORDS
    assert Counter(row["id"] for row in rows(plan, "bronze.f")) == Counter([1, 3])
    assert [row["_source"]["row"] for row in rows_at(f"{places(plan, 'bronze.f')[0]}__quarantine")] == [1]
    for table in plan.tables:
        whole_chain(plan, table.name)


def tables_cut_off(plan: Plan, shift: int) -> None:
    """Each table after another step; what reads another table is not created before that."""
    created: dict[str, bool] = {}
    for number, table in enumerate(plan.tables):
        uri, checkpoint = places(plan, table.name)
        shutil.rmtree(checkpoint.parent)
        shutil.rmtree(f"{uri}__quarantine", ignore_errors=True)
        possible = [step for step in STEPS if step not in DONE or all(created[name] for name in table.upstream)]
        step = possible[(number + shift) % len(possible)]
        created[table.name] = step in DONE
        cut_off(uri, step)


def quarantines_cut_off(plan: Plan, shift: int) -> None:
    """Each quarantine, and the list of files, after another step; the list is created before its table."""
    steps = list(STEPS)
    names = [table.name for table in plan.tables]
    for number, name in enumerate(name for name in REJECTING if name in names):
        uri, checkpoint = places(plan, name)
        shutil.rmtree(checkpoint.parent)
        cut_off(Path(f"{uri}__quarantine"), steps[(number + shift) % len(steps)])
    uri, checkpoint = places(plan, "bronze.f")
    for folder in (uri, Path(f"{uri}__quarantine"), checkpoint.parent):
        shutil.rmtree(folder)
    cut_off(Path(plan.lake) / "_penstock" / "files" / "bronze.f", steps[(shift + 3) % len(steps)])


def checkpoints_cut_off(plan: Plan, shift: int) -> None:
    for number, table in enumerate(plan.tables):
        _, checkpoint = places(plan, table.name)
        cut_off_checkpoint(checkpoint, (number + shift) % (len(CHECKPOINT) + 1))


Cut = Callable[["Plan", int], None]
CASES: list[tuple[Cut, int]] = [(tables_cut_off, shift) for shift in range(len(STEPS))]
CASES += [(quarantines_cut_off, shift) for shift in range(len(STEPS))]
CASES += [(checkpoints_cut_off, shift) for shift in range(len(CHECKPOINT) + 1)]


def test_tables_whose_creation_was_cut_off_are_created_by_the_next_start(lake: Lake, tmp_path: Path) -> None:
    """A table, the quarantine of another, and the list of files of a third."""
    plan = lake.copied(tmp_path / "copy")
    quarantines_cut_off(plan, LIST_WITH_AN_EMPTY_LOG)
    uri, checkpoint = places(plan, "bronze.k")
    shutil.rmtree(checkpoint.parent)
    cut_off(uri, "half of it")
    run_well(lake.spark, plan)
    assert_whole(plan)


@pytest.mark.deep
@pytest.mark.parametrize(("how", "shift"), CASES)
def test_whatever_step_was_the_last_the_next_start_begins_again(
    whole_lake: Lake, tmp_path: Path, how: Cut, shift: int
) -> None:
    plan = whole_lake.copied(tmp_path / "copy")
    how(plan, shift)
    run_well(whole_lake.spark, plan)
    assert_whole(plan)


def test_a_folder_with_files_of_others_and_no_commit_is_refused_and_nothing_in_it_is_touched(
    spark: SparkSession, topic: Callable[..., str], project: Callable[..., Plan]
) -> None:
    """Data without a log, a log that lost its commits, and notes of a person."""
    held = {
        "bronze.a": "part-0.snappy.parquet",
        "bronze.b": f"_delta_log/{10:020d}.checkpoint.parquet",
        "bronze.c": "notes.txt",
        "bronze.d": "_delta_log/_last_checkpoint",
    }
    name = topic(1)
    plan = project({table: {"from": {"kafka": name}} for table in held})
    for table, file in held.items():
        uri, _ = places(plan, table)
        (uri / "_delta_log").mkdir(parents=True)
        (uri / "_delta_log" / f".{0:020d}.json.x.tmp").write_text("{}")
        (uri / file).write_text("mine")
    before = {table: sorted(places(plan, table)[0].rglob("*")) for table in held}
    heard = run(spark, plan)
    for table, file in held.items():
        error = heard.errors[table]
        assert isinstance(error, TableChanged) and file in error.message, error
        assert sorted(places(plan, table)[0].rglob("*")) == before[table]
        assert (places(plan, table)[0] / file).read_text() == "mine"


@pytest.mark.deep
def test_a_reset_of_a_table_that_was_put_back_needs_no_second_one_if_it_is_killed_after_its_commit(
    spark: SparkSession,
    broker: Broker,
    topic: Callable[..., str],
    project: Callable[..., Plan],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from penstock.operations import reset as module
    from penstock.operations.reset import plan_reset
    from penstock.storage.stores import LocalStore

    name = topic(2)
    sent = produce(broker.bootstrap, name, 6)
    plan = project({"bronze.k": {"from": {"kafka": name}}})
    run_well(spark, plan)
    (table,) = plan.tables
    _, checkpoint = places(plan, "bronze.k")
    shutil.copytree(checkpoint, checkpoint.with_name("3"))  # of a state of the table that was ahead of this one
    assert "put back to an older state" in run(spark, plan).errors["bronze.k"].message

    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_make_checkpoint", killed)
    asked = plan_reset(table, LocalStore(), "ledger")
    with pytest.raises(KeyboardInterrupt):
        module.run_reset(spark, plan, asked)
    sent += produce(broker.bootstrap, name, 4)
    run_well(spark, plan)
    assert coordinates(plan, "bronze.k") == sent
