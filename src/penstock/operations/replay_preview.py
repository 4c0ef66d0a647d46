"""What a replay would change in a table and in its quarantine, row by row, without writing anything."""

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

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import Replay, began_of
from penstock.operations.replay import asked_of, fill_entry, kept_rows
from penstock.operations.replay_plan import working_on
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import DELETED_AT, SEQUENCE, SOURCE, alive
from penstock.spark.sql_text import quote
from penstock.tables.aggregate import group_names
from penstock.tables.kinds import look_at_table
from penstock.tables.merge.truncate import exactly
from penstock.tables.suppression import Suppression

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.writer import BatchProcessor
    from penstock.operations.replay_plan import ReplayPlan
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# What a table would be after a replay, as rows that are written nowhere.


class PreviewTarget:
    """Takes the rows of a table's function and keeps them as what they are: a query."""

    anew, idempotent, lazy = True, False, True

    def __init__(self, uri: str, kept: DataFrame | None) -> None:
        self.uri, self._kept = uri, kept
        self._parts: list[DataFrame] = []

    def there(self, session: SparkSession) -> DataFrame | None:
        return self._kept

    def append(self, rows: DataFrame, entry: Entry) -> None:
        self._parts.append(rows)

    overwrite = append

    def repin(self, entry: Entry) -> None:
        pass

    def rows(self, schema: StructType, session: SparkSession) -> DataFrame:
        parts = [*self._parts, *([self._kept] if self._kept is not None else [])]
        empty = session.createDataFrame([], schema)
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts, empty)


@dataclass(frozen=True)
class Preview:
    now: DataFrame
    then: DataFrame
    rejected: DataFrame | None
    """With the reasons, where rows can be rejected."""


@contextmanager
def preview(work: TableSession, tail: LedgerHead, at: int | None, after: tuple[str, ...]) -> Iterator[Preview]:
    """The rows are there as long as the context is open."""
    table, session = work.table, work.spark.newSession()
    replay = Replay(tail.entry.generation, tail.entry.after, at)
    began = began_of(work.log, tail.entry)
    opened = replace(tail, entry=replace(tail.entry, after=after, began=began))
    made = look_at_table(session, table, work.store, work.source)
    function = made.preview(table, work.store, Suppression(table, work.store))
    covered = work.source.covered(session, asked_of(table, opened.entry, replay))
    there = session.read.format("delta").load(table.uri)
    kept = kept_rows(table, covered)
    shown = PreviewTarget(table.uri, there.where(kept) if kept is not None else None)
    entry = fill_entry(table, opened, replay, function, covered.rows)
    try:
        function.write(covered.rows, entry, shown, files=0)
        now = there if table.write.merge is None else alive(there)
        yield Preview(now, shown.rows(made.schema, session), _rejected(function, covered.rows, entry, table))
    finally:
        function.done()


def _rejected(function: BatchProcessor, rows: DataFrame, entry: Entry, table: TablePlan) -> DataFrame | None:
    return function.rejected(rows, entry) if table.may_reject else None


# Two states of a table held against each other, row by row: what is new, what is gone, what is another.


SAMPLES = 3
PARTITIONS = 20
_ROW, _KEY, _PART, _WHICH = "__row", "__key", "__part", "__which"


@dataclass(frozen=True)
class DifferenceCounts:
    """Numbers of one partition."""

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
    """The columns that tell rows apart; empty: whole rows are counted, so that a changed one is one removed and one
    added."""
    added: int
    removed: int
    changed: int
    rows: int
    """That there would be."""
    parts: tuple[DifferenceCounts, ...] = ()
    samples: tuple[RowSample, ...] = ()
    columns: dict[str, list[str]] = field(default_factory=dict)
    """new and gone columns: these are not compared."""

    @property
    def none(self) -> bool:
        return not (self.added or self.removed or self.changed or any(self.columns.values()))


def difference_document(one: RowDifference) -> dict[str, Any]:
    return asdict(one)


def difference(
    now: DataFrame, then: DataFrame, by: Sequence[str], partition_by: Sequence[str], leave: Sequence[str] = ()
) -> RowDifference:
    """Columns in `leave` are not compared: they say when a row was written."""
    both = [name for name in then.columns if name in now.columns and name not in leave]
    by = [name for name in by if name in both]
    parts = [name for name in partition_by if name in both]
    tagged = {which: _tagged(rows, both, by, parts, which) for which, rows in ((-1, now), (1, then))}
    net = (
        tagged[-1].unionByName(tagged[1]).groupBy(_KEY, _ROW).agg(F.sum(_WHICH).alias("n"), F.first(_PART).alias(_PART))
    )
    differing = net.where("n <> 0").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = differing.groupBy(_KEY).agg(
            F.expr(f"max_by({_PART}, n)").alias(_PART),
            F.expr("sum(greatest(n, 0))").alias("plus"),
            F.expr("sum(greatest(-n, 0))").alias("minus"),
        )
        changed = "least(plus, minus)" if by else "0L"
        per_part = (
            counted.selectExpr(
                _PART, f"plus - {changed} AS added", f"minus - {changed} AS removed", f"{changed} AS changed"
            )
            .groupBy(_PART)
            .agg(*(F.sum(name).alias(name) for name in ("added", "removed", "changed")))
            .orderBy(F.expr("added + removed + changed").desc())
        )
        found = [DifferenceCounts(_plain(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in per_part.collect()]
        samples = _samples(differing, now, then, both, by)
    finally:
        differing.unpersist()
    added, removed, changes = (sum(getattr(one, name) for one in found) for name in ("added", "removed", "changed"))
    columns = {
        "new": [name for name in then.columns if name not in now.columns],
        "gone": [name for name in now.columns if name not in then.columns],
    }
    return RowDifference(
        by=tuple(by),
        added=added,
        removed=removed,
        changed=changes,
        rows=now.count() + added - removed,
        parts=tuple(found[:PARTITIONS]) if parts else (),
        samples=samples,
        columns=columns,
    )


def _tagged(rows: DataFrame, both: Sequence[str], by: Sequence[str], parts: Sequence[str], which: int) -> DataFrame:
    row, part = _hashed(rows, both), ", ".join(quote(name) for name in parts)
    return rows.selectExpr(
        f"{_key(by) if by else row} AS {_KEY}",
        f"{row} AS {_ROW}",
        f"{f'to_json(struct({part}))' if part else repr('{}')} AS {_PART}",
        f"{which} AS {_WHICH}",
    )


def _hashed(rows: DataFrame, both: Sequence[str]) -> str:
    """A row as a pair of hashes, 128 bits in all."""
    values = ", ".join(_comparable(rows.schema[name].dataType, quote(name)) for name in both)
    return f"struct(xxhash64({values}) AS a, xxhash64('b', {values}) AS b)"


def _key(by: Sequence[str]) -> str:
    return exactly(f"struct({', '.join(quote(name) for name in by)})")


def _samples(
    differing: DataFrame, now: DataFrame, then: DataFrame, both: Sequence[str], by: Sequence[str]
) -> tuple[RowSample, ...]:
    """Of each kind a few, those of a changed row side by side. Their rows are looked for once more: to carry every row
    along until it is known whether it differs would cost far more."""
    sides = differing.groupBy(_KEY).agg(
        F.expr(f"max(IF(n < 0, {_ROW}, NULL))").alias("now"), F.expr(f"max(IF(n > 0, {_ROW}, NULL))").alias("then")
    )
    wanted = {"added": "now IS NULL", "removed": "then IS NULL"}
    if by:
        wanted["changed"] = "now IS NOT NULL AND then IS NOT NULL"
    asked = [
        (kind, row["now"], row["then"])
        for kind, condition in wanted.items()
        for row in sides.where(condition).limit(SAMPLES).collect()
    ]
    was = _texts(now, both, [one[1]["a"] for one in asked if one[1] is not None])
    will = _texts(then, both, [one[2]["a"] for one in asked if one[2] is not None])
    return tuple(
        RowSample(kind, was.get(old["a"]) if old else None, will.get(new["a"]) if new else None)
        for kind, old, new in asked
    )


def _texts(rows: DataFrame, both: Sequence[str], hashes: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not hashes:
        return {}
    shown = ", ".join(quote(name) for name in both)
    found = rows.selectExpr(f"{_hashed(rows, both)}.a AS a", f"to_json(struct({shown})) AS text")
    return {
        int(row[0]): _plain(row[1])
        for row in found.where(F.col("a").isin(list(hashes))).dropDuplicates(["a"]).collect()
    }


def _plain(text: str | None) -> dict[str, Any]:
    made = json.loads(text) if text else {}
    return made if isinstance(made, dict) else {}


def _comparable(kind: DataType, name: str) -> str:
    """Spark hashes no maps, and NULL leaves a hash as it is: that it is there counts by itself."""
    value = f"to_json(struct({name}))" if _odd(kind) else name
    return f"{name} IS NULL, {value}"


def _odd(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_odd(one.dataType) for one in kind.fields)
    inner = getattr(kind, "elementType", None)
    return isinstance(kind, MapType | VariantType) or (inner is not None and _odd(inner))


# What a replay would change in a table, and in its quarantine.


REASON = "error_reason"


@dataclass(frozen=True)
class ReplayPreview:
    rows: RowDifference
    rejected_now: dict[str, int] = field(default_factory=dict)
    """Rows in quarantine by reason."""
    rejected_then: dict[str, int] = field(default_factory=dict)


def preview_document(outlook: ReplayPreview) -> dict[str, Any]:
    return {
        **difference_document(outlook.rows),
        "quarantine": {"now": outlook.rejected_now, "then": outlook.rejected_then},
    }


def preview_replay(spark: SparkSession, plan: Plan, planned: ReplayPlan) -> ReplayPreview:
    table = planned.table
    with working_on(spark, plan, table) as work:
        tail = read_head(work.log)
        assert tail is not None
        with preview(work, tail, planned.at, (planned.after,)) as shown:
            found = difference(shown.now, shown.then, told_apart_by(table), table.write.partition_by, _times(table))
            then: dict[str, int] = {}
            if shown.rejected is not None:
                counted = shown.rejected.groupBy("why.reason").count().collect()
                then = {str(row[0]): int(row[1]) for row in counted}
    return ReplayPreview(found, _quarantined(spark, work.store, table), then)


def told_apart_by(table: TablePlan) -> Sequence[str]:
    if table.aggregate is not None:
        return group_names(table.aggregate)
    if table.write.merge is not None:
        merge = table.write.merge
        return [*merge.keys, *([SEQUENCE] if merge.history == "scd2" else [])]
    if table.stages is None:
        return [table.columns[name] for name in ("topic", "partition", "offset")] if table.columns else []
    return [SOURCE] if table.write.source and table.input.stable else []


def _times(table: TablePlan) -> list[str]:
    landed = table.columns.get("ingestion_timestamp") if table.stages is None else None
    return [DELETED_AT, *([landed] if landed else [])]


def _quarantined(spark: SparkSession, store: Store, table: TablePlan) -> dict[str, int]:
    place = quarantine_of(table.name, table.uri)
    if not table.may_reject or not DeltaLog(store, place.uri, place.table).versions():
        return {}
    rows = spark.read.format("delta").load(place.uri)
    return {str(row[0]): int(row[1]) for row in rows.groupBy(REASON).count().collect()}
