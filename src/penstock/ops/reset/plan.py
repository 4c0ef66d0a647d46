"""What a reset of a table would do, by the kind of its source."""

from __future__ import annotations

from penstock.engine.kafka.admin import Admin
from penstock.engine.store import Store
from penstock.errors import UsageError
from penstock.ops.reset.delta import plan_delta_reset
from penstock.ops.reset.kafka import plan_kafka_reset
from penstock.ops.reset.model import Reset
from penstock.ops.reset.stream import plan_stream_reset
from penstock.plan.model import KafkaSource, TablePlan


def plan_reset(table: TablePlan, store: Store, to: str, only: tuple[str, ...] = ()) -> Reset:
    """`only` names topics; those that are not named keep their position."""
    if table.stream is not None:
        return plan_stream_reset(table, store, to)
    if isinstance(table.source, KafkaSource):
        return plan_kafka_reset(table, store, Admin(table.source.cluster), to, only)
    if only:
        raise UsageError("--topic is for tables that read Kafka", hint=f"{table.name} reads {table.source.table}")
    return plan_delta_reset(table, store, to)
