"""Opens the source of a table: by its kind, or with the function of a table with `stream`."""

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
    """The sources of a run's tables."""

    def __init__(self, open_store: Callable[[str], Store], spark: SparkSession | None = None) -> None:
        """`spark` lists files, and finds out what the function of a table with `stream` reads."""
        self._context = SourceContext(open_store, spark)

    def open(self, table: TablePlan) -> Source:
        """The table's source, opened at each start of the table: it queries the outside system again each time."""
        context = self._context
        if table.stream is not None:
            return StreamReader(context.spark, table, context.open_store)
        return source_kind(table.source.kind).open(table, context)
