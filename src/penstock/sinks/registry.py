"""The kinds of targets: opens the system that a sink sends to, from its plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.kafka.client import Admin
from penstock.ledger.delta_log import DeltaLog
from penstock.plan.targets import RowSink
from penstock.sinks.jdbc import JdbcTable
from penstock.sinks.kafka import TopicRows, TopicTarget
from penstock.sinks.redis import RedisKeys
from penstock.sinks.search import SearchIndex
from penstock.spec.plugins import SINKS, plugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import TablePlan
    from penstock.sinks.base import Shape, SinkTarget
    from penstock.storage.stores import Store


class SinkKind(Protocol):
    def open(self, spark: SparkSession, table: TablePlan, plan: Any, shape: Shape, store: Store) -> SinkTarget:
        """Called at each start of a sink that sends changes; `shape` gives the columns and the key of a row."""


def open_target(spark: SparkSession, table: TablePlan, store: Store, shape: Shape | None) -> SinkTarget:
    """`shape` is that of the changes; None if rows are sent."""
    sink = table.sink
    if isinstance(sink, RowSink):
        return TopicRows(table.name, sink, Admin(sink.cluster))
    assert sink is not None and sink.system is not None and shape is not None
    target = sink.system
    if target.kind in _BUILT_IN:
        return _BUILT_IN[target.kind](spark, table, target, shape, store)
    kind: SinkKind = plugin(SINKS, target.kind)()
    return kind.open(spark, table, target, shape, store)


def _open_search(spark: SparkSession, table: TablePlan, plan: Any, shape: Shape, store: Store) -> SinkTarget:
    assert table.delta is not None
    log = DeltaLog(store, table.delta.uri, table.delta.label)
    return SearchIndex(table.name, plan, shape, lambda: log.versions()[-1])


_BUILT_IN: dict[str, Callable[[SparkSession, TablePlan, Any, Shape, Store], SinkTarget]] = {
    "jdbc": lambda spark, table, plan, shape, _: JdbcTable(spark, table.name, plan, shape),
    "search": _open_search,
    "redis": lambda _, table, plan, shape, __: RedisKeys(table.name, plan, shape),
    "kafka": lambda spark, table, plan, shape, _: TopicTarget(spark, table.name, plan, shape, Admin(plan.cluster)),
}
