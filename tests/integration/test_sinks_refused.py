"""What a sink cannot send: it stops, sends nothing of it, and says which row or expression it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal, Transient
from tests.integration.row_sink import SINK, Shop, ids
from tests.integration.run_plan import run, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def shop(spark: SparkSession, project: Any, broker: Any, topic: Any) -> Shop:
    return Shop(spark, project, broker, topic)


@pytest.mark.deep
def test_a_row_that_is_too_large_stops_the_sink_and_is_named(shop: Shop) -> None:
    plan = shop.plan(value="IF(id = 4, repeat('x', 2000000), name)")
    shop.send(6)
    heard = run(shop.spark, plan)
    error = heard.errors[SINK]
    assert isinstance(error, Terminal)
    assert f"{SINK}/{shop.came}/0/2 has 2,000,0" in error.message
    assert "max.request.size" in (error.hint or "")
    smaller = shop.plan(reads={"where": "id <> 4"})
    run_well(shop.spark, smaller)
    assert len(ids(shop.records)) == 5


@pytest.mark.deep
def test_a_row_that_only_the_broker_finds_too_large_is_named_too(shop: Shop) -> None:
    larger = {"options": {"max.request.size": "8MB", "buffer.memory": "64MB"}}
    plan = shop.plan(value="IF(id = 4, repeat('x', 2000000), name)", to=larger)
    shop.send(6)
    error = run(shop.spark, plan).errors[SINK]
    assert isinstance(error, Terminal)
    assert f"{SINK}/{shop.came}/0/2" in error.message


def test_a_topic_that_does_not_exist_is_asked_for_and_not_made(
    shop: Shop, broker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.kafka.client import Admin
    from penstock.runtime import table_runner

    monkeypatch.setattr(table_runner, "TRIES_ONCE", 1)
    plan = shop.plan(to={"kafka": "nobody-made-it"})
    assert plan.tables[-1].sink is not None
    shop.send(1)
    error = run(shop.spark, plan).errors[SINK]
    assert isinstance(error, Transient)
    assert "topic nobody-made-it does not exist" in error.message
    assert "--create --topic nobody-made-it" in (error.hint or "")
    assert not Admin(plan.tables[-1].sink.cluster).describe(["nobody-made-it"])


@pytest.mark.parametrize(
    ("sink", "said"),
    [
        ({"key": "struct(id)"}, "a record of Kafka holds text or bytes"),
        ({"value": "explode(array('a', 'b'))"}, "no explode"),
        ({"value": "uuid()"}, "something else each time"),
        ({"key": "customer"}, "does not fit its source"),
        ({"value": "max(id)"}, "no aggregate"),
    ],
)
@pytest.mark.deep
def test_an_expression_that_cannot_be_part_of_a_record_is_refused(shop: Shop, sink: dict[str, str], said: str) -> None:
    shop.send(1)
    error = run(shop.spark, shop.plan(**sink)).errors[SINK]
    assert isinstance(error, Terminal)
    assert said in error.message
    assert shop.records == []
