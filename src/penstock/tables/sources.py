"""The source of a table, opened: by its kind, or by the function of a table with `stream`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.sources.registry import SourceContext, source_kind
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
        return source_kind(table.source.kind).open(table, context)
