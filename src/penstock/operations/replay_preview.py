"""Shows what a replay would change in a table and in its quarantine, row by row, without writing anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType, VariantType

from penstock.ledger.head import read_head
from penstock.ledger.pending import Replay, start_position
from penstock.operations.quarantine_rows import quarantine_exists
from penstock.operations.replay import fill_entry, kept_rows_condition, replay_request
from penstock.operations.replay_plan import open_table_session
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import DELETED_AT, SEQUENCE, SOURCE, alive
from penstock.spark.sql_text import quote
from penstock.tables.aggregate import group_names
from penstock.tables.kinds import resolve_table
from penstock.tables.merge.truncate import to_exact_json
from penstock.tables.suppression import Suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.operations.replay_plan import ReplayPlan
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession


class PreviewTarget:
    """A write target that keeps the rows of a table's function as a query and writes nothing."""

    replaces_all, idempotent, lazy = True, False, True
    entry = columns = None

    def __init__(self, uri: str, kept: DataFrame | None) -> None:
        self.uri, self._kept = uri, kept
        self._parts: list[DataFrame] = []

    def existing_rows(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._parts.append(rows)

    overwrite = append

    def repin(self, entry: Entry) -> None:
        pass

    def rows(self, schema: StructType, session: SparkSession) -> DataFrame:
        parts = [*self._parts, *([self._kept] if self._kept is not None else [])]
        empty = session.createDataFrame([], schema)
        return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts, empty)


@dataclass(frozen=True)
class Preview:
    now: DataFrame
    then: DataFrame
    rejected: DataFrame | None
    """Rejected rows with their reasons; None if the table rejects none."""


@contextmanager
def preview(work: TableSession, head: LedgerHead, at: int | None, after: tuple[str, ...]) -> Iterator[Preview]:
    """The rows can be read as long as the context is open."""
    table, session = work.table, work.spark.newSession()
    replay = Replay(head.entry.generation, head.entry.after, at)
    began = start_position(work.log, head.entry)
    opened = replace(head, entry=replace(head.entry, after=after, began=began))
    kind = resolve_table(session, table, work.store, work.source)
    processor = kind.preview(table, work.store, Suppression(table, work.store))
    replay_input = work.source.replay_input(session, replay_request(table, opened.entry, replay))
    existing = session.read.format("delta").load(table.uri)
    kept_condition = kept_rows_condition(table, replay_input)
    target = PreviewTarget(table.uri, existing.where(kept_condition) if kept_condition is not None else None)
    entry = fill_entry(table, opened, replay, processor, replay_input.rows)
    try:
        processor.write(replay_input.rows, entry, target, files=0)
        now = existing if table.write.merge is None else alive(existing)
        rejected = processor.rejected(replay_input.rows, entry) if table.may_reject else None
        yield Preview(now, target.rows(kind.schema, session), rejected)
    finally:
        processor.release()


# Comparing two states of a table row by row: rows added, removed and changed.


SAMPLES = 3
PARTITIONS = 20
_ROW, _KEY, _PARTITION, _SIGN = "__row", "__key", "__part", "__which"


@dataclass(frozen=True)
class DifferenceCounts:
    """Row counts of one partition."""

    partition: dict[str, Any]
    added: int
    removed: int
    changed: int


@dataclass(frozen=True)
class RowSample:
    kind: str
    """added, removed or changed."""
    now: dict[str, Any] | None
    then: dict[str, Any] | None


@dataclass(frozen=True)
class RowDifference:
    by: tuple[str, ...]
    """The columns that identify a row; empty: whole rows are compared, so that a changed row counts as one removed and
    one added."""
    added: int
    removed: int
    changed: int
    rows: int
    """Rows that the table would have."""
    parts: tuple[DifferenceCounts, ...] = ()
    samples: tuple[RowSample, ...] = ()
    columns: dict[str, list[str]] = field(default_factory=dict)
    """new and gone columns: these are not compared."""

    @property
    def none(self) -> bool:
        return not (self.added or self.removed or self.changed or any(self.columns.values()))


def difference(
    now: DataFrame, then: DataFrame, by: Sequence[str], partition_by: Sequence[str], ignored: Sequence[str] = ()
) -> RowDifference:
    """Columns in `ignored` are not compared: they hold the time when a row was written."""
    shared_columns = [name for name in then.columns if name in now.columns and name not in ignored]
    by = [name for name in by if name in shared_columns]
    partition_columns = [name for name in partition_by if name in shared_columns]
    tagged = {
        sign: _hash_rows(rows, shared_columns, by, partition_columns, sign) for sign, rows in ((-1, now), (1, then))
    }
    row_counts = (
        tagged[-1]
        .unionByName(tagged[1])
        .groupBy(_KEY, _ROW)
        .agg(F.sum(_SIGN).alias("n"), F.first(_PARTITION).alias(_PARTITION))
    )
    differing = row_counts.where("n <> 0").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = differing.groupBy(_KEY).agg(
            F.expr(f"max_by({_PARTITION}, n)").alias(_PARTITION),
            F.expr("sum(greatest(n, 0))").alias("plus"),
            F.expr("sum(greatest(-n, 0))").alias("minus"),
        )
        changed = "least(plus, minus)" if by else "0L"
        per_part = (
            counted.selectExpr(
                _PARTITION, f"plus - {changed} AS added", f"minus - {changed} AS removed", f"{changed} AS changed"
            )
            .groupBy(_PARTITION)
            .agg(*(F.sum(name).alias(name) for name in ("added", "removed", "changed")))
            .orderBy(F.expr("added + removed + changed").desc())
        )
        counts_by_partition = [
            DifferenceCounts(_parse_object(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in per_part.collect()
        ]
        samples = _samples(differing, now, then, shared_columns, by)
    finally:
        differing.unpersist()
    added, removed = (sum(getattr(counts, name) for counts in counts_by_partition) for name in ("added", "removed"))
    return RowDifference(
        by=tuple(by),
        added=added,
        removed=removed,
        changed=sum(counts.changed for counts in counts_by_partition),
        rows=now.count() + added - removed,
        parts=tuple(counts_by_partition[:PARTITIONS]) if partition_columns else (),
        samples=samples,
        columns={
            "new": [name for name in then.columns if name not in now.columns],
            "gone": [name for name in now.columns if name not in then.columns],
        },
    )


def _hash_rows(
    rows: DataFrame, columns: Sequence[str], by: Sequence[str], partition_columns: Sequence[str], sign: int
) -> DataFrame:
    row, part = _row_hash(rows, columns), ", ".join(quote(name) for name in partition_columns)
    return rows.selectExpr(
        f"{_key(by) if by else row} AS {_KEY}",
        f"{row} AS {_ROW}",
        f"{f'to_json(struct({part}))' if part else repr('{}')} AS {_PARTITION}",
        f"{sign} AS {_SIGN}",
    )


def _row_hash(rows: DataFrame, columns: Sequence[str]) -> str:
    """A row as a pair of hashes, 128 bits in all."""
    values = ", ".join(_comparable(rows.schema[name].dataType, quote(name)) for name in columns)
    return f"struct(xxhash64({values}) AS a, xxhash64('b', {values}) AS b)"


def _key(by: Sequence[str]) -> str:
    return to_exact_json(f"struct({', '.join(quote(name) for name in by)})")


def _samples(
    differing: DataFrame, now: DataFrame, then: DataFrame, columns: Sequence[str], by: Sequence[str]
) -> tuple[RowSample, ...]:
    """A few rows of each kind, those of a changed row side by side. They are read a second time: carrying every row
    along until it is known whether it differs would cost far more."""
    sides = differing.groupBy(_KEY).agg(
        F.expr(f"max(IF(n < 0, {_ROW}, NULL))").alias("now"), F.expr(f"max(IF(n > 0, {_ROW}, NULL))").alias("then")
    )
    conditions = {"added": "now IS NULL", "removed": "then IS NULL"}
    if by:
        conditions["changed"] = "now IS NOT NULL AND then IS NOT NULL"
    hashed_samples = [
        (kind, row["now"], row["then"])
        for kind, condition in conditions.items()
        for row in sides.where(condition).limit(SAMPLES).collect()
    ]
    rows_now = _read_rows_by_hash(now, columns, [old["a"] for _, old, _ in hashed_samples if old is not None])
    rows_then = _read_rows_by_hash(then, columns, [new["a"] for _, _, new in hashed_samples if new is not None])
    return tuple(
        RowSample(kind, rows_now.get(old["a"]) if old else None, rows_then.get(new["a"]) if new else None)
        for kind, old, new in hashed_samples
    )


def _read_rows_by_hash(rows: DataFrame, columns: Sequence[str], hashes: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not hashes:
        return {}
    column_list = ", ".join(quote(name) for name in columns)
    texts = rows.selectExpr(f"{_row_hash(rows, columns)}.a AS a", f"to_json(struct({column_list})) AS text")
    return {
        int(row[0]): _parse_object(row[1])
        for row in texts.where(F.col("a").isin(list(hashes))).dropDuplicates(["a"]).collect()
    }


def _parse_object(text: str | None) -> dict[str, Any]:
    parsed = json.loads(text) if text else {}
    return parsed if isinstance(parsed, dict) else {}


def _comparable(kind: DataType, name: str) -> str:
    """Spark cannot hash maps, and NULL leaves a hash unchanged: so whether a value is NULL is hashed as well."""
    value = f"to_json(struct({name}))" if _is_unhashable(kind) else name
    return f"{name} IS NULL, {value}"


def _is_unhashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_is_unhashable(member.dataType) for member in kind.fields)
    inner = getattr(kind, "elementType", None)
    return isinstance(kind, MapType | VariantType) or (inner is not None and _is_unhashable(inner))


REASON = "error_reason"


@dataclass(frozen=True)
class ReplayPreview:
    rows: RowDifference
    rejected_now: dict[str, int] = field(default_factory=dict)
    """Rows in quarantine by reason."""
    rejected_then: dict[str, int] = field(default_factory=dict)


def preview_document(outlook: ReplayPreview) -> dict[str, Any]:
    return {
        **asdict(outlook.rows),
        "quarantine": {"now": outlook.rejected_now, "then": outlook.rejected_then},
    }


def preview_replay(spark: SparkSession, plan: Plan, replay_plan: ReplayPlan) -> ReplayPreview:
    table = replay_plan.table
    with open_table_session(spark, plan, table) as work:
        head = read_head(work.log)
        assert head is not None
        with preview(work, head, replay_plan.upstream_version, (replay_plan.next_position,)) as states:
            row_difference = difference(
                states.now, states.then, row_key_columns(table), table.write.partition_by, _time_columns(table)
            )
            rejected_then: dict[str, int] = {}
            if states.rejected is not None:
                reasons = states.rejected.groupBy("why.reason").count().collect()
                rejected_then = {str(row[0]): int(row[1]) for row in reasons}
    return ReplayPreview(row_difference, _count_quarantined(spark, work.store, table), rejected_then)


def row_key_columns(table: TablePlan) -> Sequence[str]:
    if table.aggregate is not None:
        return group_names(table.aggregate)
    if table.write.merge is not None:
        merge = table.write.merge
        return [*merge.keys, *([SEQUENCE] if merge.history == "scd2" else [])]
    if table.stages is None:
        return [table.columns[name] for name in ("topic", "partition", "offset")] if table.columns else []
    return [SOURCE] if table.write.source and table.input.stable else []


def _time_columns(table: TablePlan) -> list[str]:
    landed_at = table.columns.get("ingestion_timestamp") if table.stages is None else None
    return [DELETED_AT, *([landed_at] if landed_at else [])]


def _count_quarantined(spark: SparkSession, store: Store, table: TablePlan) -> dict[str, int]:
    if not table.may_reject or not quarantine_exists(table, store):
        return {}
    rows = spark.read.format("delta").load(quarantine_of(table.name, table.uri).uri)
    return {str(row[0]): int(row[1]) for row in rows.groupBy(REASON).count().collect()}
