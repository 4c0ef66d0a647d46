"""Entries without rows: fencing by a new generation, and carrying an old entry forward."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Fenced
from penstock.ledger.generations import CARRY_AFTER_MS, carry_forward, open_generation
from penstock.ledger.head import LedgerHead, read_head
from penstock.ledger.writer import BatchProcessor
from penstock.storage.locks import JvmLock, acquire_commit, lock_path
from tests.integration.run_plan import (
    TABLE,
    checkpoint,
    coordinates,
    log,
    produce,
    run_well,
    running,
    wait_for,
    whole_chain,
)


@pytest.fixture
def landed(spark: Any, broker: Any, topic: Any, project: Any) -> tuple[Any, str, Any]:
    name = topic()
    plan = project({TABLE: {"from": {"kafka": name}, "trigger": "1s"}})
    produced = produce(broker.bootstrap, name, 4)
    run_well(spark, plan)
    return plan, name, produced


def tail_of(plan: Any) -> LedgerHead:
    tail = read_head(log(plan.tables[0]))
    assert tail is not None
    return tail


def open_next(spark: Any, plan: Any) -> LedgerHead:
    """Another process opens the next generation where the table stands."""
    table = plan.tables[0]
    lock = JvmLock(spark, lock_path(plan.system, table.name, "commit"))
    acquire_commit(lock, table.name)
    try:
        tail = tail_of(plan)
        last = tail.entry
        return open_generation(
            spark,
            log(table),
            tail,
            table.uri,
            after=last.after,
            topics=last.topics,
            subscription=last.subscription,
            definition=last.pins.definition,
            note="for a test",
        )
    finally:
        lock.release()


def test_a_writer_of_an_older_generation_is_fenced_and_goes_on_from_the_ledger(
    spark: Any, broker: Any, landed: Any
) -> None:
    plan, name, produced = landed
    with running(spark, plan) as heard:
        produced += produce(broker.bootstrap, name, 2)
        wait_for(lambda: len(heard.batches) == 1)
        open_next(spark, plan)
        produced += produce(broker.bootstrap, name, 2)
        wait_for(lambda: len(heard.batches) == 2)
        assert heard.heard("generation 1 was replaced by generation 2")
    assert coordinates(plan) == produced
    assert [entry.key for entry in whole_chain(plan)] == [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]


class _NoRows(BatchProcessor):
    @property
    def suppression_changed(self) -> bool:
        return False

    def write(self, *_: Any, **__: Any) -> None:
        pytest.fail("no row may be made")

    pin = complete = write

    def release(self) -> None:
        pass


def test_a_fenced_writer_writes_nothing(spark: Any, broker: Any, landed: Any) -> None:
    from penstock.kafka.client import Admin
    from penstock.ledger.writer import BatchWriter
    from penstock.operations.prepare import prepare
    from penstock.sources.kafka import KafkaKind
    from penstock.sources.topics import TopicsReader
    from penstock.storage.locks import NoLock
    from penstock.storage.stores import LocalStore
    from penstock.tables.session import TableSession

    plan, name, produced = landed
    table = plan.tables[0]
    source = TopicsReader(KafkaKind(), table.source, Admin(table.source.cluster), table.name)
    session = TableSession(spark, table, LocalStore(), source, NoLock(), idempotent=False)
    ready = prepare(session, say=lambda _: None)
    writer = BatchWriter(ready.settings, ready.head)
    open_next(spark, plan)
    before = log(table).versions()
    meta = (checkpoint(plan) / "offsets" / "1").read_text().split("\n")[1]
    (checkpoint(plan) / "offsets" / "2").write_text("\n".join(["v1", meta, f'{{"{name}":{{"0":3,"1":3}}}}']))
    with pytest.raises(Fenced):
        writer.write(None, 2, _NoRows())  # type: ignore[arg-type]
    assert log(table).versions() == before
    assert coordinates(plan) == produced


def test_a_start_after_a_new_generation_uses_a_checkpoint_of_its_own(spark: Any, broker: Any, landed: Any) -> None:
    plan, name, produced = landed
    open_next(spark, plan)
    produced += produce(broker.bootstrap, name, 2)
    heard = run_well(spark, plan)
    assert [written.batch for written in heard.batches] == [1]
    assert heard.heard("checkpoint rebuilt from the ledger at batch 2.0")
    assert coordinates(plan) == produced
    shutil.rmtree(checkpoint(plan, 2))
    produced += produce(broker.bootstrap, name, 2)
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_a_checkpoint_of_a_later_generation_than_the_table_is_refused(spark: Any, broker: Any, landed: Any) -> None:
    from penstock.errors import TableChanged
    from tests.integration.run_plan import refusal

    plan, name, _ = landed
    uri = plan.tables[0].uri
    shutil.copytree(uri, Path(plan.root) / "older")
    open_next(spark, plan)
    produce(broker.bootstrap, name, 2)
    run_well(spark, plan)
    shutil.rmtree(uri)
    shutil.copytree(Path(plan.root) / "older", uri)
    assert "checkpoint of generation 2" in str(refusal(spark, plan, TableChanged))


def test_an_old_entry_is_carried_forward_and_the_chain_goes_on_after_it(spark: Any, broker: Any, landed: Any) -> None:
    plan, name, produced = landed
    table = plan.tables[0]
    tail = tail_of(plan)
    soon, late = (tail.commit.timestamp_ms + CARRY_AFTER_MS + moved for moved in (-1, 1))
    assert carry_forward(spark, log(table), tail, table.uri, now_ms=soon) == tail
    carried = carry_forward(spark, log(table), tail, table.uri, now_ms=late)
    assert (carried.entry.kind, carried.entry.key, carried.entry.after) == ("carry", (1, 1), tail.entry.after)
    assert carried.counts == tail.counts
    produced += produce(broker.bootstrap, name, 2)
    heard = run_well(spark, plan)
    assert [written.batch for written in heard.batches] == [2]
    assert not heard.messages
    assert coordinates(plan) == produced
    assert [entry.kind for entry in whole_chain(plan)] == ["genesis", "batch", "carry", "batch"]
    assert tail_of(plan).counts.total == 6


def test_a_checkpoint_is_healed_from_a_carried_entry(spark: Any, broker: Any, landed: Any) -> None:
    plan, name, produced = landed
    table = plan.tables[0]
    for _ in range(2):  # an idle table is carried again and again
        tail = tail_of(plan)
        carry_forward(spark, log(table), tail, table.uri, now_ms=tail.commit.timestamp_ms + CARRY_AFTER_MS + 1)
    shutil.rmtree(checkpoint(plan))
    produced += produce(broker.bootstrap, name, 2)
    heard = run_well(spark, plan)
    assert heard.heard("batch 1 was in the table already: skipped")
    assert coordinates(plan) == produced
    whole_chain(plan)


def test_a_commit_lock_held_elsewhere_makes_a_batch_wait(spark: Any, broker: Any, landed: Any) -> None:
    from penstock.storage.locks import ProcessLock

    plan, name, produced = landed
    lock = ProcessLock(lock_path(plan.system, TABLE, "commit"))
    with running(spark, plan) as heard:
        wait_for(lambda: lock.try_acquire())
        timer = threading.Timer(2.0, lock.release)
        produced += produce(broker.bootstrap, name, 2)
        timer.start()
        assert not heard.batches
        wait_for(lambda: len(heard.batches) == 1)
        timer.join()
    lock.close()
    assert coordinates(plan) == produced
