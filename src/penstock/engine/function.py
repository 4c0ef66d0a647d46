"""What tables do with a micro-batch: land it as it came, or take it through their stages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine import bronze
from penstock.engine.protocol.commit import append
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.function import Rest
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.quarantine import Quarantine
from penstock.engine.stages.dedupe import numbered, without_duplicates
from penstock.engine.stages.function import Made, StagedTable
from penstock.engine.stages.judge import BROUGHT, DROPPED, READ, REJECTED, UNMET
from penstock.engine.store import Store
from penstock.errors import Transient
from penstock.plan.model import TablePlan


class Landing:
    """The record as it came."""

    def __init__(self, table: TablePlan) -> None:
        self._table = table

    def pin(self) -> Mapping[str, int]:
        return {}

    def write(self, batch: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        rows = bronze.rows(batch, self._table, entry.pins) if self._table.columns else batch
        append(rows.coalesce(files), uri, entry, idempotent=idempotent)

    def complete(self, batch: DataFrame, entry: Entry, *, written: bool) -> Rest:
        return Rest()

    def done(self) -> None:
        pass


class Staged:
    """Decoded, transformed, judged; the rejected rows go to quarantine."""

    def __init__(self, table: TablePlan, stages: StagedTable, store: Store, quarantine: Quarantine | None) -> None:
        assert table.stages is not None
        self._stages, self._quarantine = stages, quarantine
        self._lookups = {one.name: one.uri for one in table.stages.lookups}
        self._logs = {name: DeltaLog(store, uri, name) for name, uri in self._lookups.items()}
        self._table = table
        self._made: Made | None = None
        self._kept: DataFrame | None = None

    def pin(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name, log in self._logs.items():
            versions = log.versions()
            if not versions:
                raise Transient(f"the lookup {name} does not exist yet: {self._lookups[name]}", where=self._table.name)
            found[name] = versions[-1]
        return found

    def write(self, batch: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        pins = entry.pins
        self._made = self._stages.make(batch, pins, lookups(batch.sparkSession, self._lookups, pins))
        rows = self._made.rows
        dedupe = self._table.stages.dedupe if self._table.stages else None
        if dedupe is not None:
            self._kept = numbered(rows).persist(StorageLevel.MEMORY_AND_DISK)
            rows = without_duplicates(self._kept, dedupe, uri)
        append(rows.coalesce(files), uri, entry, idempotent=idempotent)

    def done(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.unpersist()

    def complete(self, batch: DataFrame, entry: Entry, *, written: bool) -> Rest:
        made, self._made = self._made, None
        if not written or made is None:
            return self._again(batch, entry)
        told = [observed.result() for observed in made.observed]
        if any(one is None for one in told):
            return self._again(batch, entry)
        found = [one for one in told if one is not None]
        rest = Rest(
            read=found[0][READ],
            rejected=sum(one[REJECTED] for one in found),
            dropped=sum(one[DROPPED] for one in found),
            passed=found[-1][READ] - found[-1][REJECTED] - found[-1][DROPPED],
            unmet={k.removeprefix(UNMET): v for one in found for k, v in one.items() if k.startswith(UNMET)},
        )
        if rest.rejected and self._quarantine is not None:
            self._quarantine.add(self._stages.explained(self._brought(batch, entry.pins, made, found)), entry)
        return rest

    def _brought(self, batch: DataFrame, pins: Pins, made: Made, found: list[dict[str, Any]]) -> DataFrame:
        """The rejected rows that came along with the write, if those are all; else the batch is read again."""
        parts = []
        for stage, (judged, one) in enumerate(zip(made.judged, found, strict=True)):
            if one[REJECTED]:
                rows = judged.rejected()
                if one[BROUGHT].size() == one[REJECTED]:
                    rows = local_rows(batch.sparkSession, one[BROUGHT], rows.schema)
                parts.append(self._stages.with_raw(batch, pins, rows) if stage else rows)
        return reduce(DataFrame.unionByName, parts)

    def _again(self, batch: DataFrame, entry: Entry) -> Rest:
        if self._quarantine is None or self._quarantine.has(entry):
            return Rest()
        made = self._stages.make(batch, entry.pins, lookups(batch.sparkSession, self._lookups, entry.pins))
        first, *later = (judged.rejected() for judged in made.judged)
        whole = reduce(
            DataFrame.unionByName, (first, *(self._stages.with_raw(batch, entry.pins, rows) for rows in later))
        )
        return Rest(rejected=self._quarantine.add(self._stages.explained(whole), entry))


def lookups(spark: SparkSession, uris: Mapping[str, str], pins: Pins) -> dict[str, DataFrame]:
    reader = {name: spark.read.format("delta").option("versionAsOf", pins.lookups[name]) for name in uris}
    return {name: reader[name].load(uri) for name, uri in uris.items()}


def local_rows(spark: SparkSession, rows: Any, schema: StructType) -> DataFrame:
    """Rows that the JVM holds already: they do not pass through Python."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    values = jvm.scala.jdk.javaapi.CollectionConverters.asJava(rows)
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(spark._jsparkSession.createDataFrame(values, kind), spark)
