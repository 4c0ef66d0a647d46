"""The tombstones of a merged table, in a table of their own beside it: who reads the table sees living rows only.

A tombstone says that a key was deleted, by which change and when, so that an older change that comes late does not
bring the row back. Tombstones are written before the batch that deletes the rows is committed; those of a batch that
never was are dropped before anything else is written.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from penstock.engine.forget.statistics import statistics_of
from penstock.engine.identifiers import quote
from penstock.engine.merge.changes import FROM
from penstock.engine.merge.exchange import FILE, PLACE, Exchange
from penstock.engine.merge.tombstones import DELETED, DELETED_AT, SEQUENCE
from penstock.engine.protocol.commit import carrying, must_confirm
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import Tail, advance
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.quarantine import Companion
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.store import Store
from penstock.plan.merge import SEPARATE, TOMBSTONES_PROPERTY
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import tombstones_of

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
        """Nothing happens if it is there. `table` has the columns of the merged table."""
        if self.exists:
            return
        kept = [*self._plan.keys, SEQUENCE, DELETED_AT, SOURCE, *([FROM] if FROM in table.names else [])]
        fields = [StructField(name, table[name].dataType) for name in kept]
        schema = StructType([*fields, *(StructField(name, LongType()) for name in _BATCH)])
        self._create(entry, schema, {**_PROPERTIES, **statistics_of(self._table, schema)})

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
                    f"CAST({quote(f.name) if f.name in known else 'NULL'} AS {f.dataType.simpleString()}) "
                    f"AS {quote(f.name)}"
                )
                for f in like.fields
            )
        )

    def add(self, rows: DataFrame, entry: Entry, *, files: int = 1) -> None:
        """Those of a batch that is about to be committed. What is left of an attempt at the same batch goes first; of a
        redrive it may stay, for it says the same twice."""
        redrive = entry.kind == "redrive"
        if not redrive and self.has(entry):
            if self._idempotent:  # each start has a generation of its own: it was this process, with the same rows
                return
            self.drop(f"generation = {entry.generation} AND batch = {entry.batch}", entry)
        own, session = self._own(entry, "redrive" if redrive else "batch"), self._spark.newSession()
        about = {"generation": f"{entry.generation}L", "batch": f"{entry.batch}L"}
        exchange = Exchange(session, self._place.uri)
        come = rows.selectExpr(*(f"{about.get(name, quote(name))} AS {quote(name)}" for name in exchange.schema.names))
        with carrying(session, own, idempotent=self._idempotent, uri=self._place.uri):
            exchange.commit(come.coalesce(files) if files else come, {})
        assert self._tail is not None
        self._tail = must_confirm(self._tail, self.log, own)

    def drop_unfinished(self, entry: Entry) -> None:
        """Those of batches after the table's last `entry`: they were cut off before they were committed."""
        if self.exists and self.has(entry) and self._tail is not None and self._tail.entry.key > entry.key:
            later = f"generation > {entry.generation} OR (generation = {entry.generation} AND batch > {entry.batch})"
            self.drop(later, entry)

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


def separate(
    spark: SparkSession, tombstones: TombstoneTable, table: TablePlan, schema: StructType, tail: Tail
) -> tuple[Tail, str | None]:
    """Moves the tombstones that are among the rows of a merged table, as tables made before have them, to the table
    beside it. Under the table's commit lock; cut off anywhere, the next start does it again. What was done, if
    anything was."""
    session = spark.newSession()
    exchange = Exchange(session, table.uri)
    marked = exchange.setting(TOMBSTONES_PROPERTY) == SEPARATE
    if marked and tail.entry.kind != "rewind":
        return tail, None
    log, moved = tombstones.main_log, 0
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
    return session.range(1).selectExpr(span)._jdf.first()
