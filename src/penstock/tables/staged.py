"""A table with stages: decoded, transformed, judged; the rejected rows go to quarantine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from penstock.errors import Terminal
from penstock.formats.base import reason
from penstock.ledger.row_counts import (
    BATCHES,
    CONFLICTS,
    DROPPED,
    DUPLICATES,
    FORGOTTEN,
    READ,
    REJECTED,
    RESHAPED,
    SUPERSEDED,
    UNMET,
    add_counts,
    unexplained,
)
from penstock.ledger.write_target import in_files
from penstock.ledger.writer import PinnedInputs
from penstock.sources.columns import SOURCE, with_own_source
from penstock.spark.jvm import java_session, jvm_of
from penstock.spark.sql_text import literal
from penstock.tables import expectations
from penstock.tables.dedupe import numbered, without_duplicates
from penstock.tables.expectations import NOTHING_FAILED
from penstock.tables.merge.merge import Merging
from penstock.tables.suppression import RowProcessor

if TYPE_CHECKING:
    from pyspark.sql import Column, Row, SparkSession
    from pyspark.sql.types import StructType

    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.tables.merge.tombstones import TombstoneTable
    from penstock.tables.pipeline import PipelineResult, StagedPipeline
    from penstock.tables.quarantine import Quarantine
    from penstock.tables.suppression import Suppression
    from penstock.tables.transform import Lookups

_JUDGED_ANEW = "it was rejected when its batch was written, and is a good row by the definition, or the time, of now"
MOST_IN_FILE = 500_000
"""Rejected rows in a file of the quarantine."""
Told = Mapping[str, Any]
"""What one stage counted, by the names that `judge` gives."""


@dataclass(frozen=True)
class IsolatedRecords:
    """Records of a batch on which an expression raised; the batch itself is given without them."""

    rows: DataFrame
    """As `explained` gives rejected rows."""
    count: int


class StagedProcessor(RowProcessor):
    def __init__(
        self,
        table: TablePlan,
        stages: StagedPipeline,
        lookups: Lookups,
        quarantine: Quarantine | None,
        suppression: Suppression,
        tombstones: TombstoneTable | None = None,
    ) -> None:
        self._table, self._stages, self._lookups, self._quarantine = table, stages, lookups, quarantine
        self._suppression = suppression
        self._dedupe = table.stages.dedupe if table.stages is not None else None
        self._merging = Merging(table, tombstones) if table.write.merge is not None else None
        self._made: PipelineResult | None = None
        self._kept: DataFrame | None = None
        self._probed: tuple[Pins, dict[str, DataFrame]] | None = None
        self.aside: IsolatedRecords | None = None
        self.strict = False
        """`write` ends at the first row on which `where`, a key or a sequence raises."""

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return PinnedInputs(self._lookups.newest())

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        most = expectations.share_of(batch) if into.anew else None
        self._made = self._make(batch, entry, most, strict=self.strict)
        rows = self._suppression.own(self._made.rows, count=True)
        if self._merging is not None:
            aside = self.aside.count if self.aside is not None else 0
            self._merging.write(rows, entry, into, files=files, rejects=partial(_rejects, self._made, aside))
            return
        if self._dedupe is not None:
            self._kept = numbered(rows).persist(StorageLevel.MEMORY_AND_DISK)
            rows = without_duplicates(self._kept, self._dedupe, into.there(rows.sparkSession), many=into.anew)
        into.append(in_files(rows, files), entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        if self._merging is not None and written:
            self._merging.complete(entry)
        found = self.told() if written else None
        made, self._made = self._made, None
        if made is None or found is None:
            return self._again(batch, entry, rows)
        row_counts = self._row_counts(found, entry, rows)
        aside = self.aside.count if self.aside is not None else 0
        if row_counts[REJECTED] and self._quarantine is not None:
            files = 1 + row_counts[REJECTED] // MOST_IN_FILE
            added = row_counts[REJECTED] - aside
            whole = True
            if added:
                rejected, whole = self._brought(batch, entry, made, found)
                explained = self._with_aside(self._stages.explained(rejected))
            else:
                assert self.aside is not None
                explained = self.aside.rows
            # Read again, it is read by all cores; what is left of it then is put together.
            self._quarantine.add(explained if whole else explained.repartition(files), entry, files=files)
            row_counts = _less_forgotten(row_counts, self._quarantine)
        return row_counts

    def probe(self, batch: DataFrame, entry: Entry) -> None:
        if self._probed is None or self._probed[0] is not entry.pins:
            self._probed = (entry.pins, self._lookups.read(batch.sparkSession, entry.pins))
        rows = self._stages.make(batch, entry.pins, self._probed[1]).rows
        if self._merging is not None:
            rows = self._merging.changes(rows, entry)
        rows.write.format("noop").mode("overwrite").save()

    def knows_its_rows(self) -> bool:
        """Which records are in the table can be seen in it."""
        return self._table.write.source and self._table.input.stable and self._merging is None

    def set_aside(self, batch: DataFrame, entry: Entry, detail: Callable[[DataFrame], Column]) -> DataFrame:
        return self._stages.set_aside(batch, entry.pins, detail)

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        assert self._made is not None
        return self._with_aside(self._explained(batch, entry, self._made))

    def _with_aside(self, explained: DataFrame) -> DataFrame:
        return explained if self.aside is None else explained.unionByName(self.aside.rows)

    def _explained(self, batch: DataFrame, entry: Entry, made: PipelineResult) -> DataFrame:
        first, *later = (judged.rejected() for judged in made.judged)
        records = (self._stages.with_raw(batch, entry.pins, rejected) for rejected in later)
        return self._stages.explained(reduce(DataFrame.unionByName, (first, *records)))

    def look(self, batch: DataFrame, entry: Entry) -> None:
        self._made = self._make(batch, entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        found = self.told()
        if found is None:
            assert self._made is not None
            found = [judged.counted() for judged in self._made.judged]
        return self._row_counts(found, entry, rows)

    def told(self) -> Sequence[Told] | None:
        """What the write counted; None if that is not known."""
        found = [observed.result() for observed in self._made.observed] if self._made is not None else [None]
        return None if None in found else [one for one in found if one is not None]

    def done(self) -> None:
        kept, self._kept = self._kept, None
        self._probed = None
        if kept is not None:
            kept.unpersist()
        if self._merging is not None:
            self._merging.done()

    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        return self._stages.raising(self._make(batch, entry))

    def _make(
        self, batch: DataFrame, entry: Entry, most_brought: int | None = None, *, strict: bool = False
    ) -> PipelineResult:
        lookups = self._lookups.read(batch.sparkSession, entry.pins)
        return self._stages.make(batch, entry.pins, lookups, most_brought, strict=strict)

    def _brought(
        self, batch: DataFrame, entry: Entry, made: PipelineResult, found: Sequence[Told]
    ) -> tuple[DataFrame, bool]:
        """The rejected rows that came along with the write, if those are all; else the batch is read again. Whether
        they were all."""
        parts, whole = [], True
        for stage, (judged, one) in enumerate(zip(made.judged, found, strict=True)):
            if one[expectations.REJECTED]:
                rows = judged.rejected()
                if one[expectations.BROUGHT].size() == one[expectations.REJECTED]:
                    rows = local_rows(batch.sparkSession, one[expectations.BROUGHT], rows.schema)
                else:
                    whole = False
                few = one[expectations.REJECTED] <= MOST_IN_FILE
                parts.append(self._stages.with_raw(batch, entry.pins, rows, few=few) if stage else rows)
        return reduce(DataFrame.unionByName, parts), whole

    def _again(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        """The good rows are in the table, and what else was known of the batch is lost: it is read once more."""
        made = self._make(batch, entry)
        changed = entry.pins.definition != self._table.definition
        if self._quarantine is not None and not self._quarantine.has(entry):
            if changed and not self.knows_its_rows():
                raise _by_another_definition(entry)
            explained = self._with_aside(self._explained(batch, entry, made))
            if self.knows_its_rows() and (changed or self._stages.depends_on_the_moment):
                explained = self._left_over(batch, entry, made, explained)
            self._quarantine.add(explained, entry)
        self._suppression.count(made.rows)
        return {} if changed else self._row_counts([judged.counted() for judged in made.judged], entry, rows)

    def _row_counts(self, found: Sequence[Told], entry: Entry, rows: int) -> dict[str, int]:
        row_counts = _row_counts(found, rows)
        if self.aside is not None:
            row_counts = add_counts(row_counts, {READ: self.aside.count, REJECTED: self.aside.count})
        if self._merging is None:
            return row_counts
        left = row_counts[
            DUPLICATES
        ]  # below 0 a truncate, or an extract that lacks rows, has deleted more than was read
        return {
            **row_counts,
            DUPLICATES: 0,
            SUPERSEDED: max(0, left),
            RESHAPED: row_counts[RESHAPED] + max(0, -left),
            CONFLICTS: entry.changed.get(CONFLICTS, 0),
        }

    def _left_over(self, batch: DataFrame, entry: Entry, made: PipelineResult, explained: DataFrame) -> DataFrame:
        """The batch was judged by another definition, or at another time, so the table may hold rows that are rejected
        now, and lack some that were rejected then: whatever is not in the table goes to quarantine, and nothing is
        lost."""
        there = with_own_source(batch.sparkSession.read.format("delta").load(self._table.uri), self._table)
        rows = with_own_source(made.rows, self._table)
        if self._dedupe is not None:  # what was left out as a duplicate has its keys in the table
            rows = without_duplicates(numbered(rows), self._dedupe, there)
        good = rows.selectExpr(SOURCE, f"{NOTHING_FAILED} AS failed")
        why = reason("judged_anew", literal(_JUDGED_ANEW))
        records = self._stages.records_of(batch, entry.pins, good).selectExpr("*", f"{why} AS why")
        return explained.unionByName(records).join(there.select(SOURCE), SOURCE, "left_anti")


def _less_forgotten(row_counts: dict[str, int], quarantine: Quarantine) -> dict[str, int]:
    left_out = quarantine.forgotten
    return {**row_counts, REJECTED: row_counts[REJECTED] - left_out, FORGOTTEN: left_out} if left_out else row_counts


def _rejects(made: PipelineResult, aside: int) -> int:
    return aside + sum(judged.counted()[expectations.REJECTED] for judged in made.judged)


def _by_another_definition(entry: Entry) -> Terminal:
    return Terminal(
        f"batch {entry.generation}.{entry.batch} was cut off between its good rows and its rejected ones, and the "
        "definition has changed since: which of its rows were rejected can only be said by the old one",
        where=entry.table,
        hint="put the definition back as it was, `penstock run --once` the table, and change it then",
    )


def _row_counts(found: Sequence[Told], rows: int) -> dict[str, int]:
    """`rows` were written; what else met every expectation was in the table already."""
    first, last = found[0], found[-1]
    rejected, dropped = (sum(int(one[name]) for one in found) for name in (expectations.REJECTED, expectations.DROPPED))
    given = int(first[expectations.READ] - first[expectations.REJECTED] - first[expectations.DROPPED])
    counts = {
        BATCHES: 1,
        READ: int(first[expectations.READ]),
        RESHAPED: int(last[expectations.READ]) - given if len(found) > 1 else 0,
        REJECTED: rejected,
        DROPPED: dropped,
        **{
            UNMET + name.removeprefix(expectations.UNMET): int(count)
            for one in found
            for name, count in one.items()
            if name.startswith(expectations.UNMET)
        },
    }
    return {**counts, DUPLICATES: unexplained(counts, rows)}


def local_rows(spark: SparkSession, rows: Any, schema: StructType) -> DataFrame:
    """Rows that the JVM holds already: they do not pass through Python."""
    jvm = jvm_of(spark)
    values = jvm.scala.jdk.javaapi.CollectionConverters.asJava(rows)
    kind = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(java_session(spark).createDataFrame(values, kind), spark)
