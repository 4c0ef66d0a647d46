"""The target of a sink, from its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kafka.client import Admin
from penstock.ledger.delta_log import DeltaLog
from penstock.plan.model import ChangeSink, JdbcTarget, KafkaTarget, RedisTarget, SearchTarget
from penstock.sinks.jdbc import JdbcTable
from penstock.sinks.kafka import TopicTarget
from penstock.sinks.redis import RedisKeys
from penstock.sinks.search import SearchIndex

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import TablePlan
    from penstock.sinks.base import Shape, SinkTarget
    from penstock.storage.stores import Store


def open_target(spark: SparkSession, table: TablePlan, store: Store, shape: Shape) -> SinkTarget:
    sink, source = table.sink, table.delta
    assert isinstance(sink, ChangeSink) and source is not None
    plan = sink.target
    match plan:
        case JdbcTarget():
            return JdbcTable(spark, table.name, plan, shape)
        case SearchTarget():
            log = DeltaLog(store, source.uri, source.table or source.uri)
            return SearchIndex(table.name, plan, shape, lambda: log.versions()[-1])
        case RedisTarget():
            return RedisKeys(table.name, plan, shape)
        case KafkaTarget():
            return TopicTarget(spark, table.name, plan, shape, Admin(plan.cluster))
