"""The target of a sink, from its plan."""

from __future__ import annotations

from pyspark.sql import SparkSession

from penstock.engine.changes.shape import Shape
from penstock.engine.kafka.admin import Admin
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.targets.jdbc import JdbcTable
from penstock.engine.targets.redis import RedisKeys
from penstock.engine.targets.search import SearchIndex
from penstock.engine.targets.target import Target
from penstock.engine.targets.topic import Topic
from penstock.plan.model import DeltaSource, TablePlan
from penstock.plan.target import ChangeSink, JdbcTarget, KafkaTarget, RedisTarget, SearchTarget


def open_target(spark: SparkSession, table: TablePlan, store: Store, shape: Shape) -> Target:
    sink, source = table.sink, table.source
    assert isinstance(sink, ChangeSink) and isinstance(source, DeltaSource)
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
            return Topic(spark, table.name, plan, shape, Admin(plan.cluster))
