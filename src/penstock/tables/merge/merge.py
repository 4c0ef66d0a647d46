"""Merges the rows of a batch into the table: one read of the files that can hold their keys, one write, one commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, DecimalType, IntegralType, StringType, TimestampNTZType, TimestampType

from penstock.errors import TableChanged
from penstock.ledger.commit import commit_metadata
from penstock.ledger.entry import APPLIED
from penstock.ledger.row_counts import CONFLICTS
from penstock.ledger.times import lower_bound, micros, upper_bound
from penstock.ledger.write_target import coalesce_files
from penstock.plan.merge import PROPERTY, merge_description
from penstock.sources.columns import SEQUENCE
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.tables.merge import partial_updates, scd
from penstock.tables.merge.changes import CONTENT, TRUNCATE_MARK, batch_changes, content, schema, values_of
from penstock.tables.merge.row_exchange import EmptyExchange, Exchange
from penstock.tables.merge.scd import (
    COUNTS,
    INSERTED_ROWS,
    SUPERSEDED,
    TIES,
    UPDATED_ROWS,
    removals_by_file,
    rows_to_write,
    tombstones,
)
from penstock.tables.merge.scd import DELETED_ROWS as DELETES
from penstock.tables.merge.snapshots import changes_of_extracts, extracts
from penstock.tables.merge.truncate import after_horizon, truncates, with_truncate_deletes, with_truncate_ends

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

    from penstock.ledger.entry import Entry
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.tables.merge.tombstones import TombstoneTable

# The ranges of a batch's keys, by which Delta skips files.
#
# A range that is too narrow would duplicate a key, so the bounds are exact: the values never leave the JVM. Dates and
# instants stay there as days and microseconds since 1970, because Java's own types for them use the time zone of the
# process.


_COUNTED = (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType)
BUCKETS = 64
_NUMBER = "__number"


def bounded(data_type: DataType) -> bool:
    """Whether the order of its values survives in a file's statistics, exactly or safely rounded, and their bounds can
    be written and read back exactly: times as numbers, all others as text."""
    return isinstance(data_type, (*_COUNTED, StringType))


def key_ranges(schema: StructType, keys: Sequence[str]) -> list[str]:
    """Aggregates that give the range of each key, from its least to its greatest value."""
    return [
        f"{_full_range(schema[key].dataType, key)} AS {quote(key)}" for key in keys if bounded(schema[key].dataType)
    ]


def narrow_ranges(rows: DataFrame, key: str) -> DataFrame | None:
    """One row with up to 64 ranges for the key instead of one, so that a few old keys among many new ones cost few
    files. None if the type has no distance between values."""
    data_type = rows.schema[key].dataType
    if not isinstance(data_type, _COUNTED):
        return None
    numbered = rows.selectExpr(quote(key), f"{_as_number(data_type, quote(key))} AS {_NUMBER}")
    span = numbered.selectExpr(f"min({_NUMBER}) AS __least", f"max({_NUMBER}) + 1 AS __greatest")
    bucketed = numbered.crossJoin(F.broadcast(span)).selectExpr(
        quote(key), f"width_bucket({_NUMBER}, __least, __greatest, {BUCKETS}) AS __bucket"
    )
    buckets = bucketed.groupBy("__bucket").agg(F.min(quote(key)).alias("least"), F.max(quote(key)).alias("greatest"))
    ranges = buckets.selectExpr(*_range_ends(data_type, "least", "greatest"))
    collected = ranges.agg(F.collect_list(F.struct("low", "high")).alias("ranges"), F.count("low").alias("count"))
    return collected.selectExpr(f"IF(count = 0, NULL, ranges) AS {quote(key)}")


def _full_range(data_type: DataType, key: str) -> str:
    low, high = _range_ends(data_type, f"min({quote(key)})", f"max({quote(key)})")
    return f"IF(min({quote(key)}) IS NULL, NULL, array(struct({low}, {high})))"


def _range_ends(data_type: DataType, least: str, greatest: str) -> tuple[str, str]:
    """The bounds in Spark's internal form where Java's types would not keep them exact."""
    if isinstance(data_type, DateType):
        return f"unix_date({least}) AS low", f"unix_date({greatest}) AS high"
    if isinstance(data_type, TimestampType):
        return f"{lower_bound(least)} AS low", f"{upper_bound(greatest)} AS high"
    return f"{least} AS low", f"{greatest} AS high"


def _as_number(data_type: DataType, name: str) -> str:
    if isinstance(data_type, DateType):
        return f"CAST(unix_date({name}) AS DOUBLE)"
    if isinstance(data_type, TimestampType | TimestampNTZType):
        return f"CAST({micros(name, data_type)} AS DOUBLE)"
    return f"CAST({name} AS DOUBLE)"


# Merging a batch.


SCANNED, FILES = "scanned", "files"
_FEW = 200_000
"""Up to this many changes are broadcast to the tasks that read the table; above it Spark decides."""
_MANY_FILES = 8
"""With more files than this to read, a job that narrows the key ranges pays off."""


def table_schema(table: TablePlan, rows: DataFrame) -> StructType:
    """The columns of a table whose stages produce these rows."""
    plan = table.write.merge
    if plan is None:
        return rows.schema
    columns = schema(rows, plan, table.write.partition_by, table.name)
    return partial_updates.with_orders(columns, values_of(columns.names, plan)) if plan.ignore_nulls else columns


class TableMerge:
    """Merges batches into one table. `release` gives up what was cached for a batch."""

    def __init__(self, table: TablePlan, tombstones: TombstoneTable | None = None) -> None:
        """`tombstones`: None if there is no such table, or if rows are only previewed."""
        assert table.write.merge is not None
        self._tombstones = tombstones
        self._pending_tombstones: DataFrame | None = None
        """Tombstones of a replay, written when its rows are committed."""
        self._table, self._plan = table, table.write.merge
        newest_only = self._plan.history == "scd1" and self._plan.snapshot is None  # else a row per key and extract
        self._rank_changes = scd.ranked_current if newest_only else scd.ranked_history
        self._cached: list[DataFrame] = []

    def write(
        self, rows: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int, rejects: Callable[[], int]
    ) -> None:
        """`rejects` counts the rows of the batch that go to quarantine; called only where the count matters."""
        session, replaces_all = rows.sparkSession, write_target.replaces_all
        has_extracts = self._plan.snapshot is not None
        with commit_metadata(session, entry, idempotent=write_target.idempotent, uri=write_target.uri):
            exchange = (EmptyExchange if replaces_all else Exchange)(session, write_target.uri)
            self._refuse_other_merge(exchange.setting(PROPERTY))
            if not replaces_all and exchange.already_committed:
                return
            batch_changes = self.changes(rows, entry)
            values = values_of(batch_changes.columns, self._plan)
            incoming = _with_all_columns(batch_changes, exchange.schema)
            if not has_extracts and self._plan.history == "scd1":
                incoming = after_horizon(incoming, entry.horizon)
            if files == 1:  # one task: the changes of a key are together without a shuffle
                incoming = incoming.coalesce(1)
            ranked = self._cache(self._rank_changes(incoming, self._plan.keys))
            summary = _summarize(ranked, self._plan.keys, None if has_extracts else entry.horizon)
            newest, horizon = self._decisive_changes(ranked), summary.horizon
            few = summary.rows <= _FEW and not summary.truncated and not has_extracts
            if has_extracts:
                newest, horizon = self._changes_of_extracts(exchange, ranked, newest, values, entry, rejects)
            elif summary.truncated:
                assert horizon is not None
                newest = self._apply_truncate(exchange, ranked, horizon, values, entry)
            else:
                self._select_files(exchange, newest, summary)
                newest = self._end_late_rows(newest, entry.horizon, values, entry)
            rows = self._existing_rows(exchange, summary, write_target)
            existing = with_keys(rows, newest, self._plan.keys, few=few)
            feed = exchange.keeps_change_feed
            merge_result = self._cache(self._merge_result(newest, existing, values, feed=feed, few=few))
            row_counts, conflicts = exchange.mark_removed(removals_by_file(merge_result), COUNTS), summary.contradicted
            if row_counts.pop(TIES):
                conflicts += self._count_contradictions(rows, newest, values, few=few)
        row_counts[SUPERSEDED] = max(0, summary.rows - sum(row_counts[kind] for kind in APPLIED))
        changed = {**row_counts, CONFLICTS: conflicts, SCANNED: exchange.scanned, FILES: exchange.files}
        entry = replace(entry, changed=changed, horizon=horizon)
        new_rows = coalesce_files(rows_to_write(merge_result, feed=feed and exchange.removes_rows), files)
        new_tombstones = tombstones(merge_result) if row_counts[DELETES] and self._tombstones is not None else None
        if replaces_all:
            self._pending_tombstones = new_tombstones
            write_target.append(new_rows, entry)
            return
        if new_tombstones is not None and self._tombstones is not None:
            self._tombstones.add(new_tombstones, entry)
        with commit_metadata(session, entry, idempotent=write_target.idempotent, uri=write_target.uri):
            exchange.commit(new_rows, _commit_metrics(changed))

    def changes(self, rows: DataFrame, entry: Entry) -> DataFrame:
        """The rows as changes, before they are compared with the table."""
        return batch_changes(rows, self._plan, self._table.write.partition_by, entry.pins.time_ms, self._table.name)

    def complete(self, entry: Entry) -> None:
        """Writes the tombstones of a replay before its rows are committed, under the table's lock."""
        if self._pending_tombstones is not None and self._tombstones is not None:
            self._tombstones.add(self._pending_tombstones, entry, files=0)
        self._pending_tombstones = None

    def release(self) -> None:
        self._pending_tombstones = None
        cached, self._cached = self._cached, []
        for frame in cached:
            frame.unpersist()

    def _refuse_other_merge(self, table_merge: str | None) -> None:
        plan_merge = merge_description(self._plan)
        if table_merge != plan_merge:
            raise TableChanged(
                f"the table was merged {table_merge}, its definition merges {plan_merge}"
                if table_merge
                else "the table was not made by merges",
                where=self._table.name,
                hint="existing rows cannot be matched on the new keys: restore the old ones, or make another table",
            )

    def _cache(self, frame: DataFrame) -> DataFrame:
        self._cached.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def _select_files(self, exchange: Exchange, newest: DataFrame, summary: BatchChanges) -> None:
        """Restricts the exchange to the files that can hold the keys."""
        scanned = exchange.select_files(summary.ranges)
        if scanned > _MANY_FILES and (ranges := narrow_ranges(newest, self._plan.keys[0])) is not None:
            exchange.narrow_files(java_frame(ranges).first())

    def _decisive_changes(self, ranked: DataFrame) -> DataFrame:
        """The changes that decide what a row becomes: with partial updates, all of them."""
        winner = "" if self._plan.ignore_nulls else f"{scd.RANK} = 1 AND "
        return ranked.where(f"{winner}NOT {TRUNCATE_MARK}").drop(scd.RANK, scd.CONTRADICTED, TRUNCATE_MARK)

    def _apply_truncate(
        self, exchange: Exchange, ranked: DataFrame, horizon: str, values: list[str], entry: Entry
    ) -> DataFrame:
        """The changes with the deletes of a truncate. It applies to every row, so the whole table is read."""
        exchange.select_files(None)
        kept_columns = [*self._plan.keys, *self._table.write.partition_by]
        changes = ranked.where(f"NOT {TRUNCATE_MARK}").drop(scd.RANK, scd.CONTRADICTED, TRUNCATE_MARK)
        if self._plan.history == "scd1":
            changes = after_horizon(changes, horizon)
        time_ms, existing = entry.pins.time_ms, exchange.rows()
        with_deletes = with_truncate_deletes(changes, existing, horizon, kept_columns, values, time_ms)
        return self._cache(self._rerank(self._end_late_rows(with_deletes, horizon, values, entry)))

    def _end_late_rows(self, changes: DataFrame, horizon: str | None, values: list[str], entry: Entry) -> DataFrame:
        if horizon is None or self._plan.history == "scd1":
            return changes
        return self._rerank(with_truncate_ends(changes, horizon, self._plan.keys, values, entry.pins.time_ms))

    def _rerank(self, changes: DataFrame) -> DataFrame:
        """Ranks the changes again after deletes were added."""
        with_mark = changes.withColumn(TRUNCATE_MARK, F.lit(False))
        return self._decisive_changes(self._rank_changes(with_mark, self._plan.keys))

    def _changes_of_extracts(
        self,
        exchange: Exchange,
        ranked: DataFrame,
        newest: DataFrame,
        values: list[str],
        entry: Entry,
        rejects: Callable[[], int],
    ) -> tuple[DataFrame, str | None]:
        """The extracts of the batch as changes, by comparing them with the whole table."""
        batch_extracts = extracts(ranked, entry.horizon, self._table.name, history=self._plan.history == "scd2")
        if not batch_extracts.files:
            exchange.select_no_files()
            return newest.limit(0), batch_extracts.horizon
        exchange.select_files(None)
        existing = exchange.rows()
        extract_changes = changes_of_extracts(
            newest,
            existing.withColumn(CONTENT, F.expr(content(existing.schema, values))),
            batch_extracts.files,
            self._plan.keys,
            values,
            entry.pins.time_ms,
            whole=rejects() == 0,  # a rejected row is not a missing row
        )
        return self._cache(extract_changes), batch_extracts.horizon

    def _existing_rows(self, exchange: Exchange, summary: BatchChanges, write_target: WriteTarget) -> DataFrame:
        """The rows of the table in the selected ranges, and the tombstones of the same keys."""
        rows = exchange.rows()
        if self._tombstones is None or write_target.replaces_all:
            return rows
        ranges = None if summary.truncated or self._plan.snapshot is not None else summary.ranges
        tombstone_rows = self._tombstones.matching(rows.sparkSession, ranges, rows.schema)
        if tombstone_rows is None:
            return rows
        rows_and_tombstones = rows.unionByName(tombstone_rows)
        one_row_per_key = self._plan.history == "scd1" or self._plan.ignore_nulls
        return scd.living_or_latest(rows_and_tombstones, self._plan.keys) if one_row_per_key else rows_and_tombstones

    def _merge_result(
        self, newest: DataFrame, existing: DataFrame, values: list[str], *, feed: bool, few: bool
    ) -> DataFrame:
        columns, keys = [name for name in newest.columns if name != CONTENT], self._plan.keys
        if self._plan.ignore_nulls:
            updates = partial_updates.fold_updates(newest, keys, values)
            return partial_updates.merge_partial_updates(updates, existing, keys, columns, values, feed=feed)
        if self._plan.history == "scd1":
            return scd.merge_current(newest, existing, keys, columns, feed=feed, few=few)
        return scd.merge_history(newest, existing, keys, columns, feed=feed)

    def _count_contradictions(self, existing: DataFrame, newest: DataFrame, values: list[str], *, few: bool) -> int:
        """How many changes have the sequence that the table has for their key, but other content. Content is read only
        if there are ties, which are rare."""
        keys = self._plan.keys
        existing_content = existing.selectExpr(
            *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
            f"{SEQUENCE} AS __s",
            f"{content(existing.schema, values)} AS __said",
        )
        same_key = [f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys)]
        conditions = [*same_key, f"new.{SEQUENCE} = old.__s", f"new.{CONTENT} <> old.__said"]
        new = (F.broadcast(newest) if few else newest).alias("new")
        return existing_content.alias("old").join(new, F.expr(" AND ".join(conditions))).count()


def _with_all_columns(batch_changes: DataFrame, table: StructType) -> DataFrame:
    """Adds the columns that the definition no longer makes as NULL; existing rows that are rewritten keep their
    values."""
    present = {name.casefold() for name in batch_changes.columns}
    missing = [field for field in table.fields if field.name.casefold() not in present]
    nulls = (F.lit(None).cast(sql_type(field.dataType)).alias(field.name) for field in missing)
    return batch_changes.select("*", *nulls)


@dataclass(frozen=True)
class BatchChanges:
    """What one job finds out about all changes of a batch."""

    rows: int
    contradicted: int
    truncated: bool
    horizon: str | None
    """Including the truncates known before."""
    ranges: Any | None
    """A JVM row; None if no key has bounds."""


def _summarize(ranked: DataFrame, keys: tuple[str, ...], horizon: str | None) -> BatchChanges:
    aggregates = [
        "count(*)",
        f"count_if({scd.CONTRADICTED})",
        f"count_if({TRUNCATE_MARK})",
        truncates(ranked.schema, horizon),
    ]
    aggregated = ranked.selectExpr(
        *(f"{expression} AS a{n}" for n, expression in enumerate(aggregates)), *key_ranges(ranked.schema, keys)
    )
    names = [*map(quote, aggregated.columns)]
    ranges = [f"struct({', '.join(names[4:])})"] if names[4:] else []
    row = java_frame(aggregated.selectExpr(*names[:4], *ranges)).first()
    return BatchChanges(
        int(row.getLong(0)),
        int(row.getLong(1)),
        bool(row.getLong(2)),
        None if row.isNullAt(3) else str(row.getString(3)),
        row.getStruct(4) if ranges else None,
    )


def with_keys(existing: DataFrame, batch: DataFrame, keys: Sequence[str], *, few: bool) -> DataFrame:
    """The rows of the table that have a key of the batch. `few`: its keys fit into memory."""
    batch_keys = batch.select(*map(quote, keys)).alias("new")
    same_key = " AND ".join(f"old.{quote(key)} = new.{quote(key)}" for key in keys)
    return existing.alias("old").join(F.broadcast(batch_keys) if few else batch_keys, F.expr(same_key), "left_semi")


def _commit_metrics(changed: Mapping[str, int]) -> dict[str, int]:
    return {
        "numTargetRowsInserted": changed[INSERTED_ROWS],
        "numTargetRowsUpdated": changed[UPDATED_ROWS],
        "numTargetRowsDeleted": changed[DELETES],
        "operationNumSourceRows": sum(changed[kind] for kind in (*APPLIED, SUPERSEDED)),
    }
