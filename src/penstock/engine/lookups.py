"""The static side of joins: other tables, read in a batch as of one version each."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.forget.suppression import Suppression
from penstock.engine.merge.tombstones import living
from penstock.engine.protocol.entry import Pins
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.errors import Transient
from penstock.plan.model import TablePlan


class Lookups:
    def __init__(self, table: TablePlan, store: Store) -> None:
        self._table = table.name
        self._places = {one.name: one.uri for one in table.stages.lookups} if table.stages else {}
        self._tables = {one.name: one.table for one in table.stages.lookups} if table.stages else {}
        self._merged = {one.name for one in table.stages.lookups if one.merged} if table.stages else set()
        self._holds = (
            {one.name: one.holds for one in table.stages.lookups if one.holds.subjects} if table.stages else {}
        )
        self._suppression = Suppression(table, store)
        self._logs = {name: DeltaLog(store, uri, name) for name, uri in self._places.items()}

    def newest(self) -> dict[str, int]:
        """Transient while one is not there."""
        found: dict[str, int] = {}
        for name, log in self._logs.items():
            versions = log.versions()
            if not versions:
                raise Transient(
                    f"the lookup {name} does not exist yet: {self._places[name]}",
                    where=self._table,
                    hint=self._made(name),
                )
            found[name] = versions[-1]
        return found

    def _made(self, name: str) -> str:
        table = self._tables[name]
        return f"fill it first: `penstock run {table} --once`" if table else "make it, or correct the path in `lookups`"

    def read(self, spark: SparkSession, pins: Pins) -> dict[str, DataFrame]:
        found = {
            name: spark.read.format("delta").option("versionAsOf", pins.lookups[name]).load(uri)
            for name, uri in self._places.items()
        }
        if self._holds:
            self._suppression.look()
        return {name: self._shown(name, rows) for name, rows in found.items()}

    def _shown(self, name: str, rows: DataFrame) -> DataFrame:
        rows = living(rows) if name in self._merged else rows
        return self._suppression.without(rows, self._holds[name]) if name in self._holds else rows
