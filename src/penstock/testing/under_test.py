"""One table of a project with made-up rows for its source: the function of a run, on Delta tables of its own."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.delta.version import Version
from penstock.engine.isolation.expressions import selected
from penstock.engine.protocol.commit import append_nothing
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.genesis import genesis
from penstock.engine.protocol.into import Table as Into
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.session import spark_session
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.store import LocalStore
from penstock.engine.table_function import TableFunction, table_function
from penstock.errors import UsageError
from penstock.plan.build import build_plan
from penstock.plan.model import DeltaSource, KafkaSource, Plan
from penstock.plan.quarantine import quarantine_of
from penstock.spec.load import load_project
from penstock.spec.project import Project
from penstock.testing.columns import Given, columns_of, with_lookups
from penstock.testing.given import records, table_rows
from penstock.testing.outcome import Outcome, Row, outcome

Rows = Iterable[Mapping[str, Any]]
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
        self._made: TableFunction = table_function(spark, self._table, self._store, Given(self._columns))
        self._log = DeltaLog(self._store, self._table.uri, name)
        self._tail = self._begin()
        self._given = 0
        self._order = [self._table.columns[name] for name in ("topic", "partition", "offset") if self._table.columns]

    def run(self, rows: Rows) -> Outcome:
        """One batch of rows, as its source would bring them: records of Kafka, or rows of the table upstream."""
        listed = list(rows)
        batch, after = self._batch(listed)
        last = self._tail.entry
        function = self._made.ready(self._spark, self._table, self._store, last, idempotent=False)
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
            fates = function.complete(batch, entry, rows=self._tail.commit.rows, written=True)
        finally:
            function.done()
        return outcome(self._written(before), self._quarantined()[len(refused) :], fates)

    def rows(self) -> list[Row]:
        """All that the table has now."""
        return _rows(self._spark.read.format("delta").load(self._table.uri), self._order)

    def _begin(self) -> Tail:
        source = self._table.source
        start = str(Version("test", 0)) if isinstance(source, DeltaSource) else '{"test":{"0":0}}'
        if isinstance(source, DeltaSource):  # aggregates read it as of a version
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
        source, first = self._table.source, self._given
        self._given += len(rows)
        if isinstance(source, KafkaSource):
            topic = source.topics[0] if source.topics else "test"
            return records(self._spark, rows, topic, first), (f'{{"test":{{"0":{self._given}}}}}',)
        frame = table_rows(self._spark, rows, self._columns, first)
        frame.write.format("delta").mode("append").save(source.uri)
        newest = DeltaLog(self._store, source.uri, "source").versions()[-1]
        batch = self._chosen(frame, source.where) if source.where is not None else frame
        return batch, (str(Version("test", newest + 1)),)

    def _chosen(self, rows: DataFrame, where: str) -> DataFrame:
        return selected(rows, where) if self._table.isolates_where else rows.where(where)

    def _confirmed(self, entry: Entry) -> Tail:
        tail = read_tail(self._log)
        if tail is None or tail.entry.key != entry.key:
            append_nothing(self._spark, self._table.uri, entry)
            tail = read_tail(self._log)
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
