"""Testing one table of a project: rows from the test as its source, the real processor, temporary Delta tables."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.errors import UsageError
from penstock.ledger.commit import append_entry
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Entry, Pins
from penstock.ledger.head import LedgerHead, read_head
from penstock.ledger.position import Version
from penstock.ledger.row_counts import DROPPED, DUPLICATES, READ, UNMET
from penstock.ledger.write_target import DeltaTableTarget
from penstock.plan.build import build_plan
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of
from penstock.plan.stages import Lookup
from penstock.sources.columns import FILE, ROW, SOURCE
from penstock.spark.expressions import selected
from penstock.spark.session import spark_session
from penstock.spec.base_model import did_you_mean
from penstock.spec.load import load_project
from penstock.spec.project import Project
from penstock.storage.stores import LocalStore
from penstock.tables.kinds import TableKind, open_table, resolve_table

if TYPE_CHECKING:
    from penstock.ledger.source import Source

# The rows of a test, in the form in which the source of a table delivers them.


_KAFKA_COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_DEFAULT_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_DEFAULT_COORDINATES = {
    "topic": "test",
    "partition": 0,
    "kafka_timestamp": _DEFAULT_TIME,
    "ingestion_timestamp": _DEFAULT_TIME,
}


def parse_schema(ddl: str) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl))


def records(spark: SparkSession, rows: Iterable[Mapping[str, Any]], topic: str, first: int) -> DataFrame:
    """Rows as Kafka records. `value` may be text, bytes, or a value to encode as JSON; missing columns get defaults."""
    schema = parse_schema(_KAFKA_COLUMNS)
    record_rows = []
    for number, row in enumerate(rows, start=first):
        _refuse_unknown_columns(row, schema.names)
        record_rows.append(
            {
                "key": _to_bytes(row.get("key")),
                "value": _to_bytes(row.get("value")),
                "topic": row.get("topic", topic),
                "partition": row.get("partition", 0),
                "offset": row.get("offset", number),
                "timestamp": row.get("timestamp", _DEFAULT_TIME),
                "timestampType": 0,
                "headers": [{"key": k, "value": _to_bytes(v)} for k, v in (row.get("headers") or {}).items()] or None,
            }
        )
    return spark.createDataFrame([tuple(record[name] for name in schema.names) for record in record_rows], schema)


def table_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType, first: int = 0) -> DataFrame:
    """Rows of a table with these columns. Missing coordinates get defaults, other missing columns are NULL."""
    values = [tuple(_row_values(row, schema, number)) for number, row in enumerate(rows, start=first)]
    return spark.createDataFrame(values, schema)


def _row_values(row: Mapping[str, Any], schema: StructType, number: int) -> Iterator[Any]:
    _refuse_unknown_columns(row, schema.names)
    for column in schema.fields:
        name = column.name
        if name in row:
            value = row[name]
            is_text = isinstance(column.dataType, StringType) and isinstance(value, dict | list)
            is_binary = isinstance(column.dataType, BinaryType) and value is not None
            yield json.dumps(value) if is_text else _to_bytes(value) if is_binary else value
        elif name == SOURCE:
            yield _source_struct(cast(StructType, column.dataType), number)
        elif name in ("offset", ROW):
            yield number
        elif name == FILE:
            yield "test"
        else:
            yield _DEFAULT_COORDINATES.get(name)


def _source_struct(source_type: StructType, number: int) -> tuple[Any, ...]:
    defaults = {"topic": "test", "partition": 0, "offset": number, "file": "test", "row": number}
    return tuple(defaults[name] for name in source_type.names)


def _to_bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _refuse_unknown_columns(row: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in row:
        if name not in names:
            raise UsageError(f"the source has no column '{name}'", hint=did_you_mean(name, list(names)))


# The columns of the source of a table, from the definitions of the project only.


_FILE_COLUMNS = f"{FILE} STRING, {ROW} BIGINT"
_LINE_COLUMNS = f"key STRING, value STRING, value_binary BINARY, {_FILE_COLUMNS}"
Rows = Iterable[Mapping[str, Any]]


class ColumnsOnlySource:
    """A source of which only the columns are known: enough to resolve a table, not to start it."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        self.subscription: Mapping[str, Any] = {}

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self._columns)


def columns_of(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    if table.topics is not None:
        return parse_schema(_KAFKA_COLUMNS)
    if table.files is not None and table.files.by_line:
        if table.files.schema is None:
            raise UsageError(f"{table.name} infers its schema from its files", hint="write `schema` to test it")
        return parse_schema(_LINE_COLUMNS)
    if table.source.project_table is None:
        if "source" not in schemas:
            raise UsageError(
                f"what columns has the source of {table.name}?", hint='give schemas={"source": "id BIGINT, …"}'
            )
        return parse_schema(f"{schemas['source']}, {_FILE_COLUMNS}")
    upstream = plan.table(table.source.project_table)
    assert upstream is not None
    schema = _table_shape(spark, plan, upstream, schemas)
    if table.input.coordinates == "file":
        schema = StructType([*schema.fields, *parse_schema(_FILE_COLUMNS).fields])
    return schema


def with_lookups(
    spark: SparkSession, plan: Plan, table: TablePlan, lookup_rows: Mapping[str, Rows], schemas: Mapping[str, str]
) -> TablePlan:
    """The table with its lookups replaced by Delta tables of the given rows."""
    if table.stages is None:
        return table
    lookup_names = [lookup.name for lookup in table.stages.lookups]
    if unknown_names := [name for name in lookup_rows if name not in lookup_names]:
        hint = f"it has {', '.join(lookup_names) or 'none'}"
        raise UsageError(f"{table.name} has no lookup '{unknown_names[0]}'", hint=hint)
    replaced = []
    for lookup in table.stages.lookups:
        uri = f"{plan.lake}/_lookups/{table.name}/{lookup.name}"
        frame = table_rows(spark, lookup_rows.get(lookup.name, ()), _columns_of_lookup(spark, plan, lookup, schemas))
        frame.write.format("delta").mode("overwrite").save(uri)
        replaced.append(replace(lookup, uri=uri))
    return replace(table, stages=replace(table.stages, lookups=tuple(replaced)))


def _columns_of_lookup(spark: SparkSession, plan: Plan, lookup: Lookup, schemas: Mapping[str, str]) -> StructType:
    if lookup.name in schemas:
        return parse_schema(schemas[lookup.name])
    table = plan.table(lookup.table) if lookup.table is not None else None
    if table is None:
        hint = f'give schemas={{"{lookup.name}": "id BIGINT, …"}}'
        raise UsageError(f"what columns has the lookup '{lookup.name}'?", hint=hint)
    return _table_shape(spark, plan, table, schemas)


def _table_shape(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    """The schema of a table of the project."""
    columns = columns_of(spark, plan, table, schemas)
    return _look_at_kind(spark, with_lookups(spark, plan, table, {}, schemas), columns).schema


def _look_at_kind(spark: SparkSession, table: TablePlan, columns: StructType) -> TableKind:
    """The rows of a test replace lines of files, so a table over files is a staged table here."""
    source = cast("Source", ColumnsOnlySource(columns))
    return resolve_table(spark, table, LocalStore(), source, kind="staged" if table.files is not None else None)


Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """What became of the rows that a test gave to a table."""

    written: list[Row]
    """Rows that this run added; for an aggregate, all rows that the table has now."""
    quarantined: list[Row]
    """Rejected rows with error_reason and error_detail, and the original record."""
    dropped: int = 0
    duplicates: int = 0
    read: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    """Per expectation, how many rows did not meet it."""


TIME_MS = 1_767_225_600_000
"""2026-01-01, the time of the first batch; each later batch is one second after the previous one."""


@contextmanager
def table_under_test(
    project: Project | str | Path,
    table: str,
    *,
    lookups: Mapping[str, Rows] | None = None,
    schemas: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Iterator[TableUnderTest]:
    """`project` is its folder, or the model. `lookups` maps each lookup to its rows; `schemas` has the columns, as
    `id BIGINT, …`, of tables outside the project: of a lookup under its name, of the source under `source`. Without
    `spark`, a session is started once and kept for later tests."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    try:
        loaded_project = project if isinstance(project, Project) else load_project(Path(project))
        plan = build_plan(loaded_project.model_copy(update={"lake": str(folder / "lake")}))
        session = (spark or _kept_session(plan)).newSession()
        yield TableUnderTest(session, plan, table, lookups or {}, schemas or {})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TableUnderTest:
    def __init__(
        self, spark: SparkSession, plan: Plan, name: str, lookups: Mapping[str, Rows], schemas: Mapping[str, str]
    ) -> None:
        table_plan = plan.table(name)
        if table_plan is None:
            names = ", ".join(table.name for table in plan.tables)
            raise UsageError(f"there is no table {name} in this project", hint=f"it has {names}")
        self._spark, self._plan, self._store = spark, plan, LocalStore()
        self._table = with_lookups(spark, plan, table_plan, lookups, schemas)
        self._columns = columns_of(spark, plan, self._table, schemas)
        self._table_shape = _look_at_kind(spark, self._table, self._columns)
        self._log = DeltaLog(self._store, self._table.uri, name)
        self._head = self._create()
        self._rows_given = 0
        self._sort_columns = [
            self._table.columns[name] for name in ("topic", "partition", "offset") if self._table.columns
        ]

    def run(self, rows: Rows) -> Outcome:
        """Processes one batch of rows as its source would deliver them: Kafka records, or rows of an upstream table."""
        row_list = list(rows)
        batch, after = self._next_batch(row_list)
        last_entry = self._head.entry
        processor = open_table(self._spark, self._table_shape, self._table, self._store, last_entry, idempotent=False)
        time_ms = TIME_MS + 1000 * last_entry.batch
        batch_pins = processor.pin(batch, last_entry.pins, after)
        pins = Pins(time_ms, self._table.definition, batch_pins.lookups, batch_pins.watermark)
        entry = replace(
            last_entry, kind="batch", batch=last_entry.batch + 1, before=last_entry.after, after=after, pins=pins
        )
        files_before, quarantined_before = self._table_files(), self._read_quarantine()
        try:
            target = DeltaTableTarget(self._table.uri)
            processor.write(batch, entry, target, files=1)
            entry = target.entry or entry
            self._head = self._confirm_commit(entry)
            row_counts = processor.complete(batch, entry, rows=self._head.commit.rows, written=True)
        finally:
            processor.release()
        return Outcome(
            written=self._rows_written(files_before),
            quarantined=self._read_quarantine()[len(quarantined_before) :],
            dropped=row_counts.get(DROPPED, 0),
            duplicates=row_counts.get(DUPLICATES, 0),
            read=row_counts.get(READ, 0),
            unmet={name.removeprefix(UNMET): number for name, number in row_counts.items() if name.startswith(UNMET)},
        )

    def rows(self) -> list[Row]:
        """All rows that the table has now."""
        return _read_rows(self._spark.read.format("delta").load(self._table.uri), self._sort_columns)

    def _create(self) -> LedgerHead:
        source = self._table.versions
        start = str(Version("test", 0)) if source is not None else '{"test":{"0":0}}'
        if source is not None:  # aggregates read their source at a version
            self._spark.createDataFrame([], self._columns).write.format("delta").save(source.uri)
        return genesis(
            self._spark,
            self._log,
            table=self._table.name,
            uri=self._table.uri,
            schema=self._table_shape.schema,
            partition_by=self._table.write.partition_by,
            cluster_by=self._table.write.cluster_by,
            properties=self._table.properties,
            position=(start,),
            definition=self._table.definition,
            topics={},
            subscription={},
        )

    def _next_batch(self, rows: list[Mapping[str, Any]]) -> tuple[DataFrame, tuple[str, ...]]:
        topics, source, first = self._table.topics, self._table.versions, self._rows_given
        self._rows_given += len(rows)
        if source is None:
            topic = topics.topics[0] if topics is not None and topics.topics else "test"
            return records(self._spark, rows, topic, first), (f'{{"test":{{"0":{self._rows_given}}}}}',)
        frame = table_rows(self._spark, rows, self._columns, first)
        frame.write.format("delta").mode("append").save(source.uri)
        newest = DeltaLog(self._store, source.uri, "source").versions()[-1]
        if source.where is not None:
            frame = selected(frame, source.where) if self._table.isolates_where else frame.where(source.where)
        return frame, (str(Version("test", newest + 1)),)

    def _confirm_commit(self, entry: Entry) -> LedgerHead:
        head = read_head(self._log)
        if head is None or head.entry.key != entry.key:
            append_entry(self._spark, self._table.uri, entry)
            head = read_head(self._log)
        assert head is not None
        return head

    def _table_files(self) -> set[str]:
        return set(self._spark.read.format("delta").load(self._table.uri).inputFiles())

    def _rows_written(self, files_before: set[str]) -> list[Row]:
        table = self._spark.read.format("delta").load(self._table.uri)
        if self._table.aggregate is not None:
            return _read_rows(table)
        new_files = [file for file in table.inputFiles() if file not in files_before]
        if not new_files:
            return []
        return _read_rows(table.where(table["_metadata.file_path"].isin(new_files)), self._sort_columns)

    def _read_quarantine(self) -> list[Row]:
        quarantine = quarantine_of(self._table.name, self._table.uri)
        if not DeltaLog(self._store, quarantine.uri, quarantine.table).versions():
            return []
        return _read_rows(self._spark.read.format("delta").load(quarantine.uri).orderBy("generation", "batch", SOURCE))


def _read_rows(frame: DataFrame, order: Sequence[str] = ()) -> list[Row]:
    ordered = frame.orderBy(SOURCE) if SOURCE in frame.columns else frame.orderBy(*(order or frame.columns))
    return [
        {name: value for name, value in row.asDict(recursive=True).items() if name != SOURCE}
        for row in ordered.collect()
    ]


_sessions: list[SparkSession] = []


def _kept_session(plan: Plan) -> SparkSession:
    """One JVM for all tests of a process, because starting one takes seconds."""
    if not _sessions:
        context = spark_session(plan)
        _sessions.append(context.__enter__())
        atexit.register(context.__exit__, None, None, None)
    return _sessions[0]
