"""The tombstones of a merged table, in a separate table beside it, so that its readers see living rows only.

A tombstone says that a key was deleted, by which change and when, so that an older change that arrives late does not
bring the row back. Tombstones are written before the batch that deletes the rows is committed; those of a batch that
was never committed are dropped before anything else is written. On stores without our locks that happens after a
generation was opened: until then the previous generation's runner may still commit the batch that they belong to.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import Fenced, TableChanged
from penstock.ledger.commit import append_entry, commit_metadata, must_confirm
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import advance, last_rows, read_head
from penstock.plan.merge import SEPARATE, TOMBSTONES_PROPERTY
from penstock.plan.quarantine import tombstones_of
from penstock.sources.columns import DELETED, DELETED_AT, SEQUENCE, SOURCE
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.tables.columns import differences, evolve_columns, statistics_of
from penstock.tables.merge.changes import FROM
from penstock.tables.merge.row_exchange import FILE, PLACE, Exchange
from penstock.tables.quarantine import CompanionLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, Kind
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

_PROPERTIES = {"delta.enableInCommitTimestamps": "true", "delta.checkpointInterval": "100"}
_BATCH = ("generation", "batch")
_FOUND = "found"
_NEVER = 253_402_300_799_999
"""The end of the year 9999, in milliseconds."""


class TombstoneTable(CompanionLog):
    def __init__(self, spark: SparkSession, store: Store, table: TablePlan, *, idempotent: bool) -> None:
        super().__init__(spark, store, tombstones_of(table.name, table.uri), idempotent=idempotent)
        assert table.write.merge is not None
        self._table, self._plan = table, table.write.merge
        self.name = self._location.table
        self.main_log = DeltaLog(store, table.uri, table.name)
        """The log of the merged table itself."""

    def create(self, entry: Entry, table: StructType) -> None:
        """Creates the table, or adapts its columns. `table` has the columns of the merged table."""
        kept_columns = [*self._plan.keys, SEQUENCE, DELETED_AT, SOURCE, *([FROM] if FROM in table.names else [])]
        fields = [StructField(name, table[name].dataType) for name in kept_columns]
        schema = StructType([*fields, *(StructField(name, LongType()) for name in _BATCH)])
        if self.exists:
            self._settle_columns(schema)
        else:
            self._create(entry, schema, {**_PROPERTIES, **statistics_of(self._table, schema)})

    def _settle_columns(self, expected: StructType) -> None:
        diff = differences(self._spark.read.format("delta").load(self._location.uri).schema, expected)
        if diff.other:
            details = ", ".join(f"{name} {old}, would be {new}" for name, (old, new) in diff.other.items())
            raise TableChanged(
                f"the columns of its tombstones cannot be changed so: {details}",
                where=self.name,
                hint=f"write the types in the definition of {self._table.name} as they were, or make a table of "
                "another name",
            )
        if diff.new or diff.wider:
            evolve_columns(self._spark, self._location.uri, expected, diff)

    def matching(self, session: SparkSession, ranges: Any | None, table_schema: StructType) -> DataFrame | None:
        """The tombstones of keys within the ranges, as rows of the merged table, whose columns are `table_schema`; None
        if there are none."""
        exchange = Exchange(session, self._location.uri)
        if not exchange.files or not exchange.select_files(ranges):
            return None
        names = {*exchange.schema.names}
        values = {DELETED: "true", FILE: "CAST(NULL AS STRING)", PLACE: "CAST(NULL AS BIGINT)"}
        return exchange.content().selectExpr(
            *(
                f"{values[f.name]} AS {f.name}"
                if f.name in values
                else (
                    f"CAST({quote(f.name) if f.name in names else 'NULL'} AS {sql_type(f.dataType)}) AS {quote(f.name)}"
                )
                for f in table_schema.fields
            )
        )

    def add(self, rows: DataFrame, entry: Entry, *, files: int = 1) -> None:
        """Writes the tombstones of a batch that is about to be committed. Leftovers of an earlier attempt at the batch
        are dropped first: they are from this process or one that has ended, since a generation has one runner. Those
        of a redrive may stay, as they only say the same twice."""
        redrive, uri = entry.kind == "redrive", self._location.uri
        self._refuse_fenced(entry)
        if not redrive and self.has(entry):
            attempt = f"generation = {entry.generation} AND batch = {entry.batch}"
            self.drop(attempt, replace(entry, kind="batch", pending={}))
        companion_entry = self._companion_entry(entry, "redrive" if redrive else "batch")
        session, head_before = self._spark.newSession(), self._head
        assert head_before is not None
        with commit_metadata(session, companion_entry, idempotent=self._idempotent, uri=uri):
            exchange = Exchange(session, uri)
            # Once the mark is read here, one that is set later is a conflict.
            already_written = self._idempotent and exchange.already_committed
        self._refuse_fenced(entry)
        if already_written and redrive:
            must_confirm(head_before, self.log, companion_entry)
        batch_values = {"generation": entry.generation, "batch": entry.batch}
        new_rows = rows.selectExpr(  # types as text: NOT NULL fields within a sequence must not matter to a cast
            *(
                f"CAST({batch_values.get(f.name, quote(f.name))} AS {sql_type(f.dataType)}) AS {quote(f.name)}"
                for f in exchange.schema.fields
            )
        )
        with commit_metadata(session, companion_entry, idempotent=self._idempotent, uri=uri, more=already_written):
            exchange.commit(new_rows.coalesce(files) if files else new_rows, {})
        self._head = must_confirm(head_before, self.log, companion_entry)

    def _refuse_fenced(self, entry: Entry) -> None:
        """Raises if, without our locks, another process opened a later generation: it has dropped what was left of this
        one, or will."""
        last = self._advanced_head().entry
        if self._idempotent and last.generation > entry.generation:
            raise Fenced(
                f"another process has opened generation {last.generation}, this one writes generation "
                f"{entry.generation}",
                where=self._table.name,
                hint="the table continues from its ledger by itself",
            )

    def settle(self, head: LedgerHead) -> None:
        """Drops the tombstones of batches that were never committed. `head` is the end of the table's ledger: on stores
        without our locks, an entry of a generation that this process opened. There Delta's own mark first keeps the
        runner of the previous generation from writing."""
        if self._head is None:
            return
        last_own, entry = self._advanced_head(), head.entry
        if self._idempotent and last_own.entry.generation < entry.generation:
            note = f"generation {entry.generation} of the table was opened"
            companion_entry = replace(self._companion_entry(entry, "open"), batch=0, seen=None, note=note, pending={})
            append_entry(self._spark, self._location.uri, companion_entry)
            self._head = must_confirm(self._head, self.log, companion_entry)
        last_written = last_rows(head, self.main_log)
        last, newest = last_written.entry.key, entry.generation if self._idempotent else None
        if not self._has_batch_after(last, last_written.opened, newest):
            return
        condition = f"(generation > {last[0]} OR (generation = {last[0]} AND batch > {last[1]}))"
        for generation, batch in sorted(last_written.opened):
            condition += f" AND NOT (generation = {generation} AND batch = {batch})"
        if newest is not None:
            condition += f" AND generation <= {newest}"
        kind: Kind = "batch" if entry.kind == "batch" else "open"
        self.drop(condition, replace(entry, kind=kind, filled=head.filled, pending={}))

    def _has_batch_after(self, last: tuple[int, int], opened: frozenset[tuple[int, int]], newest: int | None) -> bool:
        for commit in self.log.backwards():
            if commit.entry is None or commit.entry.kind != "batch":
                continue
            key = commit.entry.key
            if key <= last:
                return False
            if key not in opened and (newest is None or key[0] <= newest):
                return True
        return False

    def drop_old(self, entry: Entry, now_ms: int | None = None) -> None:
        """Drops tombstones older than the project keeps them. A change from before such a delete then brings its row
        back."""
        retention_ms = self._plan.keep_deleted_ms
        if retention_ms is None or not self.exists:
            return
        cutoff_ms = (now_ms if now_ms is not None else time.time_ns() // 1_000_000) - retention_ms
        session = self._spark.newSession()
        exchange = Exchange(session, self._location.uri)
        if exchange.files and exchange.select_files(_deletion_range(session, cutoff_ms)):
            condition = f"{DELETED_AT} <= timestamp_millis({cutoff_ms}L)"
            if not exchange.content().where(condition).isEmpty():
                self.drop(condition, entry)


def tombstone_table(spark: SparkSession, store: Store, table: TablePlan, *, idempotent: bool) -> TombstoneTable | None:
    """The table's tombstones; None if the table is not merged, or has none."""
    if table.write.merge is None:
        return None
    tombstones = TombstoneTable(spark, store, table, idempotent=idempotent)
    return tombstones if tombstones.exists else None


def next_generation(store: Store, table: TablePlan) -> int:
    """The first generation without tombstones: after the table was restored to an older state they may be ahead."""
    if table.write.merge is None:
        return 0
    location = tombstones_of(table.name, table.uri)
    head = read_head(DeltaLog(store, location.uri, location.table))
    return head.entry.generation + 1 if head is not None else 0


def settle_tombstones(
    spark: SparkSession, table: TablePlan, store: Store, head: LedgerHead, *, idempotent: bool
) -> None:
    """Settles the tombstones after a generation of the table was opened, under its commit lock."""
    tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
    if tombstones is not None:
        tombstones.settle(head)


def move_tombstones(
    spark: SparkSession, tombstones: TombstoneTable, table: TablePlan, schema: StructType, head: LedgerHead
) -> tuple[LedgerHead, str | None]:
    """Moves tombstones from among a merged table's rows, where older versions kept them, to the table beside it, and
    returns a note if any moved. Under the table's commit lock; after a crash at any point the next start repeats it."""
    session = spark.newSession()
    exchange = Exchange(session, table.uri)
    is_separate = exchange.setting(TOMBSTONES_PROPERTY) == SEPARATE
    log, moved = tombstones.main_log, 0
    if is_separate and last_rows(head, log).entry.kind != "rewind":
        return head, None
    if exchange.select_files(_deletion_range(session, _NEVER)):
        tombstone_rows = exchange.rows().where(DELETED)
        count = F.count(F.lit(1)).alias(_FOUND)
        places = tombstone_rows.groupBy(FILE).agg(F.collect_list(PLACE).alias("places"), count)
        moved = exchange.mark_removed(places, (_FOUND,))[_FOUND]
        if moved:
            tombstones.create(head.entry, schema)
            tombstones.add(tombstone_rows, head.entry)
            entry = head.carry_entry
            with commit_metadata(session, entry, idempotent=False):
                exchange.commit(None, {"numTargetRowsDeleted": moved}, seen=False)
            head = must_confirm(head, log, entry)
    if not is_separate:
        spark.sql(f"ALTER TABLE delta.{quote(table.uri)} SET TBLPROPERTIES ('{TOMBSTONES_PROPERTY}' = '{SEPARATE}')")
        head = advance(head, log)
    return head, f"{moved:,} tombstones moved to {tombstones.name}" if moved else None


def _deletion_range(session: SparkSession, until_ms: int) -> Any:
    """The ranges for `select_files` of rows deleted until then, in microseconds since 1970."""
    span = f"array(struct(0L AS low, {until_ms}L * 1000L AS high)) AS {DELETED_AT}"
    return java_frame(session.range(1).selectExpr(span)).first()
