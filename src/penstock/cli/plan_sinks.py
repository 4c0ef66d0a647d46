"""Where a sink sends, as `plan` shows it."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.plan.model import Cluster, SinkPlan
from penstock.plan.target import ChangeSink, JdbcTarget, KafkaTarget, RedisTarget
from penstock.spec.quantity import duration_text


def target_facts(sink: SinkPlan | ChangeSink) -> Iterable[tuple[str, str]]:
    yield "to", sink.said
    if isinstance(sink, ChangeSink):
        yield from _followed(sink)
        return
    yield "cluster", cluster_text(sink.cluster)
    yield "key", sink.key or "none"
    yield "value", sink.value or "all columns but _source, as a JSON object"
    for name, expression in sink.headers.items():
        yield "header", f"{name}: {expression}"
    by = "place of its record in Kafka" if sink.coordinates else "file of the table and what is sent"
    yield "promise", f"each row at least once; the header penstock-id, made of the {by}, is the same each time"


def _followed(sink: ChangeSink) -> Iterable[tuple[str, str]]:
    target = sink.target
    if isinstance(target, KafkaTarget):
        yield "cluster", cluster_text(target.cluster)
    elif target.user is not None:
        yield "as", target.user
    yield "keys", ", ".join(sink.keys)
    sent = ", ".join(sink.columns) or "all but those that Penstock adds"
    if isinstance(target, KafkaTarget):
        yield "value", target.value or f"columns as a JSON object: {sent}; of a delete none (a tombstone)"
        for name, expression in target.headers.items():
            yield "header", f"{name}: {expression}"
    else:
        yield "columns", sent
    if isinstance(target, JdbcTarget):
        yield "if missing", "the table is made" if target.create else "the sink stops"
    if isinstance(target, RedisTarget):
        ttl = f", forgotten after {duration_text(target.ttl_ms / 1000)}" if target.ttl_ms is not None else ""
        yield "value", {"json": "a JSON object", "hash": "a hash, a field per column"}[target.form] + ttl
    yield "promise", target.promise
    yield "rejected", "what cannot be sent goes to its quarantine, with the reason"


def cluster_text(cluster: Cluster) -> str:
    login = f" as {cluster.username}, {cluster.mechanism}" if cluster.mechanism else ""
    return f"{cluster.name}: {cluster.bootstrap} ({cluster.protocol}{login})"
