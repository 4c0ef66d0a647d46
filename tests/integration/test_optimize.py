"""Files that are written anew: in order, without deleted rows, beside streams; and nobody sees a difference."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import LockHeld, Terminal
from penstock.maintenance import optimize as optimize_steps
from penstock.maintenance.optimize import plan_optimize
from penstock.maintenance.tables import exclusive_maintenance, paused_batches, read_history, shared_log, write_memory
from penstock.plan.model import MaintenancePlan
from penstock.plan.quarantine import COMPANIONS
from penstock.runtime import maintenance
from penstock.runtime.maintenance import maintain_table
from penstock.runtime.runner import run_in
from penstock.storage.locks import ProcessLock, lock_path
from penstock.storage.stores import HadoopStore, LocalStore
from penstock.verify.table import verify
from tests.integration.age_lake import age
from tests.integration.run_maintenance import optimize, table_of
from tests.integration.run_plan import Heard, produce, rows, wait_for, whole_chain
from tests.integration.test_without_locks import by_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOSTILE = ('it\'s a "quote"', "back\\slash `tick` %20 ü", None)


def _looked(plan: Any, name: str) -> Any:
    """Without Spark."""
    return plan_optimize(plan, [table_of(plan, name)], LocalStore(), full=False).tables[0]


def test_only_partitions_with_many_new_files_are_put_in_order_whatever_they_are_called(
    spark: SparkSession, project: Any
) -> None:
    tables = {"bronze.t": {"from": {"kafka": "none"}, "write": {"partition_by": ["key"], "zorder_by": ["offset"]}}}
    plan = project(tables)
    uri = table_of(plan, "bronze.t").uri
    for number in range(5):
        values = [(part, number * 10 + n) for n, part in enumerate(HOSTILE)]
        made = spark.createDataFrame(values, "key STRING, offset BIGINT").coalesce(1)
        made.write.format("delta").partitionBy("key").mode("append").save(uri)
    more = spark.createDataFrame([("quiet", 1)], "key STRING, offset BIGINT").coalesce(1)
    more.write.format("delta").mode("append").save(uri)
    (step,) = _looked(plan, "bronze.t").steps
    assert (step.kind, step.files, len(step.partitions)) == ("zorder", 15, 3)
    before = Counter((row["key"], row["offset"]) for row in rows(plan, "bronze.t"))

    done = optimize(spark, plan, "bronze.t")
    assert (done.files_before, done.files) == (16, 4), "one file each, and the quiet partition as it was"
    assert Counter((row["key"], row["offset"]) for row in rows(plan, "bronze.t")) == before
    assert not optimize(spark, plan, "bronze.t").done and not _looked(plan, "bronze.t").steps
    memory = read_history(LocalStore(), plan.system, "bronze.t")
    assert memory.began_ms is None and set(memory.ordered) == {(value,) for value in HOSTILE}

    wrong = project({"bronze.t": {"from": {"kafka": "none"}, "write": {"zorder_by": ["nope"]}}})
    with pytest.raises(Terminal, match="zorder_by: nope: ") as refused:
        optimize(spark, wrong, "bronze.t", full=True)
    assert "columns of the table" in (refused.value.hint or "")


def test_a_clustered_table_is_clustered_once(spark: SparkSession, project: Any) -> None:
    plan = project({"bronze.t": {"from": {"kafka": "none"}, "write": {"cluster_by": ["offset"]}}})
    uri = table_of(plan, "bronze.t").uri
    spark.sql(f"CREATE TABLE delta.`{uri}` (offset BIGINT) USING delta CLUSTER BY (offset)")
    for number in range(5):
        spark.range(number, number + 1).selectExpr("id AS offset").coalesce(1).write.format("delta").mode(
            "append"
        ).save(uri)
    assert [step.kind for step in _looked(plan, "bronze.t").steps] == ["cluster"]
    done = optimize(spark, plan, "bronze.t")
    assert (done.files_before, done.files, [step.kind for step in done.done]) == (5, 1, ["cluster"])
    assert not optimize(spark, plan, "bronze.t").done and not _looked(plan, "bronze.t").steps


@pytest.mark.deep
def test_files_are_looked_after_on_a_lake_without_locks(spark: SparkSession, project: Any, tmp_path: Path) -> None:
    """As on an object store: by Hadoop's file systems."""
    plan = by_uri(project({"bronze.t": {"from": {"kafka": "none"}}}))
    table, store = plan.tables[0], HadoopStore(spark)
    for number in range(5):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(table.uri)
    hold = paused_batches(spark, plan, table.name)
    (said,) = maintain_table("optimize", spark, plan, table, store, hold)
    assert said == "optimized: 5 files as larger ones: 5 files became 1"
    assert maintain_table("vacuum", spark, plan, table, store, hold) == [], "removed a moment ago"
    age(spark, tmp_path / "lake", days=8)
    memory = read_history(store, plan.system, "bronze.t")
    write_memory(store, plan.system, "bronze.t", replace(memory, began_ms=time.time_ns() // 1_000_000 - 9 * 86_400_000))
    (said,) = maintain_table("vacuum", spark, plan, table, store, hold)
    assert said.startswith("not vacuumed: an optimize that began at"), "its files may be in no commit yet"
    write_memory(store, plan.system, "bronze.t", memory)
    (said,) = maintain_table("vacuum", spark, plan, table, store, hold)
    assert said.startswith("vacuumed: 5 files deleted, removed before")
    assert spark.read.format("delta").load(table.uri).count() == 5


@pytest.mark.parametrize("name", ["t", *(f"t{suffix}" for suffix in COMPANIONS)])
def test_a_commit_beside_a_runner_waits_for_the_lock_of_the_table(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    """This process holds it as a runner would; the JVM, another process, commits."""
    lake = str(tmp_path)
    log = tmp_path / "bronze" / name / "_delta_log"
    log.mkdir(parents=True)
    jvm, context = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    conf = jvm.org.apache.hadoop.conf.Configuration(context.hadoopConfiguration())
    for setting, value in shared_log(lake).items():
        conf.set(setting, value)
    store = jvm.penstock.delta.SharedLog(conf)

    def commit(version: int) -> None:
        path = jvm.org.apache.hadoop.fs.Path(f"{log}/{version:020d}.json")
        store.write(path, jvm.java.util.ArrayList(["{}"]).iterator(), False, conf)

    lock = ProcessLock(lock_path(f"{lake}/_penstock", "bronze.t", "commit"))
    assert lock.try_acquire()
    waiting = threading.Thread(target=commit, args=(0,), daemon=True)
    waiting.start()
    waiting.join(0.4)
    assert waiting.is_alive() and not list(log.glob("0*.json"))
    lock.release()
    waiting.join(20)
    assert [file.name for file in log.glob("0*.json")] == [f"{0:020d}.json"]
    assert lock.try_acquire(), "it was given back"
    lock.release()
    with pytest.raises(Exception, match="FileAlreadyExists"):
        commit(0)


def test_two_commands_do_not_look_after_one_table_at_a_time(spark: SparkSession, project: Any) -> None:
    plan = project({"bronze.t": {"from": {"kafka": "none"}}})
    lock = ProcessLock(lock_path(plan.system, "bronze.t", "upkeep"))
    assert lock.try_acquire()
    with (
        pytest.raises(LockHeld, match="another command looks after its files"),
        exclusive_maintenance(spark, plan, "bronze.t"),
    ):
        pass
    lock.release()
    with exclusive_maintenance(spark, plan, "bronze.t"):
        assert not lock.try_acquire()


def test_a_runner_looks_after_its_tables_between_their_batches(
    spark: SparkSession, broker: Any, topic: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Downstream sees none of it, and what fails ends no table."""
    name = topic(partitions=2)
    tables = {
        "bronze.t": {"from": {"kafka": name}, "trigger": "100 ms"},
        "silver.t": {
            "from": {"table": "bronze.t"},
            "decode": {"json": "value", "schema": "id BIGINT NOT NULL"},
            "trigger": "100 ms",
        },
    }
    plan = replace(project(tables), maintenance=MaintenancePlan(optimize_seconds=1.0, vacuum_seconds=2.0))
    monkeypatch.setattr(maintenance, "REST", 0.1)
    monkeypatch.setattr(optimize_steps, "MIN_FILES", 2)
    failed: list[str] = []

    def care(work: Any, *given: Any) -> Any:
        if work == "vacuum" and not failed:
            failed.append(work)
            raise RuntimeError("the disk is on fire")
        return maintain_table(work, *given)

    heard, stop = Heard(), threading.Event()
    monkeypatch.setattr(maintenance, "maintain_table", care)
    thread = threading.Thread(
        target=run_in, args=(spark, plan, plan.tables, heard), kwargs={"once": False, "stop": stop}
    )
    thread.start()
    try:
        sent = 0

        def send() -> None:
            nonlocal sent
            produce(broker.bootstrap, name, 1, partitions=[sent % 2], value=json.dumps({"id": sent}))
            sent += 1
            wait_for(lambda: sum(one.rows for one in heard.batches) == 2 * sent)

        while sum("files as larger ones" in message for message in heard.messages) < 2:
            send()
        send()
        wait_for(lambda: bool(failed))
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive() and not heard.errors
    assert Counter(row["id"] for row in rows(plan, "silver.t")) == Counter(range(sent))
    assert heard.heard("vacuum was not done: the disk is on fire; the table runs on")
    for table in tables:
        whole_chain(plan, table)
    assert {report.verdict for report in verify(plan.tables, LocalStore())} == {"complete"}
