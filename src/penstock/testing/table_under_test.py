"""One table of a project with made-up rows for its source: the table's own function, on Delta tables of its own."""

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
from penstock.ledger.commit import append_nothing
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Entry, Pins, RowCounts
from penstock.ledger.head import LedgerHead, read_head
from penstock.ledger.position import Version
from penstock.ledger.row_counts import DROPPED, DUPLICATES, READ, UNMET
from penstock.ledger.source import Move, Position, ReplayInput, ReplayRequest, Start
from penstock.ledger.write_target import DeltaTableTarget as Into
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
from penstock.tables.kinds import TableKind, look_at_table, open_table

if TYPE_CHECKING:
    from penstock.ledger.source import Source
    from penstock.storage.stores import Store

# Rows that a test gives, as the source of a table would bring them.


_KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_COORDINATES = {"topic": "test", "partition": 0, "kafka_timestamp": _WHEN, "ingestion_timestamp": _WHEN}


def kafka_schema() -> StructType:
    return cast(StructType, StructType.fromDDL(_KAFKA))


def records(spark: SparkSession, rows: Iterable[Mapping[str, Any]], topic: str, first: int) -> DataFrame:
    """As Kafka gives them. `value` may be text, bytes, or what becomes JSON; what is left out is made up."""
    schema = kafka_schema()
    made = []
    for number, row in enumerate(rows, start=first):
        _refuse_unknown(row, schema.names)
        made.append(
            {
                "key": _bytes(row.get("key")),
                "value": _bytes(row.get("value")),
                "topic": row.get("topic", topic),
                "partition": row.get("partition", 0),
                "offset": row.get("offset", number),
                "timestamp": row.get("timestamp", _WHEN),
                "timestampType": 0,
                "headers": [{"key": k, "value": _bytes(v)} for k, v in (row.get("headers") or {}).items()] or None,
            }
        )
    return spark.createDataFrame([tuple(one[name] for name in schema.names) for one in made], schema)


def table_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType, first: int = 0) -> DataFrame:
    """Rows of a table with these columns. Coordinates that are left out are made up, other columns are NULL."""
    made = [tuple(_values(row, schema, number)) for number, row in enumerate(rows, start=first)]
    return spark.createDataFrame(made, schema)


def _values(row: Mapping[str, Any], schema: StructType, number: int) -> Iterator[Any]:
    _refuse_unknown(row, schema.names)
    for column in schema.fields:
        name = column.name
        if name in row:
            value = row[name]
            text = isinstance(column.dataType, StringType) and isinstance(value, dict | list)
            binary = isinstance(column.dataType, BinaryType) and value is not None
            yield json.dumps(value) if text else _bytes(value) if binary else value
        elif name == SOURCE:
            yield _source(cast(StructType, column.dataType), number)
        elif name in ("offset", ROW):
            yield number
        elif name == FILE:
            yield "test"
        else:
            yield _COORDINATES.get(name)


def _source(kind: StructType, number: int) -> tuple[Any, ...]:
    made = {"topic": "test", "partition": 0, "offset": number, "file": "test", "row": number}
    return tuple(made[name] for name in kind.names)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _refuse_unknown(row: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in row:
        if name not in names:
            raise UsageError(f"the source has no column '{name}'", hint=did_you_mean(name, list(names)))


# The columns that the source of a table has, from the definitions of the project alone.


_LINES = f"key STRING, value STRING, value_binary BINARY, {FILE} STRING, {ROW} BIGINT"
Rows = Iterable[Mapping[str, Any]]


class Given:
    """A source of which only the columns are known."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        self.subscription: Mapping[str, Any] = {}

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self._columns)

    def start(self) -> Start:
        raise NotImplementedError

    def follow(self, entry: Entry) -> Move | None:
        raise NotImplementedError

    def refuse_lost(self, entry: Entry) -> None:
        raise NotImplementedError

    def ids(self, after: Position) -> Mapping[str, str]:
        raise NotImplementedError

    def covered(self, spark: SparkSession, asked: ReplayRequest) -> ReplayInput:
        raise NotImplementedError

    def size(self, before: Position, after: Position) -> int | None:
        raise NotImplementedError

    def remarks(self, before: Position, after: Position) -> Iterable[str]:
        raise NotImplementedError


def columns_of(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    if table.topics is not None:
        return kafka_schema()
    if table.files is not None and table.files.by_line:
        if table.files.schema is None:
            raise UsageError(f"{table.name} infers its schema from its files", hint="write `schema` to test it")
        return cast(StructType, StructType.fromDDL(_LINES))
    if table.source.project_table is None:
        if "source" not in schemas:
            raise UsageError(
                f"what columns has the source of {table.name}?", hint='give schemas={"source": "id BIGINT, …"}'
            )
        return cast(StructType, StructType.fromDDL(f"{schemas['source']}, {FILE} STRING, {ROW} BIGINT"))
    upstream = plan.table(table.source.project_table)
    assert upstream is not None
    made = _made(spark, plan, upstream, schemas)
    if table.input.coordinates == "file":
        made = StructType([*made.fields, *cast(StructType, StructType.fromDDL(f"{FILE} STRING, {ROW} BIGINT")).fields])
    return made


def with_lookups(
    spark: SparkSession, plan: Plan, table: TablePlan, given: Mapping[str, Rows], schemas: Mapping[str, str]
) -> TablePlan:
    """The table with lookups of its own, which hold the given rows."""
    if table.stages is None:
        return table
    wanted = [one.name for one in table.stages.lookups]
    if unknown := [name for name in given if name not in wanted]:
        hint = f"it has {', '.join(wanted) or 'none'}"
        raise UsageError(f"{table.name} has no lookup '{unknown[0]}'", hint=hint)
    moved = []
    for one in table.stages.lookups:
        place = f"{plan.lake}/_lookups/{table.name}/{one.name}"
        frame = table_rows(spark, given.get(one.name, ()), _columns_of_lookup(spark, plan, one, schemas))
        frame.write.format("delta").mode("overwrite").save(place)
        moved.append(replace(one, uri=place))
    return replace(table, stages=replace(table.stages, lookups=tuple(moved)))


def _columns_of_lookup(spark: SparkSession, plan: Plan, one: Lookup, schemas: Mapping[str, str]) -> StructType:
    if one.name in schemas:
        return cast(StructType, StructType.fromDDL(schemas[one.name]))
    table = plan.table(one.table) if one.table is not None else None
    if table is None:
        hint = f'give schemas={{"{one.name}": "id BIGINT, …"}}'
        raise UsageError(f"what columns has the lookup '{one.name}'?", hint=hint)
    return _made(spark, plan, table, schemas)


def _made(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    """The columns of a table of the project."""
    source = Given(columns_of(spark, plan, table, schemas))
    return _look_at(spark, with_lookups(spark, plan, table, {}, schemas), LocalStore(), source).schema


def _look_at(spark: SparkSession, table: TablePlan, store: Store, source: Source) -> TableKind:
    """Lines of files are given as rows, so a table over files is one with stages here."""
    return look_at_table(spark, table, store, source, kind="staged" if table.files is not None else None)


# What became of the rows that a test gave to a table.


Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    written: list[Row]
    """Rows that this run added; of an aggregate all rows that the table has now."""
    quarantined: list[Row]
    """Rejected rows with error_reason and error_detail, and the record as it came."""
    dropped: int = 0
    duplicates: int = 0
    read: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    """Per expectation, how many rows did not meet it."""


def outcome(written: list[Row], quarantined: list[Row], row_counts: RowCounts) -> Outcome:
    return Outcome(
        written=written,
        quarantined=quarantined,
        dropped=row_counts.get(DROPPED, 0),
        duplicates=row_counts.get(DUPLICATES, 0),
        read=row_counts.get(READ, 0),
        unmet={name.removeprefix(UNMET): n for name, n in row_counts.items() if name.startswith(UNMET)},
    )


# One table of a project with made-up rows for its source: the function of a run, on Delta tables of its own.


TIME_MS = 1_767_225_600_000
"""2026-01-01: the time of the first batch; each later one is a second after the one before."""


@contextmanager
def table_under_test(
    project: Project | str | Path,
    table: str,
    *,
    lookups: Mapping[str, Rows] | None = None,
    schemas: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
) -> Iterator[TableUnderTest]:
    """`project` is its folder, or the models. `lookups` has the rows of each lookup by its name; `schemas` the columns,
    as `id BIGINT, …`, of tables that are not of the project: of a lookup by its name, of the source as `source`.
    Without `spark`, a session is started once and kept for the tests to come."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
    try:
        given = project if isinstance(project, Project) else load_project(Path(project))
        plan = build_plan(given.model_copy(update={"lake": str(folder / "lake")}))
        session = (spark or _kept_session(plan)).newSession()
        yield TableUnderTest(session, plan, table, lookups or {}, schemas or {})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TableUnderTest:
    def __init__(
        self, spark: SparkSession, plan: Plan, name: str, lookups: Mapping[str, Rows], schemas: Mapping[str, str]
    ) -> None:
        found = plan.table(name)
        if found is None:
            raise UsageError(f"there is no table {name} in this project", hint=f"it has {_names(plan)}")
        self._spark, self._plan, self._store = spark, plan, LocalStore()
        self._table = with_lookups(spark, plan, found, lookups, schemas)
        self._columns = columns_of(spark, plan, self._table, schemas)
        self._made = _look_at(spark, self._table, self._store, Given(self._columns))
        self._log = DeltaLog(self._store, self._table.uri, name)
        self._tail = self._begin()
        self._given = 0
        self._order = [self._table.columns[name] for name in ("topic", "partition", "offset") if self._table.columns]

    def run(self, rows: Rows) -> Outcome:
        """One batch of rows, as its source would bring them: records of Kafka, or rows of the table upstream."""
        listed = list(rows)
        batch, after = self._batch(listed)
        last = self._tail.entry
        function = open_table(self._spark, self._made, self._table, self._store, last, idempotent=False)
        time_ms = TIME_MS + 1000 * last.batch
        pinned = function.pin(batch, last.pins, after)
        pins = Pins(time_ms, self._table.definition, pinned.lookups, pinned.watermark)
        entry = replace(last, kind="batch", batch=last.batch + 1, before=last.after, after=after, pins=pins)
        before, refused = self._files(), self._quarantined()
        try:
            into = Into(self._table.uri)
            function.write(batch, entry, into, files=1)
            entry = into.entry or entry
            self._tail = self._confirmed(entry)
            row_counts = function.complete(batch, entry, rows=self._tail.commit.rows, written=True)
        finally:
            function.done()
        return outcome(self._written(before), self._quarantined()[len(refused) :], row_counts)

    def rows(self) -> list[Row]:
        """All that the table has now."""
        return _rows(self._spark.read.format("delta").load(self._table.uri), self._order)

    def _begin(self) -> LedgerHead:
        source = self._table.versions
        start = str(Version("test", 0)) if source is not None else '{"test":{"0":0}}'
        if source is not None:  # aggregates read it as of a version
            self._spark.createDataFrame([], self._columns).write.format("delta").save(source.uri)
        return genesis(
            self._spark,
            self._log,
            table=self._table.name,
            uri=self._table.uri,
            schema=self._made.schema,
            partition_by=self._table.write.partition_by,
            cluster_by=self._table.write.cluster_by,
            properties=self._table.properties,
            position=(start,),
            definition=self._table.definition,
            topics={},
            subscription={},
        )

    def _batch(self, rows: list[Mapping[str, Any]]) -> tuple[DataFrame, tuple[str, ...]]:
        topics, source, first = self._table.topics, self._table.versions, self._given
        self._given += len(rows)
        if source is None:
            topic = topics.topics[0] if topics is not None and topics.topics else "test"
            return records(self._spark, rows, topic, first), (f'{{"test":{{"0":{self._given}}}}}',)
        frame = table_rows(self._spark, rows, self._columns, first)
        frame.write.format("delta").mode("append").save(source.uri)
        newest = DeltaLog(self._store, source.uri, "source").versions()[-1]
        batch = self._chosen(frame, source.where) if source.where is not None else frame
        return batch, (str(Version("test", newest + 1)),)

    def _chosen(self, rows: DataFrame, where: str) -> DataFrame:
        return selected(rows, where) if self._table.isolates_where else rows.where(where)

    def _confirmed(self, entry: Entry) -> LedgerHead:
        tail = read_head(self._log)
        if tail is None or tail.entry.key != entry.key:
            append_nothing(self._spark, self._table.uri, entry)
            tail = read_head(self._log)
        assert tail is not None
        return tail

    def _files(self) -> set[str]:
        return set(self._spark.read.format("delta").load(self._table.uri).inputFiles())

    def _written(self, before: set[str]) -> list[Row]:
        table = self._spark.read.format("delta").load(self._table.uri)
        if self._table.aggregate is not None:
            return _rows(table)
        new = [file for file in table.inputFiles() if file not in before]
        return _rows(table.where(table["_metadata.file_path"].isin(new)), self._order) if new else []

    def _quarantined(self) -> list[Row]:
        place = quarantine_of(self._table.name, self._table.uri)
        if not DeltaLog(self._store, place.uri, place.table).versions():
            return []
        return _rows(self._spark.read.format("delta").load(place.uri).orderBy("generation", "batch", SOURCE))


def _rows(frame: DataFrame, order: Sequence[str] = ()) -> list[Row]:
    ordered = frame.orderBy(SOURCE) if SOURCE in frame.columns else frame.orderBy(*(order or frame.columns))
    return [
        {name: value for name, value in row.asDict(recursive=True).items() if name != SOURCE}
        for row in ordered.collect()
    ]


def _names(plan: Plan) -> str:
    return ", ".join(table.name for table in plan.tables)


_sessions: list[SparkSession] = []


def _kept_session(plan: Plan) -> SparkSession:
    """One JVM for all tests of a process: to start one takes seconds."""
    if not _sessions:
        context = spark_session(plan)
        _sessions.append(context.__enter__())
        atexit.register(context.__exit__, None, None, None)
    return _sessions[0]
