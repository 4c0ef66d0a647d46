"""Where a table begins, and what it waits for."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.errors import Terminal, Transient
from penstock.operations.reset import plan_reset
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import (
    TABLE,
    coordinates,
    produce,
    refusal,
    run,
    run_well,
    running,
    transaction,
    wait_for,
)


def of(source: Any, **table: Any) -> dict[str, Any]:
    return {TABLE: {"from": source if isinstance(source, dict) else {"kafka": source}, **table}}


def test_starting_at_the_end_reads_only_what_comes_after_genesis(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    produce(broker.bootstrap, name, 4)
    plan = project(of({"kafka": name, "starting": "latest"}))
    run_well(spark, plan)
    produced = produce(broker.bootstrap, name, 3)
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_starting_at_a_time_begins_with_the_first_record_at_or_after_it(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    now = int(time.time() * 1000)
    produce(broker.bootstrap, name, 4, timestamp=now - 60_000)
    produced = produce(broker.bootstrap, name, 3, partitions=[0], timestamp=now)
    at = datetime.fromtimestamp(now / 1000, UTC).isoformat()
    plan = project(of({"kafka": name, "starting": {"timestamp": at}}))
    run_well(spark, plan)
    produced += produce(broker.bootstrap, name, 1, partitions=[1])  # whose partition had nothing after that time
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_starting_at_offsets(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=3)
    produced = produce(broker.bootstrap, name, 12, partitions=[0, 1, 2])
    plan = project(of({"kafka": name, "starting": {"offsets": {name: {0: 2, 1: -2, 2: -1}}}}))
    run_well(spark, plan)
    expected = {key: n for key, n in produced.items() if key[1] == 1 or (key[1] == 0 and key[2] >= 2)}
    assert coordinates(plan) == expected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({0: 0}, "nothing said of partition [1]"),
        ({0: 0, 1: 0, 7: 0}, "no such partition [7]"),
        ({0: 99, 1: 0}, "[0, 2)"),
    ],
)
def test_starting_at_offsets_that_do_not_fit_is_refused(
    spark: Any, broker: Any, topic: Any, project: Any, given: dict[int, int], said: str
) -> None:
    name = topic()
    produce(broker.bootstrap, name, 4)
    plan = project(of({"kafka": name, "starting": {"offsets": {name: given}}}))
    error = refusal(spark, plan, Terminal)
    assert said in str(error)
    assert error.hint


def test_uncommitted_records_that_were_asked_for_are_no_loss_at_the_next_start(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    """The position is beyond what a reader of committed records sees while the transaction is open."""
    name = topic(partitions=1)
    plan = project(of({"kafka": name, "options": {"isolation.level": "read_uncommitted"}}))
    with transaction(broker.bootstrap, f"tx-{name}") as producer:
        producer.produce(name, value="open", partition=0)
        producer.flush(10)
        run_well(spark, plan)
        run_well(spark, plan)
        (report,) = verify(plan.tables, LocalStore())
        assert (report.verdict, report.problems) == ("complete", [])
        reset = plan_reset(plan.tables[0], LocalStore(), "ledger")
        assert (reset.before, reset.read_again, reset.skipped) == (reset.after, (), ())
        producer.commit_transaction(30)
    assert coordinates(plan) == Counter({(name, 0, 0): 1})


def test_a_topic_that_does_not_exist_yet_is_waited_for(
    spark: Any, broker: Any, topic: Any, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.runtime import table_runner

    monkeypatch.setattr(table_runner, "TRIES_ONCE", 2)
    name = f"late-{uuid.uuid4().hex[:8]}"
    plan = project(of(name, trigger="1s"))
    error = run(spark, plan).errors[TABLE]
    assert isinstance(error, Transient)
    assert f"topic {name} does not exist" in str(error)
    with running(spark, plan) as heard:
        wait_for(lambda: heard.heard("does not exist"))
        topic(name=name)
        produced = produce(broker.bootstrap, name, 2)
        wait_for(lambda: len(heard.batches) == 1)
    assert coordinates(plan) == produced
