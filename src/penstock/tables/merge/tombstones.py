"""The tombstones of a merged table, in a table of their own beside it: who reads the table sees living rows only.

A tombstone says that a key was deleted, by which change and when, so that an older change that comes late does not
bring the row back. Tombstones are written before the batch that deletes the rows is committed; those of a batch that
never was are dropped before anything else is written. On stores without our locks that is done when a generation was
opened: until then the runner of the one before may still commit the batch that they belong to.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from penstock.errors import Fenced, TableChanged
from penstock.ledger.commit import append_nothing, carrying, must_confirm
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
from penstock.tables.quarantine import Companion

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


class TombstoneTable(Companion):
    def __init__(self, spark: SparkSession, store: Store, table: TablePlan, *, idempotent: bool) -> None:
        super().__init__(spark, store, tombstones_of(table.name, table.uri), idempotent=idempotent)
        assert table.write.merge is not None
        self._table, self._plan = table, table.write.merge
        self.name = self._place.table
        self.main_log = DeltaLog(store, table.uri, table.name)
        """Of the merged table itself."""

    def create(self, entry: Entry, table: StructType) -> None:
        """`table` has the columns of the merged table. If it is there, its columns follow those."""
        kept = [*self._plan.keys, SEQUENCE, DELETED_AT, SOURCE, *([FROM] if FROM in table.names else [])]
        fields = [StructField(name, table[name].dataType) for name in kept]
        schema = StructType([*fields, *(StructField(name, LongType()) for name in _BATCH)])
        if self.exists:
            self._settle_columns(schema)
        else:
            self._create(entry, schema, {**_PROPERTIES, **statistics_of(self._table, schema)})

    def _settle_columns(self, wanted: StructType) -> None:
        found = differences(self._spark.read.format("delta").load(self._place.uri).schema, wanted)
        if found.other:
            told = ", ".join(f"{name} {old}, would be {new}" for name, (old, new) in found.other.items())
            raise TableChanged(
                f"the columns of its tombstones cannot be changed so: {told}",
                where=self.name,
                hint=f"write the types in the definition of {self._table.name} as they were, or make a table of "
                "another name",
            )
        if found.new or found.wider:
            evolve_columns(self._spark, self._place.uri, wanted, found)

    def look(self, session: SparkSession, ranges: Any | None, like: StructType) -> DataFrame | None:
        """The tombstones of keys within the ranges, as rows of the merged table, which has the columns `like`; None if
        there are none."""
        exchange = Exchange(session, self._place.uri)
        if not exchange.files or not exchange.look(ranges):
            return None
        known = {*exchange.schema.names}
        values = {DELETED: "true", FILE: "CAST(NULL AS STRING)", PLACE: "CAST(NULL AS BIGINT)"}
        return exchange.content().selectExpr(
            *(
                f"{values[f.name]} AS {f.name}"
                if f.name in values
                else (
                    f"CAST({quote(f.name) if f.name in known else 'NULL'} AS {sql_type(f.dataType)}) AS {quote(f.name)}"
                )
                for f in like.fields
            )
        )

    def add(self, rows: DataFrame, entry: Entry, *, files: int = 1) -> None:
        """Those of a batch that is about to be committed. What is left of an attempt at the same batch goes first: it
        was of this process, or of one that ended, for a generation has one runner. Of a redrive it may stay, for it
        says the same twice."""
        redrive, uri = entry.kind == "redrive", self._place.uri
        self._refuse_fenced(entry)
        if not redrive and self.has(entry):
            attempt = f"generation = {entry.generation} AND batch = {entry.batch}"
            self.drop(attempt, replace(entry, kind="batch", pending={}))
        own, session = self._own(entry, "redrive" if redrive else "batch"), self._spark.newSession()
        before = self._tail
        assert before is not None
        with carrying(session, own, idempotent=self._idempotent, uri=uri):
            exchange = Exchange(session, uri)
            taken = self._idempotent and exchange.done  # asked for, a mark that is set from here on is a conflict
        self._refuse_fenced(entry)
        if taken and redrive:
            must_confirm(before, self.log, own)
        about = {"generation": entry.generation, "batch": entry.batch}
        come = rows.selectExpr(  # types as text: fields within a sequence that cannot be NULL are no matter of a cast
            *(
                f"CAST({about.get(f.name, quote(f.name))} AS {sql_type(f.dataType)}) AS {quote(f.name)}"
                for f in exchange.schema.fields
            )
        )
        with carrying(session, own, idempotent=self._idempotent, uri=uri, more=taken):
            exchange.commit(come.coalesce(files) if files else come, {})
        self._tail = must_confirm(before, self.log, own)

    def _refuse_fenced(self, entry: Entry) -> None:
        """Without our locks: whoever has opened a later generation has dropped what was left of this one, or will."""
        assert self._tail is not None
        self._tail = advance(self._tail, self.log)
        if self._idempotent and self._tail.entry.generation > entry.generation:
            raise Fenced(
                f"another process has opened generation {self._tail.entry.generation}, this one writes generation "
                f"{entry.generation}",
                where=self._table.name,
                hint="the table continues from its ledger by itself",
            )

    def settle(self, tail: LedgerHead) -> None:
        """Drops those of batches that were cut off before they were committed. `tail` is the end of the ledger of the
        table: on stores without our locks an entry of a generation that this process has opened. There the runner of
        the one before is kept from writing first, by Delta's own mark."""
        if not self.exists or self._tail is None:
            return
        self._tail, entry = advance(self._tail, self.log), tail.entry
        if self._idempotent and self._tail.entry.generation < entry.generation:
            note = f"generation {entry.generation} of the table was opened"
            own = replace(self._own(entry, "open"), batch=0, seen=None, note=note, pending={})
            append_nothing(self._spark, self._place.uri, own)
            self._tail = must_confirm(self._tail, self.log, own)
        rows = last_rows(tail, self.main_log)
        last, newest = rows.entry.key, entry.generation if self._idempotent else None
        if not self._holds_after(last, rows.opened, newest):
            return
        condition = f"(generation > {last[0]} OR (generation = {last[0]} AND batch > {last[1]}))"
        condition += "".join(f" AND NOT (generation = {g} AND batch = {b})" for g, b in sorted(rows.opened))
        if newest is not None:
            condition += f" AND generation <= {newest}"
        kind: Kind = "batch" if entry.kind == "batch" else "open"
        self.drop(condition, replace(entry, kind=kind, filled=tail.filled, pending={}))

    def _holds_after(self, last: tuple[int, int], opened: frozenset[tuple[int, int]], newest: int | None) -> bool:
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
        """Those that the project no longer keeps. A change from before such a delete then brings its row back."""
        kept = self._plan.keep_deleted_ms
        if kept is None or not self.exists:
            return
        last = (now_ms if now_ms is not None else time.time_ns() // 1_000_000) - kept
        session = self._spark.newSession()
        exchange = Exchange(session, self._place.uri)
        if exchange.files and exchange.look(_deleted_by(session, last)):
            old = f"{DELETED_AT} <= timestamp_millis({last}L)"
            if not exchange.content().where(old).isEmpty():
                self.drop(old, entry)


def tombstone_table(spark: SparkSession, store: Store, table: TablePlan, *, idempotent: bool) -> TombstoneTable | None:
    """None if the table is not a merged one, or has none."""
    if table.write.merge is None:
        return None
    found = TombstoneTable(spark, store, table, idempotent=idempotent)
    return found if found.exists else None


def next_generation(store: Store, table: TablePlan) -> int:
    """The first that no tombstone is of: of a table that was put back to an older state they may be ahead."""
    if table.write.merge is None:
        return 0
    place = tombstones_of(table.name, table.uri)
    tail = read_head(DeltaLog(store, place.uri, place.table))
    return tail.entry.generation + 1 if tail is not None else 0


def settle_tombstones(
    spark: SparkSession, table: TablePlan, store: Store, tail: LedgerHead, *, idempotent: bool
) -> None:
    """When a generation of the table was opened, under its commit lock."""
    tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
    if tombstones is not None:
        tombstones.settle(tail)


def separate(
    spark: SparkSession, tombstones: TombstoneTable, table: TablePlan, schema: StructType, tail: LedgerHead
) -> tuple[LedgerHead, str | None]:
    """Moves the tombstones that are among the rows of a merged table, as tables made before have them, to the table
    beside it. Under the table's commit lock; cut off anywhere, the next start does it again. What was done, if
    anything was."""
    session = spark.newSession()
    exchange = Exchange(session, table.uri)
    marked = exchange.setting(TOMBSTONES_PROPERTY) == SEPARATE
    log, moved = tombstones.main_log, 0
    if marked and last_rows(tail, log).entry.kind != "rewind":
        return tail, None
    if exchange.look(_deleted_by(session, _NEVER)):
        dead = exchange.rows().where(DELETED)
        places = dead.groupBy(FILE).agg(F.collect_list(PLACE).alias("places"), F.count(F.lit(1)).alias(_FOUND))
        moved = exchange.find(places, (_FOUND,))[_FOUND]
        if moved:
            tombstones.create(tail.entry, schema)
            tombstones.add(dead, tail.entry)
            entry = tail.carried
            with carrying(session, entry, idempotent=False):
                exchange.commit(None, {"numTargetRowsDeleted": moved}, seen=False)
            tail = must_confirm(tail, log, entry)
    if not marked:
        spark.sql(f"ALTER TABLE delta.{quote(table.uri)} SET TBLPROPERTIES ('{TOMBSTONES_PROPERTY}' = '{SEPARATE}')")
        tail = advance(tail, log)
    return tail, f"{moved:,} tombstones moved to {tombstones.name}" if moved else None


def _deleted_by(session: SparkSession, millis: int) -> Any:
    """Ranges for a look: deleted until then, in microseconds since 1970."""
    span = f"array(struct(0L AS low, {millis}L * 1000L AS high)) AS {DELETED_AT}"
    return java_frame(session.range(1).selectExpr(span)).first()
