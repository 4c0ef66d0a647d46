"""One sink of the plan: a table of the protocol whose rows go to Kafka; what it keeps in the lake is its ledger."""

from __future__ import annotations

from penstock.plan.definition import hashed
from penstock.plan.delta import delta_plan
from penstock.plan.kafka import cluster_plan
from penstock.plan.model import Input, Setting, SinkPlan, TablePlan
from penstock.plan.properties import property_settings
from penstock.plan.settings import YOURS
from penstock.plan.table import brought_by
from penstock.plan.trigger import trigger_plan
from penstock.spec.graph import multiplies
from penstock.spec.kafka_options import is_producers
from penstock.spec.project import Project
from penstock.spec.sink import Sink
from penstock.spec.upstream import TableFrom
from penstock.spec.write import Write

PRODUCER = (
    Setting("acks", "all", "a row counts as sent when every in-sync copy of the topic has it"),
    Setting("enable.idempotence", "true", "a request that the client repeats by itself does not double a record"),
    Setting("linger.ms", "20", "records go out in larger requests; the end of a batch does not wait for it"),
)


def sink_plan(project: Project, name: str, lake: str) -> TablePlan:
    sink = project.sinks[name]
    source, source_settings = delta_plan(project, sink.source, lake)
    target, target_settings = _target(project, sink)
    properties = property_settings(Write(), {})
    decides = {
        "table": source.table or source.uri,
        "where": source.where,
        "options": dict(source.options),
        "cluster": target.cluster.name,
        "topic": target.topic,
        "key": target.key,
        "value": target.value,
        "headers": dict(target.headers),
    }
    upstream = (sink.source.table,) if isinstance(sink.source, TableFrom) else ()
    return TablePlan(
        name=name,
        source=source,
        payload="string",
        columns={},
        trigger=trigger_plan(sink.trigger, project.defaults.trigger),
        uri=f"{lake}/_penstock/sinks/{name}",
        checkpoints=f"{lake}/_penstock/checkpoints/{name}",
        properties={setting.name: setting.value for setting in properties},
        definition=hashed(decides),
        origin=sink.origin,
        input=Input({}, "file", "file"),
        sink=target,
        upstream=upstream,
        waits_for=upstream,
        settings=(*source_settings, *target_settings, *properties),
    )


def _target(project: Project, sink: Sink) -> tuple[SinkPlan, tuple[Setting, ...]]:
    cluster = cluster_plan(sink.to.cluster, project.cluster(sink.to.cluster), project.root)
    users = {name: value for name, value in cluster.options.items() if is_producers(name)} | sink.to.options
    settings = [setting for setting in PRODUCER if setting.name not in users]
    settings += [Setting(name, value, YOURS) for name, value in users.items()]
    made = SinkPlan(
        cluster=cluster,
        topic=sink.to.kafka,
        key=sink.key,
        value=sink.value,
        headers=dict(sink.headers),
        coordinates=_coordinates(project, sink),
        options={setting.name: setting.value for setting in settings},
    )
    return made, tuple(settings)


def _coordinates(project: Project, sink: Sink) -> tuple[tuple[str, ...], ...] | None:
    """The topic, partition and offset of a row, where no other row of the table can have the same: one record that
    became two rows would be one to a consumer who de-duplicates by them."""
    if not isinstance(sink.source, TableFrom):
        return None
    upstream = project.tables[sink.source.table]
    brought = brought_by(project, upstream)
    if brought.origin != "kafka" or multiplies(upstream, project.tables):
        return None
    parts = ("topic", "partition", "offset")
    if brought.coordinates == "carried":
        return tuple(("_source", part) for part in parts)
    return tuple((brought.raw[part],) for part in parts) if brought.raw else None
