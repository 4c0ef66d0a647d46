"""The source of a table, opened: by the kind of the source, and for sinks and `stream` by the kind of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.kafka.client import Admin
from penstock.plan.model import SinkPlan
from penstock.sources.registry import SourceContext, source_kind
from penstock.tables.sink import SinkReader
from penstock.tables.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.source import Source
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store


class Sources:
    """Those of a run's tables."""

    def __init__(self, open_store: Callable[[str], Store], spark: SparkSession | None = None) -> None:
        """The session lists files, and asks the function of a table with `stream` what it reads."""
        self._context = SourceContext(open_store, spark)

    def open(self, table: TablePlan) -> Source:
        """At each start of a table: what it asks outside, it asks again."""
        context = self._context
        if table.stream is not None:
            return StreamReader(context.spark, table, context.open_store)
        if isinstance(table.sink, SinkPlan) and table.delta is not None:
            store = context.open_store(table.delta.uri)
            return SinkReader(table.delta, store, table.name, table.sink, Admin(table.sink.cluster))
        return source_kind(table.source.kind).open(table, context)
