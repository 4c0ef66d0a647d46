"""A Delta table as the source of another: the stream, and the rows of a replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import Terminal, Transient
from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.pending import forgotten_after
from penstock.ledger.position import parse_version
from penstock.ledger.source import Move, ReplayInput, Start
from penstock.sources.columns import CHANGE, FILE, TIME, VERSION, without_tombstones
from penstock.sources.delta_changes import (
    changes_between,
    chosen_option,
    effect,
    oldest_unbroken,
    refuse_lost,
    resolve_version,
    table_id,
)
from penstock.spark.expressions import selected
from penstock.spark.jvm import java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.ledger.source import Position, ReplayRequest
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import VersionsSource
    from penstock.sources.registry import SourceContext
    from penstock.storage.stores import Store

# What a stream over a Delta table has read up to a position, as rows of a batch.
#
# That is the table as of a version, so later compactions and vacuums do not matter. Only where the stream stopped
# within a version, or started after the first one, are files counted as Delta's streaming source counts them.


def rows_up_to(
    spark: SparkSession, uri: str, log: DeltaLog, start: Version, after: Version, table: str, *, rewritten: bool = False
) -> DataFrame:
    """With `rewritten` the stream also reads the files of commits that change rows (`ignore_changes`)."""
    if not start.snapshot and start.version > 0:
        _require_versions(log, start.version, table)
        return _jvm_rows(spark, "between", uri, start.version, after.version, after.index, rewritten)
    if after.whole:
        return at_version(spark, uri, after.read_up_to)
    if after.snapshot:
        return _jvm_rows(spark, "ofSnapshot", uri, after.version, after.index)
    return _jvm_rows(spark, "upTo", uri, after.version, after.index, rewritten)


def at_version(spark: SparkSession, uri: str, version: int) -> DataFrame:
    if version < 0:
        return spark.read.format("delta").load(uri).limit(0)
    return spark.read.format("delta").option("versionAsOf", version).load(uri)


def inserted(rows: DataFrame, log: DeltaLog, version: int) -> DataFrame:
    """Rows of a table as of a version in the form of its change feed, as a stream over that feed starts with them."""
    commit = log.commit(version)
    time_ms = commit.timestamp_ms if commit is not None else 0
    return rows.withColumns(
        {
            CHANGE: F.lit("insert"),
            VERSION: F.lit(version).cast("bigint"),
            TIME: F.expr(f"timestamp_millis({time_ms}L)"),
        }
    )


def changes_up_to(
    spark: SparkSession, uri: str, log: DeltaLog, start: Version, after: Version, table: str
) -> DataFrame:
    """Every change since the stream started: the feed must still have them all."""
    first = start.first_commit
    initial_rows = inserted(at_version(spark, uri, start.version), log, start.version) if start.snapshot else None
    if first > after.read_up_to:
        if initial_rows is not None:
            return initial_rows
        return _read_feed(spark, uri, after.read_up_to, after.read_up_to).limit(0)
    _require_versions(log, first, table)
    feed_rows = _read_feed(spark, uri, first, after.read_up_to)
    return feed_rows if initial_rows is None else initial_rows.unionByName(feed_rows)


def _read_feed(spark: SparkSession, uri: str, first: int, last: int) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(uri)


def _require_versions(log: DeltaLog, version: int, table: str) -> None:
    forgotten = forgotten_after(log, version - 1)
    if forgotten is not None:
        raise Terminal(
            f"{table} began with version {version} of {log.table}, and in version {forgotten} of that a subject "
            "was forgotten: files that it has read no longer exist",
            where=table,
            hint=f"`--version N --cascade`, with N from {forgotten} on, makes it from all rows of the table upstream",
        )
    versions: Sequence[int] = log.versions()
    oldest = oldest_unbroken(versions) if versions else 0
    if version < oldest:
        raise Terminal(
            f"{table} began with version {version} of {log.table}, whose log goes back to version {oldest} only: which "
            "rows it has read is no longer known",
            where=table,
            hint="`--version N --cascade` makes it from all rows of the table upstream as of version N",
        )


def _jvm_rows(spark: SparkSession, method: str, *arguments: object) -> DataFrame:
    jvm = jvm_of(spark)
    return DataFrame(getattr(jvm.penstock.delta.Covered, method)(java_session(spark), *arguments), spark)


MAX_REMARKED_VERSIONS = 200
"""At most this many versions of a batch are checked for changes by others: a backlog is read in few large batches."""


class DeltaReader:
    def __init__(
        self,
        source: VersionsSource,
        store: Store,
        table: str,
        *,
        coordinates: str = "carried",
        changes_are: str = "it was skipped",
        recomputed: bool = False,
        keep_raising: bool = False,
    ) -> None:
        """With `coordinates` "file" the rows name the file that they come from. `changes_are` says what happens with
        changes that others make upstream. `keep_raising`: rows on which `where` raises are read, so that the table's
        function can reject them."""
        self._source, self._changes_are = source, changes_are
        self._coordinates, self._keep_raising = coordinates, keep_raising
        self._table = table
        self._store, self._recomputed = store, recomputed
        self._name = source.label
        self._log = DeltaLog(store, source.uri, self._name)
        self._versions = self._log.versions()

    @property
    def subscription(self) -> dict[str, Any]:
        return self._source.subscription(self._table)

    @property
    def newest(self) -> int:
        """The table's newest version; -1 if it does not exist."""
        return self._versions[-1] if self._versions else -1

    def require(self) -> None:
        """Raises Transient while the table does not exist."""
        if not self._versions:
            raise Transient(
                f"the table {self._name} does not exist yet",
                where=self._table,
                hint="it is made when its own run begins",
            )

    def start(self) -> Start:
        self.require()
        identity = table_id(self._log, self._versions)
        if identity is None:
            raise Terminal(
                f"the id of {self._name} is not in the commits that its log still has",
                where=self._table,
                hint="any change of its properties writes it again: ALTER TABLE … SET TBLPROPERTIES",
            )
        position = resolve_version(self._source.starting, identity, self._versions, self._log, self._table)
        return Start((str(position),), {self._name: identity})

    def follow(self, entry: Entry) -> Move | None:
        """Another table than before is read from `starting`, as by a new table."""
        if dict(entry.subscription) == self.subscription:
            return None
        start = self.start()
        previous = entry.subscription.get("table", "another source")
        return Move(start.position, start.ids, f"read from {self._name}, no longer from {previous}")

    def refuse_lost(self, entry: Entry) -> None:
        self._versions = self._log.versions()
        identity = table_id(self._log, self._versions)
        refuse_lost(parse_version(entry.after[0]), identity, self._versions, self._table, self._name)

    def ids(self, after: Position) -> Mapping[str, str]:
        """Delta itself refuses a position of another table."""
        return {self._name: parse_version(after[0]).table_id}

    def stream(self, spark: SparkSession, options: Mapping[str, str] = MappingProxyType({})) -> DataFrame:
        """`options` are further options for Delta."""
        reader = spark.readStream.format("delta").options(**self._source.options, **options)
        if self._source.max_files is not None:
            reader = reader.option("maxFilesPerTrigger", self._source.max_files)
        if self._source.max_bytes is not None:
            reader = reader.option("maxBytesPerTrigger", f"{self._source.max_bytes}b")
        if self._source.starting.kind in ("version", "timestamp") and self._versions[:1] == [0]:
            # Ignored for a stream with a position; but without it Delta asserts that no version is before 0.
            reader = reader.option("startingVersion", 0)
        return self._prepare_rows(reader.load(self._source.uri))

    def replay_input(self, spark: SparkSession, request: ReplayRequest) -> ReplayInput:
        uri, log = self._source.uri, self._log
        after, start = parse_version(request.after[0]), self._stream_start(request)
        if self._source.changes and not request.as_state:
            return ReplayInput(self._prepare_rows(changes_up_to(spark, uri, log, start, after, self._table)))
        if request.at is not None or self._source.changes:
            version = request.at if request.at is not None else after.read_up_to
            rows = at_version(spark, uri, version)
            return ReplayInput(self._prepare_rows(inserted(rows, log, version) if self._source.changes else rows))
        rewritten = self._source.options.get("ignoreChanges") == "true"
        return ReplayInput(
            self._prepare_rows(rows_up_to(spark, uri, log, start, after, self._table, rewritten=rewritten))
        )

    def _stream_start(self, request: ReplayRequest) -> Version:
        return parse_version(request.began[0])

    def _prepare_rows(self, rows: DataFrame) -> DataFrame:
        if self._source.merged:
            rows = without_tombstones(rows)
        if self._source.where is not None:
            where = self._source.where
            rows = selected(rows, where) if self._keep_raising else rows.where(where)
        if self._coordinates == "file":
            rows = rows.selectExpr("*", f"input_file_name() AS {FILE}")  # a stream of a Delta table has no _metadata
        return rows

    def size(self, before: Position, after: Position) -> int | None:
        """Unknown without reading the log; the plan of the batch knows how many bytes it reads."""
        return None

    def remarks(self, before: Position, after: Position) -> Iterator[str]:
        """Changes that others made to the upstream table, which are not read."""
        first = parse_version(before[0]).first_commit
        last = min(parse_version(after[0]).read_up_to, first + MAX_REMARKED_VERSIONS)
        if self._source.table is None:
            yield from self._foreign_remarks(first, last)
            return
        for version in range(first, last + 1):
            commit = self._log.commit(version)
            if commit is not None and commit.origin is Origin.FOREIGN_CHANGE:
                yield (
                    f"version {version} of {self._name} ({commit.operation}), not made by Penstock, changed rows "
                    f"there: {self._changes_are}"
                )

    def _foreign_remarks(self, first: int, last: int) -> Iterator[str]:
        """For a table outside the project: what became of changes that one of the three options let pass."""
        option = chosen_option(self._source.options)
        if option is None:
            return
        for change in changes_between(self._store, self._source.uri, first, last):
            what = effect(option, change, recomputed=self._recomputed)
            yield f"version {change.version} of {self._name} ({change.operation}) {change.summary}: {what} ({option})"


class DeltaKind:
    def open(self, table: TablePlan, context: SourceContext) -> DeltaReader:
        source = table.delta
        assert source is not None
        recomputed = table.aggregate is not None and table.aggregate.emit != "final"
        sends_rows = table.sink is not None and not table.sink.follows_changes
        changes_are = "it was skipped"
        if recomputed:
            changes_are = "every group is computed again"
        elif source.changes:
            changes_are = "that is followed"
        return DeltaReader(
            source,
            context.open_store(source.uri),
            table.name,
            coordinates=table.input.coordinates if table.staged or sends_rows else "carried",
            changes_are=changes_are,
            recomputed=recomputed,
            keep_raising=table.isolates_where,
        )
