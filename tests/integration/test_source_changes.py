"""Topics that grow, shrink, go, come back or are renamed in the project."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from typing import Any

import pytest

from penstock.errors import DataLoss
from tests.integration.run_plan import (
    TABLE,
    coordinates,
    produce,
    refusal,
    run_well,
    running,
    transaction,
    wait_for,
    whole_chain,
)
from tests.integration.topics import delete_topic, forget_records, make_again, raise_partitions


def of(source: Any, **table: Any) -> dict[str, Any]:
    return {TABLE: {"from": source if isinstance(source, dict) else {"kafka": source}, **table}}


def landed(spark: Any, broker: Any, plan: Any, name: str, count: int = 6) -> Counter[tuple[str, int, int]]:
    produced = produce(broker.bootstrap, name, count)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    return produced


@pytest.mark.parametrize("again", [2, 20], ids=["smaller", "larger"])
def test_a_topic_made_again_is_refused(spark: Any, broker: Any, topic: Any, project: Any, again: int) -> None:
    name = topic()
    plan = project(of(name))
    landed(spark, broker, plan, name)
    make_again(broker, name)
    produce(broker.bootstrap, name, again)
    error = refusal(spark, plan, DataLoss)
    assert f"topic {name} was deleted and recreated" in str(error)
    assert "{0: 3, 1: 3}" in str(error)


@pytest.mark.parametrize("again", [2, 20], ids=["smaller", "larger"])
def test_a_topic_made_again_while_it_is_read_is_refused(
    spark: Any, broker: Any, topic: Any, project: Any, again: int
) -> None:
    """Spark itself sees nothing wrong in a larger one, and would skip its first records."""
    name = topic()
    plan = project(of(name, trigger="1s"))
    produced = produce(broker.bootstrap, name, 6)
    with running(spark, plan) as heard:
        wait_for(lambda: len(heard.batches) == 1)
        make_again(broker, name)
        produce(broker.bootstrap, name, again)
        wait_for(lambda: bool(heard.errors), patience=60)
        assert isinstance(heard.errors[TABLE], DataLoss)
    assert coordinates(plan) == produced


def test_a_topic_that_was_deleted_is_refused(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic()
    plan = project(of(name))
    landed(spark, broker, plan, name)
    delete_topic(broker.bootstrap, name)
    assert f"topic {name} no longer exists" in str(refusal(spark, plan, DataLoss))


def test_retention_that_overtook_the_position_is_refused_with_the_range(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project(of(name))
    landed(spark, broker, plan, name)
    produce(broker.bootstrap, name, 10)
    forget_records(broker.bootstrap, name, 0, 5)
    assert f"2 offsets were removed from Kafka before they were read: {name}-0 [3, 5)" in str(
        refusal(spark, plan, DataLoss)
    )


def test_retention_that_overtakes_a_running_query_is_refused(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic()
    plan = project(of(name, trigger="4s"))
    produced = produce(broker.bootstrap, name, 6)
    with running(spark, plan) as heard:
        wait_for(lambda: len(heard.batches) == 1)
        # Spark's triggers are at whole multiples of the interval: just after one, there is time before the next.
        wait_for(lambda: time.time() % 4 < 1)
        produce(broker.bootstrap, name, 10)
        forget_records(broker.bootstrap, name, 0, 6)
        wait_for(lambda: bool(heard.errors) or len(heard.batches) > 1, patience=60)
        assert isinstance(heard.errors[TABLE], DataLoss)
        assert f"{name}-0 [3, 6)" in str(heard.errors[TABLE])
    assert coordinates(plan) == produced


def test_retention_up_to_the_position_loses_nothing(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic()
    plan = project(of(name))
    produced = landed(spark, broker, plan, name)
    forget_records(broker.bootstrap, name, 0, 3)
    produced += produce(broker.bootstrap, name, 4)
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_partitions_raised_from_2_to_8_while_it_runs_are_read_from_their_start(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=2)
    plan = project(of(name, trigger="1s"))
    produced = produce(broker.bootstrap, name, 6)
    with running(spark, plan) as heard:
        wait_for(lambda: len(heard.batches) == 1)
        raise_partitions(broker.bootstrap, name, 8)
        produced += produce(broker.bootstrap, name, 24, partitions=range(8))
        wait_for(lambda: sum(w.rows for w in heard.batches) == 30, patience=60)
        assert not heard.errors
    assert coordinates(plan) == produced
    whole_chain(plan)


def test_a_new_partition_whose_head_is_gone_is_a_loss(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    plan = project(of(name))
    run_well(spark, plan)
    raise_partitions(broker.bootstrap, name, 2)
    produce(broker.bootstrap, name, 4, partitions=[1])
    forget_records(broker.bootstrap, name, 1, 3)
    assert f"{name}-1 [0, 3)" in str(refusal(spark, plan, DataLoss))


def test_new_topics_of_a_pattern_are_read_from_their_start_while_running_and_while_stopped(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    plan = project(of({"kafka": {"pattern": f"{prefix}-.*"}, "starting": "latest"}, trigger="1s"))
    run_well(spark, plan)  # it matches nothing yet
    assert whole_chain(plan)[0].after == ("{}",)
    topic(name=f"{prefix}-a")
    topic(name=f"other-{prefix}-a")
    topic(name=f"{prefix}x-a")
    produced = produce(broker.bootstrap, f"{prefix}-a", 4)
    produce(broker.bootstrap, f"other-{prefix}-a", 4)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    with running(spark, plan) as heard:
        topic(name=f"{prefix}-b.c")
        produced += produce(broker.bootstrap, f"{prefix}-b.c", 4)
        wait_for(lambda: sum(w.rows for w in heard.batches) == 4, patience=60)
    assert coordinates(plan) == produced
    assert set(whole_chain(plan)[-1].topics) == {f"{prefix}-a", f"{prefix}-b.c"}


def test_a_pattern_does_not_read_kafkas_own_topics(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    prefix = f"p{uuid.uuid4().hex[:8]}"
    topic(name=f"{prefix}-a")
    with transaction(broker.bootstrap, prefix) as producer:  # makes __transaction_state
        producer.abort_transaction(30)
    produced = produce(broker.bootstrap, f"{prefix}-a", 4)
    plan = project(of({"kafka": {"pattern": f"__.*|{prefix}-.*"}}))
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_a_topic_added_to_the_list_begins_by_starting_and_one_taken_out_is_left(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    one, two = topic(), topic()
    produced = landed(spark, broker, project(of(one)), one)
    produce(broker.bootstrap, two, 3)
    plan = project(of({"kafka": [one, two], "starting": "latest"}))
    run_well(spark, plan)
    produced += produce(broker.bootstrap, one, 2) + produce(broker.bootstrap, two, 2)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    plan = project(of(two))
    produce(broker.bootstrap, one, 2)
    produced += produce(broker.bootstrap, two, 2)
    heard = run_well(spark, plan)
    assert heard.heard(f"no longer read: {one}")
    assert coordinates(plan) == produced
    whole_chain(plan)


def test_a_topic_taken_out_and_put_back_goes_on_where_it_was(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    """Its rows are in the table: to begin by `starting` again would double them."""
    one, two = topic(), topic()
    produced = produce(broker.bootstrap, one, 4) + produce(broker.bootstrap, two, 4)
    both = of([one, two])
    run_well(spark, project(both))
    run_well(spark, project(of(one)))
    produced += produce(broker.bootstrap, two, 2)
    plan = project(both)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    whole_chain(plan)


def test_a_list_written_in_another_order_changes_nothing(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    one, two = topic(), topic()
    produced = produce(broker.bootstrap, one, 2)
    run_well(spark, project(of([one, two])))
    plan = project(of([two, one]))
    heard = run_well(spark, plan)
    assert not heard.messages
    assert coordinates(plan) == produced
