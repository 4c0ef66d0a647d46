"""One sink of the plan: a table of the ledger protocol whose rows go elsewhere; the lake holds only its ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from penstock.plan.build_sources import cluster_plan, delta_plan
from penstock.plan.model import USER_SETTING, Input, Setting, TablePlan, definition_hash
from penstock.plan.sources import Cluster
from penstock.plan.subjects import forget_plan
from penstock.plan.table import carried_input, property_settings, trigger_plan
from penstock.plan.targets import (
    ChangeSink,
    JdbcTarget,
    KafkaTarget,
    RedisTarget,
    RowSink,
    SearchTarget,
    SinkPlan,
    TargetPlan,
)
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.graph import may_multiply_records, upstream_keys
from penstock.spec.kafka_cluster import is_producer_option
from penstock.spec.plugins import SINKS, plugin
from penstock.spec.project import Project
from penstock.spec.sink import JdbcTo, KafkaTo, RedisTo, SearchTo, Sink, SinkTo
from penstock.spec.table import Write

PRODUCER = (
    Setting("acks", "all", "a row counts as sent when every in-sync copy of the topic has it"),
    Setting("enable.idempotence", "true", "a request that the client repeats by itself does not double a record"),
    Setting("linger.ms", "20", "records go out in larger requests; the end of a batch does not wait for it"),
)


class SinkPlugin(Protocol):
    """What an entry point of `penstock.sinks` must provide, besides what every kind of target has (sinks/registry.py):
    the model of what a user writes, and the plan built from it."""

    model: type[SinkTo]

    def plan(self, written: Any, *, sink: str, root: Path) -> tuple[TargetPlan, tuple[Setting, ...]]:
        """The target, and every choice about it with its reason. Must neither load Spark nor ask a server."""


def sink_plan(project: Project, name: str, lake: str) -> TablePlan:
    sink = project.sinks[name]
    source, source_settings = delta_plan(project, sink.source, lake)
    target, target_settings = _target(project, name, sink)
    properties = property_settings(Write(), {})
    definition = {**source.decides(), **target.decides()}
    upstream_table = None if isinstance(sink.source, DeltaFrom) else sink.source.table
    upstream = (upstream_table,) if upstream_table is not None else ()
    return TablePlan(
        name=name,
        source=source,
        payload="string",
        columns={},
        trigger=trigger_plan(sink.trigger, project.defaults.trigger),
        uri=f"{lake}/_penstock/sinks/{name}",
        checkpoints=f"{lake}/_penstock/checkpoints/{name}",
        properties={setting.name: setting.value for setting in properties},
        definition=definition_hash(definition),
        origin=sink.origin,
        input=Input({}, "file", "file"),
        sink=target,
        upstream=upstream,
        waits_for=upstream,
        settings=(*source_settings, *target_settings, *properties),
        forget=forget_plan(project, lake),
    )


def _target(project: Project, name: str, sink: Sink) -> tuple[SinkPlan, tuple[Setting, ...]]:
    if isinstance(sink.source, ChangesFrom):
        return _change_sink(project, name, sink, sink.source)
    assert isinstance(sink.to, KafkaTo)
    cluster, options, settings = _producer(project, sink.to)
    row_sink = RowSink(
        cluster=cluster,
        topic=sink.to.kafka,
        key=sink.key,
        value=sink.value,
        headers=dict(sink.headers),
        coordinates=_coordinates(project, sink),
        options=options,
    )
    return row_sink, settings


def _producer(project: Project, to: KafkaTo) -> tuple[Cluster, dict[str, str], tuple[Setting, ...]]:
    cluster = cluster_plan(to.cluster, project.cluster(to.cluster), project.root)
    user_options = {name: value for name, value in cluster.options.items() if is_producer_option(name)} | to.options
    settings = [setting for setting in PRODUCER if setting.name not in user_options]
    settings += [Setting(name, value, USER_SETTING) for name, value in user_options.items()]
    return cluster, {setting.name: setting.value for setting in settings}, tuple(settings)


def _change_sink(
    project: Project, name: str, sink: Sink, source: ChangesFrom
) -> tuple[ChangeSink, tuple[Setting, ...]]:
    to = sink.to
    settings: tuple[Setting, ...] = ()
    target: TargetPlan
    match to:
        case KafkaTo():
            cluster, options, settings = _producer(project, to)
            target = KafkaTarget(cluster, to.kafka, sink.value, dict(sink.headers), options)
        case JdbcTo():
            target = JdbcTarget(to.jdbc, to.table, to.user, to.password, to.create, dict(to.options))
        case SearchTo():
            target = SearchTarget(to.search, to.index, to.user, to.password, to.api_key)
        case RedisTo():
            ttl = None if to.ttl is None else round(to.ttl * 1000)
            target = RedisTarget(to.redis, to.prefix, to.as_, ttl, to.user, to.password)
        case _:
            kind: SinkPlugin = plugin(SINKS, to.kind)()
            target, settings = kind.plan(to, sink=name, root=project.root)
    keys = sink.keys or upstream_keys(source, project.tables)
    return ChangeSink(target, keys, sink.columns), settings


def _coordinates(project: Project, sink: Sink) -> tuple[tuple[str, ...], ...] | None:
    """The columns of a row's topic, partition and offset, if no other row of the table can have the same: a consumer
    who de-duplicates by them would take two rows made from one record for one row."""
    if not isinstance(sink.source, TableFrom):
        return None
    upstream = project.tables[sink.source.table]
    row_input = carried_input(project, upstream)
    if row_input.origin != "kafka" or may_multiply_records(upstream, project.tables):
        return None
    parts = ("topic", "partition", "offset")
    if row_input.coordinates == "carried":
        return tuple(("_source", part) for part in parts)
    return tuple((row_input.raw[part],) for part in parts) if row_input.raw else None
