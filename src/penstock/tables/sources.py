"""The sources of a run's tables: one client for all that read the same cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.kafka.client import Admin
from penstock.plan.model import KafkaSource, SinkPlan
from penstock.plan.sources import FilesSource
from penstock.sources.delta import DeltaReader
from penstock.sources.files.source import FilesReader
from penstock.sources.kafka import KafkaReader
from penstock.tables.sink import SinkReader
from penstock.tables.stream import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.source import Source
    from penstock.plan.model import Cluster, TablePlan
    from penstock.storage.stores import Store


class Sources:
    def __init__(self, open_store: Callable[[str], Store], spark: SparkSession | None = None) -> None:
        """The session lists files, and is for tables with `stream`, whose function is asked what it reads; tables that
        read other sources do without."""
        self._open_store = open_store
        self._spark = spark
        self._admins: dict[str, Admin] = {}
        self._lock = threading.Lock()

    def open(self, table: TablePlan) -> Source:
        """At each start of a table: what it asks outside is asked anew."""
        source = table.source
        if isinstance(source, KafkaSource):
            return KafkaReader(source, self._admin(source.cluster), table.name)
        if table.stream is not None:
            assert self._spark is not None
            return StreamReader(self._spark, table, self._open_store)
        if isinstance(source, FilesSource):
            assert self._spark is not None
            return FilesReader(self._spark, source, self._open_store(source.uri), table.name)
        if isinstance(table.sink, SinkPlan):
            admin = self._admin(table.sink.cluster)
            return SinkReader(source, self._open_store(source.uri), table.name, table.sink, admin)
        recomputed = table.aggregate is not None and table.aggregate.emit != "final"
        return DeltaReader(
            source,
            self._open_store(source.uri),
            table.name,
            coordinates=table.input.coordinates if table.staged else "carried",
            changes_are="every group is computed anew"
            if recomputed
            else "that is followed"
            if source.changes
            else "it was skipped",
            recomputed=recomputed,
            keep_raising=table.isolates_where,
        )

    def _admin(self, cluster: Cluster) -> Admin:
        with self._lock:
            if cluster.name not in self._admins:
                self._admins[cluster.name] = Admin(cluster)
            return self._admins[cluster.name]
