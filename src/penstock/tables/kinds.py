"""The kinds of tables: the columns of each, and the processor that writes its batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
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
from penstock.sources.files.format import Survey
from penstock.sources.files.source import FilesReader
from penstock.tables import landing
from penstock.tables.aggregate import AggregateProcessor, FinalWindowsProcessor, aggregate_groups
from penstock.tables.files import FileQuarantine, FilesProcessor, staged_table
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.landing import LandingProcessor
from penstock.tables.merge.merge import table_schema
from penstock.tables.merge.tombstones import TombstoneTable, tombstone_table
from penstock.tables.new_fields import GrowingTableProcessor, GrownSchema, adds_new_fields, stages_for
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.quarantine import Quarantine
from penstock.tables.sink import COORDINATES, RejectedChanges, SinkProcessor, sent_schema
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
    from penstock.storage.stores import Store

_FILE_COORDINATES = "struct<file:string,row:bigint>"


@dataclass(frozen=True)
class OpenTable:
    """What a table is opened with, under its commit lock."""

    spark: SparkSession
    table: TablePlan
    store: Store
    entry: Entry
    suppression: Suppression
    idempotent: bool

    def quarantine(self, source_type: str, kind: type[Quarantine] = Quarantine) -> Quarantine:
        """The table's quarantine, created if missing; `source_type` is the type of the rows' coordinates."""
        location = quarantine_of(self.table.name, self.table.uri)
        quarantine = kind(self.spark, self.store, location, source_type, self.suppression, idempotent=self.idempotent)
        quarantine.create(self.entry)
        return quarantine

    def tombstones(self, schema: StructType) -> TombstoneTable | None:
        """The table's tombstones, created if the merge deletes. Existing ones count even if it no longer does."""
        table, merge = self.table, self.table.write.merge
        tombstones = tombstone_table(self.spark, self.store, table, idempotent=self.idempotent)
        if merge is not None and merge.deletes and tombstones is None:
            tombstones = TombstoneTable(self.spark, self.store, table, idempotent=self.idempotent)
        if tombstones is not None:
            tombstones.create(self.entry, schema)
        return tombstones


class TableKind(ABC):
    """A table with the columns that its source leads to. No rows were read."""

    schema: StructType

    @abstractmethod
    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None: ...

    @abstractmethod
    def open(self, opened: OpenTable) -> BatchProcessor:
        """The processor for its batches. Companion tables, such as the quarantine, are created."""

    def preview(self, table: TablePlan, store: Store, suppression: Suppression) -> BatchProcessor:
        """The processor for rows that are only previewed: it has no quarantine, and completes no batch."""
        raise UsageError(
            f"what {table.name} would become cannot be shown without making it", hint="leave --dry-run out"
        )


class LandingTable(TableKind):
    """Records as they arrived, or a copy of another table."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        self.schema = landing.landed_schema(table) if table.columns else _empty_rows(spark, source).schema

    def open(self, opened: OpenTable) -> BatchProcessor:
        return self.preview(opened.table, opened.store, opened.suppression)

    def preview(self, table: TablePlan, store: Store, suppression: Suppression) -> BatchProcessor:
        return _with_suppression(LandingProcessor(table, suppression), suppression)


class StagedTable(TableKind):
    """Rows that are decoded, transformed, checked, de-duplicated or merged."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        session = spark.newSession()  # for the views of its SQL
        if adds_new_fields(table):
            self.stages = stages_for(table, GrownSchema(table, store).require(), "judge")
        else:
            self.stages = StagedPipeline(table)
        empty = _empty_rows(session, source)
        self.schema, self._source_type = _probe_columns(table, store, self.stages, empty)

    def open(self, opened: OpenTable) -> BatchProcessor:
        table, store, suppression = opened.table, opened.store, opened.suppression
        tombstones = opened.tombstones(self.schema)
        quarantine = opened.quarantine(self._source_type) if table.may_reject else None

        def with_stages(stages: StagedPipeline) -> BatchProcessor:
            return _staged_processor(table, store, stages, quarantine, suppression, tombstones)

        if adds_new_fields(table):
            return GrowingTableProcessor(opened.spark, table, store, suppression, with_stages)
        return with_stages(self.stages)

    def preview(self, table: TablePlan, store: Store, suppression: Suppression) -> BatchProcessor:
        return _staged_processor(table, store, self.stages, None, suppression, None)


class FilesTable(TableKind):
    """Files of a folder, read as their format and their schema say."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        assert isinstance(source, FilesReader)
        self._reader = source
        choice = source.schema.require()
        stages = staged_table(table, source, choice, Survey())
        empty = source.schema.format.rows((), choice, Survey(), 1)
        self.schema, self._source_type = _probe_columns(table, store, stages, empty)

    def open(self, opened: OpenTable) -> BatchProcessor:
        tombstones = opened.tombstones(self.schema)
        quarantine = opened.quarantine(self._source_type, FileQuarantine)
        assert isinstance(quarantine, FileQuarantine)
        return FilesProcessor(
            opened.spark, opened.table, opened.store, self._reader, quarantine, opened.suppression, tombstones
        )


class AggregateTable(TableKind):
    """Groups of another table, recomputed when their rows change."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        rows = _empty_rows(spark, source)
        assert table.aggregate is not None
        self._source_type = rows.schema[SOURCE].dataType.simpleString() if SOURCE in rows.columns else _FILE_COORDINATES
        self.schema = aggregate_groups(rows, table.aggregate).schema

    def open(self, opened: OpenTable) -> BatchProcessor:
        return self.preview(opened.table, opened.store, opened.suppression)

    def preview(self, table: TablePlan, store: Store, suppression: Suppression) -> BatchProcessor:
        return AggregateProcessor(table, store, suppression)


class WindowsTable(AggregateTable):
    """Windows that are written once, when they close: `emit: final`."""

    def open(self, opened: OpenTable) -> BatchProcessor:
        quarantine = opened.quarantine(self._source_type)
        processor = FinalWindowsProcessor(opened.table, quarantine, opened.suppression)
        return _with_suppression(processor, opened.suppression)

    def preview(self, table: TablePlan, store: Store, suppression: Suppression) -> BatchProcessor:
        return _with_suppression(FinalWindowsProcessor(table, None, suppression), suppression)


class StreamTable(TableKind):
    """The result of a function on streaming DataFrames."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        fields = source.stream(spark).schema.fields
        # Without the watermark metadata of its columns.
        self.schema = StructType([StructField(field.name, field.dataType, field.nullable) for field in fields])

    def open(self, opened: OpenTable) -> BatchProcessor:
        assert opened.table.stream is not None
        return _with_suppression(StreamProcessor(opened.table.stream, opened.suppression), opened.suppression)


class SinkTable(TableKind):
    """The ledger of a sink: one row per batch sent."""

    def __init__(self, spark: SparkSession, table: TablePlan, store: Store, source: Source) -> None:
        assert table.sink is not None
        self.schema = sent_schema(table.sink)
        self._payload = sink_payload(_empty_rows(spark, source), table)

    def open(self, opened: OpenTable) -> BatchProcessor:
        table, sink = opened.table, opened.table.sink
        assert sink is not None
        shape = self._payload if isinstance(self._payload, Shape) else None
        rejected = RejectedChanges(opened.quarantine(COORDINATES), shape) if shape is not None else None
        target = open_target(opened.spark, table, opened.store, shape)
        target.ready(opened.entry)
        return _with_suppression(SinkProcessor(sink, self._payload, target, rejected), opened.suppression)


TABLE_KINDS: dict[str, type[TableKind]] = {
    "landing": LandingTable,
    "staged": StagedTable,
    "files": FilesTable,
    "aggregate": AggregateTable,
    "windows": WindowsTable,
    "stream": StreamTable,
    "sink": SinkTable,
}
"""By `TablePlan.kind`."""


def resolve_table(
    spark: SparkSession, table: TablePlan, store: Store, source: Source, *, kind: str | None = None
) -> TableKind:
    """The table with its columns; Terminal if its definition does not fit its source. `kind` overrides that of the
    plan, for lines that are given directly instead of read from files."""
    table_kind = TABLE_KINDS[kind or table.kind](spark, table, store, source)
    refuse_unknown_places(table, table_kind.schema)
    refuse_local_partitions(spark, table_kind.schema, table.write.partition_by, table.name)
    return table_kind


def open_table(
    spark: SparkSession, kind: TableKind, table: TablePlan, store: Store, entry: Entry, *, idempotent: bool
) -> BatchProcessor:
    """The processor for the table's batches; called under its commit lock."""
    return kind.open(OpenTable(spark, table, store, entry, Suppression(table, store), idempotent))


def _staged_processor(
    table: TablePlan,
    store: Store,
    stages: StagedPipeline,
    quarantine: Quarantine | None,
    suppression: Suppression,
    tombstones: TombstoneTable | None,
) -> BatchProcessor:
    staged = StagedProcessor(table, stages, Lookups(table, store), quarantine, suppression, tombstones)
    inner: RowProcessor = SuppressingRows(staged, suppression) if suppression.applies else staged
    if not table.may_reject or (table.stages is not None and table.stages.audit is not None):
        return inner
    return IsolatingProcessor(inner, staged, table, DeltaLog(store, table.uri, table.name))


def _with_suppression(inner: BatchProcessor, suppression: Suppression) -> BatchProcessor:
    return SuppressingProcessor(inner, suppression) if suppression.applies else inner


def _empty_rows(spark: SparkSession, source: Source) -> DataFrame:
    return spark.createDataFrame([], source.stream(spark).schema)


def _probe_columns(table: TablePlan, store: Store, stages: StagedPipeline, empty: DataFrame) -> tuple[StructType, str]:
    """The columns of the table and the type of its rows' coordinates. `empty` has the columns of a batch."""
    lookups = Lookups(table, store)
    pins = Pins(0, "", lookups.newest())
    frames = lookups.read(empty.sparkSession, pins)
    stages.refuse_chance(empty, frames)
    result = stages.run(empty, pins, frames)
    source_type = result.classified[0].rejected_rows().schema[SOURCE].dataType.simpleString()
    return table_schema(table, result.rows), source_type
