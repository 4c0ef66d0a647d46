"""The kinds of sources, and what they are opened with: tables that read the same cluster share one client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from penstock.spec.plugins import SOURCES, plugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.source import Source
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import TopicsSource
    from penstock.sources.topics import LogClient, TopicsKind
    from penstock.storage.stores import Store

TIMEOUT = 15.0
"""Seconds that a request to a cluster may take."""
_BUILT_IN = {
    "kafka": "penstock.sources.kafka:KafkaKind",
    "delta": "penstock.sources.delta:DeltaKind",
    "files": "penstock.sources.files.source:FilesKind",
}
"""Loaded when a table of the kind is opened, because each imports its client, or Spark."""


class SourceKind(Protocol):
    def open(self, table: TablePlan, context: SourceContext) -> Source:
        """Called at each start of a table, so that everything from outside is read again."""


class SourceContext:
    """What sources are opened with. The session lists files, and may be missing where none are read."""

    def __init__(self, open_store: Callable[[str], Store], spark: SparkSession | None = None) -> None:
        self.open_store, self._spark = open_store, spark
        self._clients: dict[tuple[str, str], LogClient] = {}
        self._lock = threading.Lock()

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None
        return self._spark

    def client(self, source: TopicsSource) -> LogClient:
        """Shared by all tables that read the same cluster."""
        key = (source.kind, source.cluster_name)
        with self._lock:
            if key not in self._clients:
                self._clients[key] = open_client(source)
            return self._clients[key]


def source_kind(name: str) -> SourceKind:
    """The kind with this name: a built-in one, or a plugin."""
    kind: SourceKind = _load_kind(name)
    return kind


def open_client(source: TopicsSource, *, timeout: float = TIMEOUT) -> LogClient:
    return topics_kind(source).client(source, timeout=timeout)


def topics_kind(source: TopicsSource) -> TopicsKind:
    kind: TopicsKind = _load_kind(source.kind)
    return kind


def _load_kind(name: str) -> Any:
    if name not in _BUILT_IN:
        return plugin(SOURCES, name)()
    module, _, attribute = _BUILT_IN[name].partition(":")
    return getattr(import_module(module), attribute)()
