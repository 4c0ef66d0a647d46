"""Records of every kind land unchanged, each once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.integration.run_plan import TABLE, commits, coordinates, make_plan, produce, rows, run_well, whole_chain


def test_keys_values_and_headers_land_as_they_came(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    one = {"partitions": [0]}
    produced = produce(broker.bootstrap, name, 1, **one, key=None, value=b"no key")
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, key="tombstone", value=None, partition=0)
    producer.produce(name, key=None, value=None, partition=0)
    producer.flush(10)
    produced += Counter({(name, 0, 1): 1, (name, 0, 2): 1})
    produced += produce(broker.bootstrap, name, 1, **one, key=b"\xff\xfe", value=b"bad \xc3\x28 byte")
    produced += produce(broker.bootstrap, name, 1, **one, key="", value="")
    produced += produce(
        broker.bootstrap, name, 1, **one, value="żółw 🐢 \u2028 \x00", headers=[("h", b"\xff"), ("n", None)]
    )
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    assert coordinates(plan) == produced
    found = {row["offset"]: row for row in rows(plan)}

    def shown(offset: int) -> tuple[Any, ...]:
        return tuple(found[offset][column] for column in ("key", "key_binary", "value", "value_binary"))

    assert shown(0) == (None, None, "no key", None)
    assert shown(1) == ("tombstone", None, None, None)
    assert shown(2) == (None, None, None, None)
    assert shown(3) == (None, b"\xff\xfe", None, b"bad \xc3\x28 byte")
    assert shown(4) == ("", None, "", None)
    assert shown(5)[2] == "żółw 🐢 \u2028 \x00"
    assert found[5]["headers"] == [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]
    assert found[0]["headers"] is None
    assert all(row["kafka_timestamp"] is not None for row in found.values())


def test_a_payload_kept_as_bytes_and_columns_under_other_names(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=2)
    produced = produce(broker.bootstrap, name, 4, value=b"\x00\xff raw")
    columns = {"value": "payload", "topic": "source_topic", "partition": "p", "offset": "Offset_"}
    plan = project({TABLE: {"from": {"kafka": name}, "payload": "binary", "columns": columns}})
    run_well(spark, plan)
    assert coordinates(plan) == produced
    found = rows(plan)
    assert {row["payload"] for row in found} == {b"\x00\xff raw"}
    assert {"key", "source_topic", "p", "Offset_"} <= set(found[0])
    assert not {"value", "value_binary", "key_binary"} & set(found[0])
    stats = {c.version: c for c in commits(plan)}
    assert stats[1].rows == 4


def test_a_record_of_30_megabytes_lands(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1, max_message_bytes=str(40 << 20))
    large = b"x" * (30 << 20)
    produced = produce(broker.bootstrap, name, 1, partitions=[0], value=large)
    produced += produce(broker.bootstrap, name, 2, partitions=[0])
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    assert coordinates(plan) == produced
    assert max(len(row["value"]) for row in rows(plan)) == len(large)


@pytest.mark.parametrize("shape", ["with.dots.and-dashes_1", "UPPER-lower.", "-begins-with-a-dash", "..a"])
def test_topic_names_with_dots_and_dashes(spark: Any, broker: Any, topic: Any, project: Any, shape: str) -> None:
    name = topic(name=shape)
    produced = produce(broker.bootstrap, name, 3)
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    assert coordinates(plan) == produced


def test_only_committed_records_land_and_the_markers_leave_no_gap_in_the_chain(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    from confluent_kafka import Producer

    name = topic(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{name}"})
    producer.init_transactions(30)
    committed = []
    for number in range(6):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(name, value=str(number), partition=0)
        producer.flush(10)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed.append(str(number))
    plan = project({TABLE: {"from": {"kafka": name, "max_per_trigger": 5}}})
    run_well(spark, plan)
    assert Counter(row["value"] for row in rows(plan)) == Counter(committed * 3)
    whole_chain(plan)


def test_two_tables_of_one_topic_and_two_names_of_one_cluster(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    produced = produce(broker.bootstrap, name, 5)
    plan = project(
        {
            "bronze.one": {"from": {"kafka": name, "cluster": "eu"}},
            "bronze.two": {"from": {"kafka": name, "cluster": "us", "max_per_trigger": 2}},
        },
        clusters={name: {"bootstrap": broker.bootstrap} for name in ("eu", "us")},
    )
    run_well(spark, plan)
    assert coordinates(plan, "bronze.one") == coordinates(plan, "bronze.two") == produced
    assert len(whole_chain(plan, "bronze.two")) > len(whole_chain(plan, "bronze.one"))


def test_a_table_that_fails_leaves_the_others_alone(spark: Any, broker: Any, topic: Any, tmp_path: Any) -> None:
    from penstock.errors import TableChanged
    from tests.integration.run_plan import run

    name = topic()
    plan = make_plan(tmp_path, broker.bootstrap, {t: {"from": {"kafka": name}} for t in ("bronze.bad", "bronze.good")})
    spark.range(3).write.format("delta").save(plan.tables[0].uri)
    produced = produce(broker.bootstrap, name, 3)
    heard = run(spark, plan)
    assert isinstance(heard.errors["bronze.bad"], TableChanged)
    assert heard.outcomes == {"bronze.bad": "failed", "bronze.good": "finished"}
    assert coordinates(plan, "bronze.good") == produced
