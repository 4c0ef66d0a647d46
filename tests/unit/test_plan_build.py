from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.plan.build import build_plan, plan_document
from penstock.plan.model import Plan, TablePlan
from penstock.spec.project import Project
from tests.unit.project_file import HEAD, load


def project(root: Path = Path("/shop"), **changes: Any) -> Project:
    given: dict[str, Any] = {
        "name": "shop",
        "lake": "./lake",
        "kafka": {"bootstrap": "127.0.0.1:9092"},
        "tables": {"bronze.orders": {"from": {"kafka": "orders"}}},
        "root": root,
    }
    return Project(**(given | changes))


def table_of(definition: dict[str, Any], **changes: Any) -> TablePlan:
    return build_plan(project(tables={"bronze.orders": {"from": {"kafka": "orders"}} | definition}, **changes)).tables[
        0
    ]


@pytest.mark.parametrize(
    ("lake", "place", "local"),
    [
        ("./lake", "/shop/lake", True),
        ("../lake/", "/lake", True),
        ("/data/lake", "/data/lake", True),
        ("file:///data/my%20lake/", "/data/my lake", True),
        ("file:/data", "/data", True),
        ("s3a://bucket/lake/", "s3a://bucket/lake", False),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x", False),
    ],
)
def test_the_lake_is_an_absolute_path_or_a_uri(lake: str, place: str, local: bool) -> None:
    plan = build_plan(project(lake=lake))
    assert (plan.lake, plan.local) == (place, local)
    assert plan.tables[0].uri == f"{place}/bronze/orders"
    assert plan.tables[0].checkpoints == f"{place}/_penstock/checkpoints/bronze.orders"


@pytest.mark.parametrize(
    ("master", "conf", "tasks"),
    [
        ("local", {}, 1),
        ("local[3]", {}, 3),
        ("local[*]", {}, 6),
        ("local[*, 4]", {}, 6),
        ("local-cluster[2, 3, 1024]", {}, 6),
        ("spark://h:7077", {}, 8),
        ("yarn", {"spark.default.parallelism": "40"}, 40),
    ],
)
def test_parallelism_follows_the_master(master: str, conf: dict[str, str], tasks: int) -> None:
    plan = build_plan(project(spark={"master": master, "conf": conf}), cores=6)
    assert plan.parallelism == tasks
    assert plan.conf["spark.sql.shuffle.partitions"] == str(tasks)


def test_confs_of_the_user_win_and_are_told_as_theirs() -> None:
    plan = build_plan(project(spark={"conf": {"spark.driver.memory": "1g"}}))
    assert plan.conf["spark.driver.memory"] == "1g"
    (setting,) = [setting for setting in plan.settings if setting.name == "spark.driver.memory"]
    assert setting.why.startswith("yours")


@pytest.mark.parametrize(("tables", "late"), [(1, True), (8, True), (9, False), (100, False)])
def test_code_is_compiled_late_only_where_there_are_few_tables(tables: int, late: bool) -> None:
    names = {f"bronze.t{number}": {"from": {"kafka": f"t{number}"}} for number in range(tables)}
    options = build_plan(project(tables=names)).conf["spark.driver.extraJavaOptions"]
    assert ("Tier4InvocationThreshold" in options) is late


def test_every_conf_has_a_reason() -> None:
    plan = build_plan(project())
    assert {setting.name: setting.value for setting in plan.settings} == plan.conf
    assert all(setting.why for setting in plan.settings)


def test_the_checkpoint_manager_is_chosen_for_local_lakes_alone() -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    assert name in build_plan(project()).conf
    assert name not in build_plan(project(lake="s3a://bucket/lake")).conf


def test_the_driver_listens_on_the_loopback_with_a_local_master_alone() -> None:
    assert build_plan(project()).conf["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.host" not in build_plan(project(spark={"master": "yarn"})).conf


def test_extra_jars_are_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "a.jar").touch()
    (tmp_path / "b.jar").touch()
    plan = build_plan(project(root=tmp_path, spark={"jars": ["a.jar", str(tmp_path / "b.jar")]}))
    assert plan.conf["penstock.extra.jars"] == f"{tmp_path}/a.jar,{tmp_path}/b.jar"


def test_client_options_are_penstocks_then_the_clusters_then_the_tables() -> None:
    kafka = {"bootstrap": "h:1", "options": {"max.poll.records": 5, "client.rack": "a"}}
    options = table_of({"from": {"kafka": "t", "options": {"client.rack": "b"}}}, kafka=kafka).source.options
    assert options["isolation.level"] == "read_committed"
    assert options["receive.buffer.bytes"] == "1048576"
    assert options["max.poll.records"] == "5"
    assert options["client.rack"] == "b"


@pytest.mark.parametrize(
    ("own", "default", "bound"),
    [(None, None, 200_000), (None, 7, 7), (5, 7, 5), ("unlimited", 7, None), (None, "unlimited", None)],
)
def test_a_batch_is_bounded_unless_told_otherwise(own: Any, default: Any, bound: int | None) -> None:
    source = {"kafka": "t"} | ({"max_per_trigger": own} if own else {})
    defaults = {"max_per_trigger": default} if default else {}
    assert table_of({"from": source}, defaults=defaults).source.max_per_trigger == bound


def test_offsets_and_times_reach_the_plan() -> None:
    at = table_of({"from": {"kafka": "t", "starting": {"timestamp": "2026-01-01T00:00:00Z"}}}).source.starting
    assert (at.kind, at.timestamp_ms) == ("timestamp", 1767225600000)
    at = table_of({"from": {"kafka": "t", "starting": {"offsets": {"t": {"0": 5, 1: -1}}}}}).source.starting
    assert (at.kind, at.offsets) == ("offsets", {"t": {0: 5, 1: -1}})
    assert table_of({}).source.starting.kind == "earliest"


@pytest.mark.parametrize(
    ("own", "default", "kind", "seconds"),
    [
        (None, None, "interval", 30),
        (None, "1m", "interval", 60),
        ("10s", "1m", "interval", 10),
        ({"sla": "1h"}, None, "interval", 1200),
        ("available-now", "1m", "available-now", None),
        (None, "once", "once", None),
    ],
)
def test_triggers_and_their_reasons(own: Any, default: Any, kind: str, seconds: float | None) -> None:
    trigger = table_of({"trigger": own} if own else {}, defaults={"trigger": default} if default else {}).trigger
    assert (trigger.kind, trigger.seconds) == (kind, seconds)
    assert trigger.why


def test_a_binary_payload_has_no_second_columns() -> None:
    assert list(table_of({"payload": "binary"}).columns) == [
        "key", "value", "headers", "topic", "partition", "offset", "kafka_timestamp", "ingestion_timestamp",
    ]  # fmt: skip


def test_tables_are_created_with_statistics_on_what_is_searched_for() -> None:
    properties = table_of({"columns": {"offset": "kafka.offset", "topic": "source"}}).properties
    assert properties["delta.enableInCommitTimestamps"] == "true"
    assert properties["delta.checkpointInterval"] == "100"
    stats = properties["delta.dataSkippingStatsColumns"]
    assert stats == "partition,`kafka.offset`,kafka_timestamp,ingestion_timestamp"


@pytest.mark.parametrize("topics", [["orders", "refunds"], {"pattern": "events-.*"}])
def test_the_topic_is_searched_for_where_there_can_be_several(topics: Any) -> None:
    stats = table_of({"from": {"kafka": topics}}).properties["delta.dataSkippingStatsColumns"]
    assert stats == "topic,partition,offset,kafka_timestamp,ingestion_timestamp"


def test_properties_of_the_user_win() -> None:
    properties = table_of({"write": {"properties": {"delta.checkpointInterval": 20, "owner": "sales"}}}).properties
    assert (properties["delta.checkpointInterval"], properties["owner"]) == ("20", "sales")


def test_the_definition_changes_with_what_decides_the_rows() -> None:
    base = table_of({}).definition
    assert len(base) == 16
    for changed in (
        {"payload": "binary"},
        {"columns": {"value": "x"}},
        {"from": {"kafka": ["orders", "refunds"]}},
        {"from": {"kafka": {"pattern": "orders"}}},
        {"from": {"kafka": "orders", "options": {"isolation.level": "read_uncommitted"}}},
    ):
        assert table_of(changed).definition != base, changed


def test_the_definition_does_not_change_with_rates_places_and_addresses() -> None:
    base = table_of({}).definition
    assert table_of({"trigger": "5s", "write": {"properties": {"owner": "x"}}}).definition == base
    assert table_of({"from": {"kafka": "orders", "max_per_trigger": 5, "starting": "latest"}}).definition == base
    assert table_of({}, kafka={"bootstrap": "other:9092"}, lake="/elsewhere").definition == base
    two = [table_of({"from": {"kafka": topics}}).definition for topics in (["a", "b"], ["b", "a"])]
    assert two[0] == two[1]


def test_the_document_of_a_plan_is_json_and_can_be_of_some_tables(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path, HEAD + "tables: {a: {from: {kafka: t}}, b: {from: {kafka: {pattern: x.*}}}}"))
    document = json.loads(json.dumps(plan_document(plan, ["b"])))
    assert [table["name"] for table in document["tables"]] == ["b"]
    assert document["tables"][0]["origin"].endswith("penstock.yml:4")


def test_a_plan_is_plain_data_that_compares() -> None:
    plan: Plan = build_plan(project(), cores=2)
    other = build_plan(project(), cores=2)
    assert replace(plan, tables=()) == replace(other, tables=())
