"""The function of a table, from its plan: what its rows look like, and what is needed to run it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import StructField, StructType

from penstock.errors import UsageError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Pins
from penstock.ledger.times import refuse_local_partitions
from penstock.plan.quarantine import quarantine_of
from penstock.sinks.base import Shape, sink_payload
from penstock.sinks.registry import open_target
from penstock.sources.columns import SOURCE
from penstock.sources.files.source import FilesReader
from penstock.tables import landing
from penstock.tables.aggregate import AggregateProcessor, FinalWindowsProcessor, computed
from penstock.tables.files import FileQuarantine, FilesProcessor, files_schema
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.landing import LandingProcessor
from penstock.tables.merge.merge import table_schema
from penstock.tables.merge.tombstones import TombstoneTable, tombstone_table
from penstock.tables.new_fields import Growing, GrownSchema, grows, stages_for
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.quarantine import Quarantine
from penstock.tables.sink import (
    COORDINATES,
    RejectedChanges,
    SinkProcessor,
    sent_schema,
)
from penstock.tables.staged import StagedProcessor
from penstock.tables.stream import StreamProcessor
from penstock.tables.subject_columns import refuse_unknown_places
from penstock.tables.suppression import RowProcessor, SuppressingProcessor, SuppressingRows, Suppression
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.source import Source
    from penstock.ledger.writer import BatchProcessor
    from penstock.plan.model import TablePlan
    from penstock.sinks.base import Shape, SinkPayload
    from penstock.storage.stores import Store

_BY_FILE = "struct<file:string,row:bigint>"


@dataclass(frozen=True)
class TableProcessor:
    schema: StructType
    stages: StagedPipeline | None = None
    source_type: str = ""
    """The type of the rows' coordinates."""
    payload: SinkPayload | None = None
    """Of a sink: what is sent of a batch."""
    files: FilesReader | None = None

    def looking(self, table: TablePlan, store: Store) -> BatchProcessor:
        """For rows that are only looked at: it has no quarantine, and completes nothing."""
        if self.files is not None or table.stream is not None or table.sink is not None:
            raise UsageError(
                f"what {table.name} would become cannot be shown without making it", hint="leave --dry-run out"
            )
        return self._function(table, store, None, Suppression(table, store))

    def ready(
        self, spark: SparkSession, table: TablePlan, store: Store, entry: Entry, *, idempotent: bool
    ) -> BatchProcessor:
        """Under the table's commit lock: the quarantine and the table of tombstones are made if they are not there.
        Tombstones that are there count also if the definition no longer deletes."""
        suppression = Suppression(table, store)
        if table.stream is not None:
            return _forgetting(StreamProcessor(table.stream, suppression), suppression)
        if table.sink is not None:
            return _forgetting(self._sink(spark, table, store, entry, suppression, idempotent=idempotent), suppression)
        quarantine: Quarantine | None = None
        tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
        if table.write.merge is not None and table.write.merge.deletes and tombstones is None:
            tombstones = TombstoneTable(spark, store, table, idempotent=idempotent)
        if tombstones is not None:
            tombstones.create(entry, self.schema)
        if self.files is not None:
            place = quarantine_of(table.name, table.uri)
            beside = FileQuarantine(spark, store, place, self.source_type, suppression, idempotent=idempotent)
            beside.create(entry)
            return FilesProcessor(spark, table, store, self.files, beside, suppression, tombstones)
        if table.may_reject:
            place = quarantine_of(table.name, table.uri)
            quarantine = Quarantine(spark, store, place, self.source_type, suppression, idempotent=idempotent)
            quarantine.create(entry)
        if grows(table):

            def grown(stages: StagedPipeline) -> BatchProcessor:
                return replace(self, stages=stages)._function(table, store, quarantine, suppression, tombstones)

            return Growing(spark, table, store, suppression, grown)
        return self._function(table, store, quarantine, suppression, tombstones)

    def _sink(
        self,
        spark: SparkSession,
        table: TablePlan,
        store: Store,
        entry: Entry,
        suppression: Suppression,
        *,
        idempotent: bool,
    ) -> SinkProcessor:
        assert table.sink is not None and self.payload is not None
        if not table.may_reject:
            target = open_target(spark, table, store, None)
            target.ready(entry)
            return SinkProcessor(table.sink, self.payload, target)
        assert isinstance(self.payload, Shape)
        place = quarantine_of(table.name, table.uri)
        quarantine = Quarantine(spark, store, place, COORDINATES, suppression, idempotent=idempotent)
        quarantine.create(entry)
        target = open_target(spark, table, store, self.payload)
        target.ready(entry)
        return SinkProcessor(table.sink, self.payload, target, RejectedChanges(quarantine, self.payload))

    def _function(
        self,
        table: TablePlan,
        store: Store,
        quarantine: Quarantine | None,
        suppression: Suppression,
        tombstones: TombstoneTable | None = None,
    ) -> BatchProcessor:
        if table.aggregate is not None and table.aggregate.emit != "final":
            return AggregateProcessor(table, store, suppression)
        if table.aggregate is not None:
            return _forgetting(FinalWindowsProcessor(table, quarantine, suppression), suppression)
        if self.stages is None:
            return _forgetting(LandingProcessor(table, suppression), suppression)
        staged = StagedProcessor(table, self.stages, Lookups(table, store), quarantine, suppression, tombstones)
        inner: RowProcessor = SuppressingRows(staged, suppression) if suppression.possible else staged
        if not table.may_reject or (table.stages is not None and table.stages.audit is not None):
            return inner
        return IsolatingProcessor(inner, staged, table, DeltaLog(store, table.uri, table.name))


def _forgetting(inner: BatchProcessor, suppression: Suppression) -> BatchProcessor:
    return SuppressingProcessor(inner, suppression) if suppression.possible else inner


def build_processor(spark: SparkSession, table: TablePlan, store: Store, source: Source) -> TableProcessor:
    """Looks at the source's columns; reads no row."""
    made = _table_function(spark, table, store, source)
    refuse_unknown_places(table, made.schema)
    refuse_local_partitions(spark, made.schema, table.write.partition_by, table.name)
    return made


def _table_function(spark: SparkSession, table: TablePlan, store: Store, source: Source) -> TableProcessor:
    if table.stream is not None:
        return TableProcessor(_plain(source.stream(spark).schema))
    if table.sink is not None:
        return TableProcessor(sent_schema(table.sink), payload=sink_payload(_empty(spark, source), table))
    if isinstance(source, FilesReader):
        schema, kind = files_schema(table, store, source)
        return TableProcessor(schema, source_type=kind, files=source)
    if table.aggregate is not None:
        rows = _empty(spark, source)
        kind = rows.schema[SOURCE].dataType.simpleString() if SOURCE in rows.columns else _BY_FILE
        return TableProcessor(computed(rows, table.aggregate).schema, source_type=kind)
    if not table.staged:
        return TableProcessor(landing.landed_schema(table) if table.columns else _empty(spark, source).schema)
    session = spark.newSession()  # its views are of nobody's business
    stages = stages_for(table, GrownSchema(table, store).require(), "judge") if grows(table) else StagedPipeline(table)
    lookups = Lookups(table, store)
    pins = Pins(0, "", lookups.newest())
    empty, beside = _empty(session, source), lookups.read(session, pins)
    stages.refuse_chance(empty, beside)
    made = stages.make(empty, pins, beside)
    source_type = made.judged[0].rejected().schema[SOURCE].dataType.simpleString()
    return TableProcessor(table_schema(table, made.rows), stages, source_type)


def _plain(schema: StructType) -> StructType:
    """Without the notes of watermarks on its columns."""
    return StructType([StructField(one.name, one.dataType, one.nullable) for one in schema.fields])


def _empty(spark: SparkSession, source: Source) -> DataFrame:
    return spark.createDataFrame([], source.stream(spark).schema)
