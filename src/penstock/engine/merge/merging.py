"""The rows of a batch merged into the table: one look at the files that can hold their keys, one write, one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.identifiers import quote
from penstock.engine.merge import patches, scd1, scd2
from penstock.engine.merge.changes import ALL, CONTENT, changes, content, schema, values_of
from penstock.engine.merge.exchange import Exchange
from penstock.engine.merge.horizon import beyond, emptied, ended, latest_truncate
from penstock.engine.merge.ranges import narrower, widest
from penstock.engine.merge.snapshots import as_changes, extracts
from penstock.engine.merge.tombstones import SEQUENCE
from penstock.engine.merge.turned import COUNTS, INSERTED, SUPERSEDED, TIES, UPDATED, by_file, coming
from penstock.engine.merge.turned import DELETED as DELETES
from penstock.engine.protocol.commit import carrying
from penstock.engine.protocol.entry import APPLIED, Entry
from penstock.engine.protocol.fates import CONFLICTS
from penstock.plan.model import TablePlan
from penstock.spec.merge import SINCE

SCANNED, FILES = "scanned", "files"
_FEW = 200_000
"""So many changes are sent to every task that reads the table; with more of them Spark decides."""
_MANY_FILES = 8
"""With more files to read than these, it is worth a job to bound the keys more closely."""


def table_schema(table: TablePlan, rows: DataFrame) -> StructType:
    """The columns of a table whose stages make these rows."""
    plan = table.write.merge
    if plan is None:
        return rows.schema
    made = schema(rows, plan, table.write.partition_by, table.name)
    return patches.with_orders(made, values_of(made.names, plan.keys)) if plan.ignore_nulls else made


class Merging:
    """Of one table. `done` lets go of what was kept for a batch."""

    def __init__(self, table: TablePlan) -> None:
        assert table.write.merge is not None
        self._table, self._plan = table, table.write.merge
        self._history = scd1 if self._plan.history == "scd1" else scd2
        if self._plan.snapshot is not None:
            self._history = scd2  # one row per key and extract
        self._kept: list[DataFrame] = []

    def write(
        self, rows: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool, rejects: Callable[[], int]
    ) -> None:
        """`rejects` counts the rows of the batch that go to quarantine: asked only where it matters."""
        session = rows.sparkSession
        with carrying(session, entry, idempotent=idempotent):
            exchange = Exchange(session, uri)
            if exchange.done:
                return
            found = changes(rows, self._plan, self._table.write.partition_by, entry.pins.time_ms, self._table.name)
            if self._plan.snapshot is None and self._plan.history == "scd1":
                found = beyond(found, entry.horizon)
            if files == 1:  # one task: the changes of a key are together without a shuffle
                found = found.coalesce(1)
            ranked = self._keep(self._history.ranked(found, self._plan.keys))
            about = _about(ranked, self._plan.keys)
            columns = [name for name in found.columns if name not in (CONTENT, ALL)]
            newest = self._decisive(ranked)
            horizon = about.truncate or entry.horizon
            if self._plan.snapshot is not None:
                newest, horizon = self._extracted(exchange, ranked, newest, entry, rejects)
            elif about.truncate is not None:
                newest = self._emptied(exchange, ranked, about.truncate, entry)
            else:
                self._look(exchange, newest, about)
                newest = self._ended(newest, entry.horizon, entry)
            there = _with_keys(exchange.rows(), newest, self._plan.keys, few=about.rows <= _FEW)
            if self._plan.ignore_nulls:
                newest = patches.folded(newest, self._plan.keys, values_of(columns, self._plan.keys))
            turned = self._keep(self._turned(newest, there, columns))
            counted = exchange.find(by_file(turned), COUNTS)
            conflicts = about.contradicted + self._contradicting(exchange, newest, counted.pop(TIES))
        counted[SUPERSEDED] = max(0, about.rows - sum(counted[kind] for kind in APPLIED))
        changed = {**counted, CONFLICTS: conflicts, SCANNED: exchange.scanned, FILES: exchange.files}
        feed = self._table.write.change_feed and exchange.goes
        with carrying(session, replace(entry, changed=changed, horizon=horizon), idempotent=idempotent):
            exchange.commit(coming(turned, feed=feed).coalesce(files), _told(changed))

    def done(self) -> None:
        kept, self._kept = self._kept, []
        for frame in kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def _look(self, exchange: Exchange, newest: DataFrame, about: About) -> None:
        """Only the files that can hold the keys are read."""
        scanned = exchange.look(about.ranges)
        if scanned > _MANY_FILES and (closer := narrower(newest, self._plan.keys[0])) is not None:
            exchange.look_closer(closer._jdf.first())

    def _decisive(self, ranked: DataFrame) -> DataFrame:
        """The changes that decide what a row is: with patches all of them."""
        some = ranked.where(f"NOT {ALL}") if self._plan.ignore_nulls else ranked.where(f"{scd1.RANK} = 1 AND NOT {ALL}")
        return some.drop(scd1.RANK, scd1.CONTRADICTED, ALL)

    def _emptied(self, exchange: Exchange, ranked: DataFrame, truncate: str, entry: Entry) -> DataFrame:
        """A truncate is about every row: the whole table is read."""
        exchange.look(None)
        kept = [*self._plan.keys, *self._table.write.partition_by]
        changes = ranked.where(f"NOT {ALL}").drop(scd1.RANK, scd1.CONTRADICTED, ALL)
        if self._plan.history == "scd1":
            changes = beyond(changes, truncate)
        made = self._ended(emptied(changes, exchange.rows(), truncate, kept, entry.pins.time_ms), truncate, entry)
        return self._keep(self._again(self._ended(made, entry.horizon, entry)))

    def _ended(self, changes: DataFrame, horizon: str | None, entry: Entry) -> DataFrame:
        if horizon is None or self._plan.history == "scd1":
            return changes
        return self._again(ended(changes, horizon, self._plan.keys, entry.pins.time_ms))

    def _again(self, changes: DataFrame) -> DataFrame:
        """Ranked once more, with what was added."""
        return self._decisive(self._history.ranked(changes.withColumn(ALL, F.lit(False)), self._plan.keys))

    def _extracted(
        self, exchange: Exchange, ranked: DataFrame, newest: DataFrame, entry: Entry, rejects: Callable[[], int]
    ) -> tuple[DataFrame, str | None]:
        """The extracts of the batch as changes: the whole table is compared with them."""
        found = extracts(ranked, entry.horizon, self._table.name, history=self._plan.history == "scd2")
        if not found.files:
            exchange.look_at_nothing()
            return newest.limit(0), found.horizon
        exchange.look(None)
        there = exchange.rows()
        columns = [name for name in newest.columns if name in there.columns]
        said = there.withColumn(CONTENT, F.expr(content(there.schema, values_of(columns, self._plan.keys))))
        whole = rejects() == 0  # a row that was rejected is not one that is missing
        made = as_changes(newest, said, found.files, self._plan.keys, entry.pins.time_ms, whole=whole)
        return self._keep(made), found.horizon

    def _turned(self, newest: DataFrame, there: DataFrame, columns: list[str]) -> DataFrame:
        feed = self._table.write.change_feed
        if self._plan.ignore_nulls:
            values = values_of(columns, self._plan.keys)
            return patches.turned(newest, there, self._plan.keys, [*columns, SINCE], values, feed=feed)
        if self._plan.history == "scd1":
            return scd1.turned(newest, there, self._plan.keys, columns, feed=feed)
        return scd2.turned(newest, there, self._plan.keys, columns, values_of(columns, self._plan.keys), feed=feed)

    def _contradicting(self, exchange: Exchange, newest: DataFrame, ties: int) -> int:
        """Changes with the sequence that the table has for their key, but another content. Rare: so only then the
        contents are read."""
        if not ties:
            return 0
        there, keys = exchange.rows(), self._plan.keys
        columns = [name for name in newest.columns if name in there.columns]
        said = there.selectExpr(
            *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
            f"{SEQUENCE} AS __s",
            f"{content(there.schema, values_of(columns, self._plan.keys))} AS __said",
        )
        equal = [f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys)]
        other = [*equal, f"new.{SEQUENCE} = old.__s", f"new.{CONTENT} <> old.__said"]
        return said.alias("old").join(F.broadcast(newest).alias("new"), F.expr(" AND ".join(other))).count()


@dataclass(frozen=True)
class About:
    """All changes of a batch, looked at by one job."""

    rows: int
    contradicted: int
    truncate: str | None
    ranges: Any | None
    """A row of the JVM; None if no key has bounds."""


def _about(ranked: DataFrame, keys: tuple[str, ...]) -> About:
    asked = ["count(*)", f"count_if({scd1.CONTRADICTED})", latest_truncate(ranked.schema)]
    parts = ranked.selectExpr(*asked, *widest(ranked.schema, keys))
    names = [*map(quote, parts.columns)]
    ranges = [f"struct({', '.join(names[3:])})"] if names[3:] else []
    found = parts.selectExpr(*names[:3], *ranges)._jdf.first()
    truncate = None if found.isNullAt(2) else str(found.getString(2))
    return About(int(found.getLong(0)), int(found.getLong(1)), truncate, found.getStruct(3) if ranges else None)


def _with_keys(there: DataFrame, newest: DataFrame, keys: tuple[str, ...], *, few: bool) -> DataFrame:
    """The rows of the table that have a key of the changes."""
    wanted = newest.select(*map(quote, keys)).alias("new")
    equal = " AND ".join(f"old.{quote(key)} = new.{quote(key)}" for key in keys)
    return there.alias("old").join(F.broadcast(wanted) if few else wanted, F.expr(equal), "left_semi")


def _told(changed: Mapping[str, int]) -> dict[str, int]:
    return {
        "numTargetRowsInserted": changed[INSERTED],
        "numTargetRowsUpdated": changed[UPDATED] + changed[DELETES],
        "numTargetRowsDeleted": 0,
        "numTargetRowsCopied": 0,
        "operationNumSourceRows": sum(changed[kind] for kind in (*APPLIED, SUPERSEDED)),
    }
