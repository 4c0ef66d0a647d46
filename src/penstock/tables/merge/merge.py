"""The rows of a batch merged into the table: one look at the files that can hold their keys, one write, one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import TableChanged
from penstock.ledger.commit import carrying
from penstock.ledger.entry import APPLIED
from penstock.ledger.row_counts import CONFLICTS
from penstock.ledger.times import lower, micros, upper
from penstock.ledger.write_target import in_files
from penstock.plan.merge import PROPERTY, merged_by
from penstock.sources.columns import SEQUENCE
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.tables.merge import partial_updates, scd
from penstock.tables.merge.changes import ALL, CONTENT, changes, content, schema, values_of
from penstock.tables.merge.row_exchange import Blank, Exchange
from penstock.tables.merge.scd import COUNTS, INSERTED_ROWS, SUPERSEDED, TIES, UPDATED_ROWS, by_file, coming, tombstones
from penstock.tables.merge.scd import DELETED_ROWS as DELETES
from penstock.tables.merge.snapshots import as_changes, extracts
from penstock.tables.merge.truncate import beyond, emptied, ended, truncates

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import (
        DataType,
        StructType,
    )

    from penstock.ledger.entry import Entry
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.tables.merge.tombstones import TombstoneTable

# Between which values the keys of a batch lie: what Delta skips files by.
#
# A range too narrow would double a key, so the bounds are exact: they stay in the JVM as the values that they are.
# Dates and instants stay there as days and microseconds since 1970: Java's own types for them have the zone of the
# process.


_BOUNDED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, StringType)
"""Types with an order that a file's statistics keep exactly, or safely rounded."""
_COUNTED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)
BUCKETS = 64
_NUMBER = "__number"


def bounded(kind: DataType) -> bool:
    return isinstance(kind, _BOUNDED)


def widest(schema: StructType, keys: Sequence[str]) -> list[str]:
    """For each key from its least to its greatest value, as aggregates."""
    return [f"{_whole(schema[key].dataType, key)} AS {quote(key)}" for key in keys if bounded(schema[key].dataType)]


def narrower(rows: DataFrame, key: str) -> DataFrame | None:
    """One row with up to 64 ranges in place of one: a few old keys among many new ones then cost few files. None where
    values have no distance."""
    kind = rows.schema[key].dataType
    if not isinstance(kind, _COUNTED):
        return None
    numbered = rows.selectExpr(quote(key), f"{_number(kind, quote(key))} AS {_NUMBER}")
    span = numbered.selectExpr(f"min({_NUMBER}) AS __least", f"max({_NUMBER}) + 1 AS __greatest")
    cut = numbered.crossJoin(F.broadcast(span)).selectExpr(
        quote(key), f"width_bucket({_NUMBER}, __least, __greatest, {BUCKETS}) AS __bucket"
    )
    parts = cut.groupBy("__bucket").agg(F.min(quote(key)).alias("least"), F.max(quote(key)).alias("greatest"))
    ends = parts.selectExpr(*_ends(kind, "least", "greatest"))
    found = ends.agg(F.collect_list(F.struct("low", "high")).alias("ranges"), F.count("low").alias("count"))
    return found.selectExpr(f"IF(count = 0, NULL, ranges) AS {quote(key)}")


def _whole(kind: DataType, key: str) -> str:
    low, high = _ends(kind, f"min({quote(key)})", f"max({quote(key)})")
    return f"IF(min({quote(key)}) IS NULL, NULL, array(struct({low}, {high})))"


def _ends(kind: DataType, least: str, greatest: str) -> tuple[str, str]:
    """As Spark itself holds them, where Java's types for them would not."""
    if isinstance(kind, DateType):
        return f"unix_date({least}) AS low", f"unix_date({greatest}) AS high"
    if isinstance(kind, TimestampType):
        return f"{lower(least)} AS low", f"{upper(greatest)} AS high"
    return f"{least} AS low", f"{greatest} AS high"


def _number(kind: DataType, name: str) -> str:
    if isinstance(kind, DateType):
        return f"CAST(unix_date({name}) AS DOUBLE)"
    if isinstance(kind, TimestampType | TimestampNTZType):
        return f"CAST({micros(name, kind)} AS DOUBLE)"
    return f"CAST({name} AS DOUBLE)"


# The rows of a batch merged into the table: one look at the files that can hold their keys, one write, one commit.


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
    return partial_updates.with_orders(made, values_of(made.names, plan)) if plan.ignore_nulls else made


class Merging:
    """Of one table. `done` lets go of what was kept for a batch."""

    def __init__(self, table: TablePlan, tombstones: TombstoneTable | None = None) -> None:
        """`tombstones`: None if there is no such table, or if rows are only looked at."""
        assert table.write.merge is not None
        self._tombstones = tombstones
        self._dead: DataFrame | None = None
        """Tombstones of a replay: they are written when its rows are committed."""
        self._table, self._plan = table, table.write.merge
        newest_only = self._plan.history == "scd1" and self._plan.snapshot is None  # else a row per key and extract
        self._ranked = scd.ranked_current if newest_only else scd.ranked_history
        self._kept: list[DataFrame] = []

    def write(
        self, rows: DataFrame, entry: Entry, into: WriteTarget, *, files: int, rejects: Callable[[], int]
    ) -> None:
        """`rejects` counts the rows of the batch that go to quarantine: asked only where it matters."""
        session = rows.sparkSession
        with carrying(session, entry, idempotent=into.idempotent, uri=into.uri):
            exchange = Blank(session, into.uri) if into.anew else Exchange(session, into.uri)
            self._refuse_another(exchange.setting(PROPERTY))
            if not into.anew and exchange.done:
                return
            made = self.changes(rows, entry)
            values = values_of(made.columns, self._plan)
            found = _with_all_columns(made, exchange.schema)
            if self._plan.snapshot is None and self._plan.history == "scd1":
                found = beyond(found, entry.horizon)
            if files == 1:  # one task: the changes of a key are together without a shuffle
                found = found.coalesce(1)
            ranked = self._keep(self._ranked(found, self._plan.keys))
            about = _about(ranked, self._plan.keys, entry.horizon if self._plan.snapshot is None else None)
            newest, few = (
                self._decisive(ranked),
                about.rows <= _FEW and not about.truncated and self._plan.snapshot is None,
            )
            horizon = about.horizon
            if self._plan.snapshot is not None:
                newest, horizon = self._extracted(exchange, ranked, newest, values, entry, rejects)
            elif about.truncated:
                assert horizon is not None
                newest = self._emptied(exchange, ranked, horizon, values, entry)
            else:
                self._look(exchange, newest, about)
                newest = self._ended(newest, entry.horizon, values, entry)
            rows = self._with_tombstones(exchange, about, into)
            there = _with_keys(rows, newest, self._plan.keys, few=few)
            turned = self._keep(self._turned(newest, there, values, feed=exchange.feeds, few=few))
            counted, conflicts = exchange.find(by_file(turned), COUNTS), about.contradicted
            if counted.pop(TIES):
                conflicts += self._contradicting(rows, newest, values, few=few)
        counted[SUPERSEDED] = max(0, about.rows - sum(counted[kind] for kind in APPLIED))
        changed = {**counted, CONFLICTS: conflicts, SCANNED: exchange.scanned, FILES: exchange.files}
        entry = replace(entry, changed=changed, horizon=horizon)
        come = in_files(coming(turned, feed=exchange.feeds and exchange.goes), files)
        dead = tombstones(turned) if counted[DELETES] and self._tombstones is not None else None
        if into.anew:
            self._dead = dead
            into.append(come, entry)
            return
        if dead is not None and self._tombstones is not None:
            self._tombstones.add(dead, entry)
        with carrying(session, entry, idempotent=into.idempotent, uri=into.uri):
            exchange.commit(come, _told(changed))

    def changes(self, rows: DataFrame, entry: Entry) -> DataFrame:
        """What the rows say, before they are held against the table."""
        return changes(rows, self._plan, self._table.write.partition_by, entry.pins.time_ms, self._table.name)

    def complete(self, entry: Entry) -> None:
        """Before the rows of a replay are committed, under the table's lock."""
        if self._dead is not None and self._tombstones is not None:
            self._tombstones.add(self._dead, entry, files=0)
        self._dead = None

    def done(self) -> None:
        self._dead = None
        kept, self._kept = self._kept, []
        for frame in kept:
            frame.unpersist()

    def _refuse_another(self, was: str | None) -> None:
        now = merged_by(self._plan)
        if was != now:
            raise TableChanged(
                f"the table was merged {was}, its definition merges {now}"
                if was
                else "the table was not made by merges",
                where=self._table.name,
                hint="write it as it was, or make a table of another name: these rows cannot be told apart so",
            )

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def _look(self, exchange: Exchange, newest: DataFrame, about: BatchChanges) -> None:
        """Only the files that can hold the keys are read."""
        scanned = exchange.look(about.ranges)
        if scanned > _MANY_FILES and (closer := narrower(newest, self._plan.keys[0])) is not None:
            exchange.look_closer(java_frame(closer).first())

    def _decisive(self, ranked: DataFrame) -> DataFrame:
        """The changes that decide what a row is: with patches all of them."""
        some = ranked.where(f"NOT {ALL}") if self._plan.ignore_nulls else ranked.where(f"{scd.RANK} = 1 AND NOT {ALL}")
        return some.drop(scd.RANK, scd.CONTRADICTED, ALL)

    def _emptied(
        self, exchange: Exchange, ranked: DataFrame, horizon: str, values: list[str], entry: Entry
    ) -> DataFrame:
        """A truncate is about every row: the whole table is read."""
        exchange.look(None)
        kept = [*self._plan.keys, *self._table.write.partition_by]
        changes = ranked.where(f"NOT {ALL}").drop(scd.RANK, scd.CONTRADICTED, ALL)
        if self._plan.history == "scd1":
            changes = beyond(changes, horizon)
        made = emptied(changes, exchange.rows(), horizon, kept, values, entry.pins.time_ms)
        return self._keep(self._again(self._ended(made, horizon, values, entry)))

    def _ended(self, changes: DataFrame, horizon: str | None, values: list[str], entry: Entry) -> DataFrame:
        if horizon is None or self._plan.history == "scd1":
            return changes
        return self._again(ended(changes, horizon, self._plan.keys, values, entry.pins.time_ms))

    def _again(self, changes: DataFrame) -> DataFrame:
        """Ranked once more, with what was added."""
        return self._decisive(self._ranked(changes.withColumn(ALL, F.lit(False)), self._plan.keys))

    def _extracted(
        self,
        exchange: Exchange,
        ranked: DataFrame,
        newest: DataFrame,
        values: list[str],
        entry: Entry,
        rejects: Callable[[], int],
    ) -> tuple[DataFrame, str | None]:
        """The extracts of the batch as changes: the whole table is compared with them."""
        found = extracts(ranked, entry.horizon, self._table.name, history=self._plan.history == "scd2")
        if not found.files:
            exchange.look_at_nothing()
            return newest.limit(0), found.horizon
        exchange.look(None)
        there = exchange.rows()
        said = there.withColumn(CONTENT, F.expr(content(there.schema, values)))
        whole = rejects() == 0  # a row that was rejected is not one that is missing
        made = as_changes(newest, said, found.files, self._plan.keys, values, entry.pins.time_ms, whole=whole)
        return self._keep(made), found.horizon

    def _with_tombstones(self, exchange: Exchange, about: BatchChanges, into: WriteTarget) -> DataFrame:
        """The rows of the table that were looked for, and the tombstones of the same keys."""
        rows = exchange.rows()
        if self._tombstones is None or into.anew:
            return rows
        everything = about.truncated or self._plan.snapshot is not None
        dead = self._tombstones.look(rows.sparkSession, None if everything else about.ranges, rows.schema)
        if dead is None:
            return rows
        both = rows.unionByName(dead)
        one_each = self._plan.history == "scd1" or self._plan.ignore_nulls
        return scd.decisive(both, self._plan.keys) if one_each else both

    def _turned(self, newest: DataFrame, there: DataFrame, values: list[str], *, feed: bool, few: bool) -> DataFrame:
        columns, keys = [name for name in newest.columns if name != CONTENT], self._plan.keys
        if self._plan.ignore_nulls:
            return partial_updates.turned(
                partial_updates.folded(newest, keys, values), there, keys, columns, values, feed=feed
            )
        if self._plan.history == "scd1":
            return scd.turned_current(newest, there, keys, columns, feed=feed, few=few)
        return scd.turned_history(newest, there, keys, columns, feed=feed)

    def _contradicting(self, there: DataFrame, newest: DataFrame, values: list[str], *, few: bool) -> int:
        """Changes with the sequence that the table has for their key, but another content. Rare: so only then the
        contents are read."""
        keys = self._plan.keys
        said = there.selectExpr(
            *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
            f"{SEQUENCE} AS __s",
            f"{content(there.schema, values)} AS __said",
        )
        equal = [f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys)]
        other = [*equal, f"new.{SEQUENCE} = old.__s", f"new.{CONTENT} <> old.__said"]
        new = (F.broadcast(newest) if few else newest).alias("new")
        return said.alias("old").join(new, F.expr(" AND ".join(other))).count()


def _with_all_columns(made: DataFrame, table: StructType) -> DataFrame:
    """Columns that the definition no longer makes are NULL in what is new; rows that are written again keep theirs."""
    there = {name.casefold() for name in made.columns}
    gone = [field for field in table.fields if field.name.casefold() not in there]
    return made.select("*", *(F.lit(None).cast(sql_type(field.dataType)).alias(field.name) for field in gone))


@dataclass(frozen=True)
class BatchChanges:
    """All changes of a batch, looked at by one job."""

    rows: int
    contradicted: int
    truncated: bool
    horizon: str | None
    """With the truncates that were known before."""
    ranges: Any | None
    """A row of the JVM; None if no key has bounds."""


def _about(ranked: DataFrame, keys: tuple[str, ...], horizon: str | None) -> BatchChanges:
    asked = ["count(*)", f"count_if({scd.CONTRADICTED})", f"count_if({ALL})", truncates(ranked.schema, horizon)]
    parts = ranked.selectExpr(*(f"{one} AS a{n}" for n, one in enumerate(asked)), *widest(ranked.schema, keys))
    names = [*map(quote, parts.columns)]
    ranges = [f"struct({', '.join(names[4:])})"] if names[4:] else []
    found = java_frame(parts.selectExpr(*names[:4], *ranges)).first()
    return BatchChanges(
        int(found.getLong(0)),
        int(found.getLong(1)),
        bool(found.getLong(2)),
        None if found.isNullAt(3) else str(found.getString(3)),
        found.getStruct(4) if ranges else None,
    )


def _with_keys(there: DataFrame, newest: DataFrame, keys: tuple[str, ...], *, few: bool) -> DataFrame:
    """The rows of the table that have a key of the changes."""
    wanted = newest.select(*map(quote, keys)).alias("new")
    equal = " AND ".join(f"old.{quote(key)} = new.{quote(key)}" for key in keys)
    return there.alias("old").join(F.broadcast(wanted) if few else wanted, F.expr(equal), "left_semi")


def _told(changed: Mapping[str, int]) -> dict[str, int]:
    return {
        "numTargetRowsInserted": changed[INSERTED_ROWS],
        "numTargetRowsUpdated": changed[UPDATED_ROWS],
        "numTargetRowsDeleted": changed[DELETES],
        "operationNumSourceRows": sum(changed[kind] for kind in (*APPLIED, SUPERSEDED)),
    }
