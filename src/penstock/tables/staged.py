"""A table with stages: decodes, transforms and checks rows; rejected rows go to quarantine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from penstock.ledger.write_target import coalesce_files
from penstock.ledger.writer import PinnedInputs
from penstock.sources.columns import SOURCE, with_own_source
from penstock.spark.jvm import java_session, jvm_of
from penstock.spark.sql_text import literal
from penstock.tables import expectations
from penstock.tables.dedupe import drop_duplicates, with_row_numbers
from penstock.tables.expectations import NOTHING_FAILED
from penstock.tables.merge.merge import TableMerge
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

_NOW_ACCEPTED = "Rejected when first processed; passes under the current definition"
MOST_IN_FILE = 500_000
"""Maximum of rejected rows in a file of the quarantine."""
StageCounts = Mapping[str, Any]
"""What one stage counted, by the names in `expectations`."""


@dataclass(frozen=True)
class IsolatedRecords:
    """Records of a batch on which an expression raised; the batch itself is passed without them."""

    rows: DataFrame
    """In the form of `StagedPipeline.set_aside`."""
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
        self._merging = TableMerge(table, tombstones) if table.write.merge is not None else None
        self._result: PipelineResult | None = None
        self._cached: DataFrame | None = None
        self._probe_lookups: tuple[Pins, dict[str, DataFrame]] | None = None
        self.isolated: IsolatedRecords | None = None
        self.strict = False
        """Whether `write` ends at the first row on which `where`, a key or a sequence raises."""

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        return PinnedInputs(self._lookups.newest())

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        max_collected = expectations.max_rejected_per_task(batch) if write_target.replaces_all else None
        self._result = self._run_stages(batch, entry, max_collected, strict=self.strict)
        rows = self._suppression.drop_suppressed(self._result.rows, count=True)
        if self._merging is not None:
            rejects = partial(_count_rejected, self._result, self._isolated_count)
            self._merging.write(rows, entry, write_target, files=files, rejects=rejects)
            return
        if self._dedupe is not None:
            self._cached = with_row_numbers(rows).persist(StorageLevel.MEMORY_AND_DISK)
            existing = write_target.existing_rows(rows.sparkSession)
            rows = drop_duplicates(self._cached, self._dedupe, existing, many=write_target.replaces_all)
        write_target.append(coalesce_files(rows, files), entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        if self._merging is not None and written:
            self._merging.complete(entry)
        stage_counts = self.stage_counts() if written else None
        result, self._result = self._result, None
        if result is None or stage_counts is None:
            return self._complete_written(batch, entry, rows)
        row_counts = self._row_counts(stage_counts, entry, rows)
        if row_counts[REJECTED] and self._quarantine is not None:
            files = 1 + row_counts[REJECTED] // MOST_IN_FILE
            all_collected = True
            if row_counts[REJECTED] > self._isolated_count:
                rejected, all_collected = self._rejected_rows(batch, entry, result, stage_counts)
                explained = self._with_isolated(self._stages.with_reasons(rejected))
            else:
                assert self.isolated is not None
                explained = self.isolated.rows
            # If the batch is read again, all cores read it; the few rows left are then combined into few files.
            self._quarantine.add(explained if all_collected else explained.repartition(files), entry, files=files)
            row_counts = _without_forgotten(row_counts, self._quarantine)
        return row_counts

    def probe(self, batch: DataFrame, entry: Entry) -> None:
        if self._probe_lookups is None or self._probe_lookups[0] is not entry.pins:
            self._probe_lookups = (entry.pins, self._lookups.read(batch.sparkSession, entry.pins))
        rows = self._stages.run(batch, entry.pins, self._probe_lookups[1]).rows
        if self._merging is not None:
            rows = self._merging.changes(rows, entry)
        rows.write.format("noop").mode("overwrite").save()

    def knows_its_rows(self) -> bool:
        """Whether the table shows which records it contains."""
        return self._table.write.source and self._table.input.stable and self._merging is None

    def set_aside(self, batch: DataFrame, entry: Entry, detail: Column) -> DataFrame:
        return self._stages.set_aside(batch, entry.pins, detail)

    def rejected(self, batch: DataFrame, entry: Entry) -> DataFrame:
        assert self._result is not None
        return self._with_isolated(self._explained(batch, entry, self._result))

    @property
    def _isolated_count(self) -> int:
        return self.isolated.count if self.isolated is not None else 0

    def _with_isolated(self, explained: DataFrame) -> DataFrame:
        return explained if self.isolated is None else explained.unionByName(self.isolated.rows)

    def _explained(self, batch: DataFrame, entry: Entry, result: PipelineResult) -> DataFrame:
        first, *later = (classified.rejected_rows() for classified in result.classified)
        records = (self._stages.with_raw(batch, entry.pins, rejected) for rejected in later)
        return self._stages.with_reasons(reduce(DataFrame.unionByName, (first, *records)))

    def inspect(self, batch: DataFrame, entry: Entry) -> None:
        self._result = self._run_stages(batch, entry)

    def counted(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        stage_counts = self.stage_counts()
        if stage_counts is None:
            assert self._result is not None
            stage_counts = [classified.count() for classified in self._result.classified]
        return self._row_counts(stage_counts, entry, rows)

    def stage_counts(self) -> Sequence[StageCounts] | None:
        """What the write counted; None if unknown."""
        results = [metrics.result() for metrics in self._result.metrics] if self._result is not None else [None]
        return None if None in results else [counts for counts in results if counts is not None]

    def release(self) -> None:
        cached, self._cached = self._cached, None
        self._probe_lookups = None
        if cached is not None:
            cached.unpersist()
        if self._merging is not None:
            self._merging.release()

    def raising(self, batch: DataFrame, entry: Entry) -> tuple[int, int, Row | None, str]:
        return self._stages.count_raising(self._run_stages(batch, entry))

    def _run_stages(
        self, batch: DataFrame, entry: Entry, max_collected: int | None = None, *, strict: bool = False
    ) -> PipelineResult:
        lookups = self._lookups.read(batch.sparkSession, entry.pins)
        return self._stages.run(batch, entry.pins, lookups, max_collected, strict=strict)

    def _rejected_rows(
        self, batch: DataFrame, entry: Entry, result: PipelineResult, stage_counts: Sequence[StageCounts]
    ) -> tuple[DataFrame, bool]:
        """The rejected rows, and whether the write collected all of them; if not, the batch is read again."""
        parts, all_collected = [], True
        for stage, (classified, counts) in enumerate(zip(result.classified, stage_counts, strict=True)):
            if counts[expectations.REJECTED]:
                rows = classified.rejected_rows()
                if counts[expectations.COLLECTED].size() == counts[expectations.REJECTED]:
                    rows = local_rows(batch.sparkSession, counts[expectations.COLLECTED], rows.schema)
                else:
                    all_collected = False
                few = counts[expectations.REJECTED] <= MOST_IN_FILE
                parts.append(self._stages.with_raw(batch, entry.pins, rows, few=few) if stage else rows)
        return reduce(DataFrame.unionByName, parts), all_collected

    def _complete_written(self, batch: DataFrame, entry: Entry, rows: int) -> RowCounts:
        """Completes a batch by reading it again: its good rows are in the table, everything else about it is lost."""
        result = self._run_stages(batch, entry)
        definition_changed = entry.pins.definition != self._table.definition
        if self._quarantine is not None and not self._quarantine.has(entry):
            if definition_changed and not self.knows_its_rows():
                raise _definition_changed_error(entry)
            explained = self._with_isolated(self._explained(batch, entry, result))
            if self.knows_its_rows() and (definition_changed or self._stages.is_nondeterministic):
                explained = self._rows_not_in_table(batch, entry, result, explained)
            self._quarantine.add(explained, entry)
        self._suppression.count(result.rows)
        if definition_changed:
            return {}
        return self._row_counts([classified.count() for classified in result.classified], entry, rows)

    def _row_counts(self, stage_counts: Sequence[StageCounts], entry: Entry, rows: int) -> dict[str, int]:
        row_counts = _row_counts(stage_counts, rows)
        if self.isolated is not None:
            row_counts = add_counts(row_counts, {READ: self.isolated.count, REJECTED: self.isolated.count})
        if self._merging is None:
            return row_counts
        # Below 0 if a truncate, or an extract that lacks rows, has deleted more than was read.
        unwritten = row_counts[DUPLICATES]
        return {
            **row_counts,
            DUPLICATES: 0,
            SUPERSEDED: max(0, unwritten),
            RESHAPED: row_counts[RESHAPED] + max(0, -unwritten),
            CONFLICTS: entry.changed.get(CONFLICTS, 0),
        }

    def _rows_not_in_table(
        self, batch: DataFrame, entry: Entry, result: PipelineResult, explained: DataFrame
    ) -> DataFrame:
        """Whatever of the batch is not in the table. It was written with another definition, or at another time, so the
        table may hold rows that are rejected now, and lack rows that were rejected then: all that it lacks goes to
        quarantine, so nothing is lost."""
        existing = with_own_source(batch.sparkSession.read.format("delta").load(self._table.uri), self._table)
        rows = with_own_source(result.rows, self._table)
        if self._dedupe is not None:  # what was left out as a duplicate has its keys in the table
            rows = drop_duplicates(with_row_numbers(rows), self._dedupe, existing)
        good = rows.selectExpr(SOURCE, f"{NOTHING_FAILED} AS failed")
        now_accepted = reason("judged_anew", literal(_NOW_ACCEPTED))
        records = self._stages.records_of(batch, entry.pins, good).selectExpr("*", f"{now_accepted} AS why")
        return explained.unionByName(records).join(existing.select(SOURCE), SOURCE, "left_anti")


def _without_forgotten(row_counts: dict[str, int], quarantine: Quarantine) -> dict[str, int]:
    forgotten = quarantine.forgotten_count
    return {**row_counts, REJECTED: row_counts[REJECTED] - forgotten, FORGOTTEN: forgotten} if forgotten else row_counts


def _count_rejected(result: PipelineResult, isolated: int) -> int:
    return isolated + sum(classified.count()[expectations.REJECTED] for classified in result.classified)


def _definition_changed_error(entry: Entry) -> Terminal:
    return Terminal(
        f"batch {entry.generation}.{entry.batch} was cut off between its good rows and its rejected ones, and the "
        "definition has changed since: which of its rows were rejected can only be said by the old one",
        where=entry.table,
        hint="put the definition back as it was, `penstock run --once` the table, and change it then",
    )


def _row_counts(stage_counts: Sequence[StageCounts], rows: int) -> dict[str, int]:
    """The row counts of a batch with `rows` written; other rows that met every expectation count as duplicates."""
    first, last = stage_counts[0], stage_counts[-1]
    passed_on = int(first[expectations.READ] - first[expectations.REJECTED] - first[expectations.DROPPED])
    counts = {
        BATCHES: 1,
        READ: int(first[expectations.READ]),
        RESHAPED: int(last[expectations.READ]) - passed_on if len(stage_counts) > 1 else 0,
        REJECTED: sum(int(stage[expectations.REJECTED]) for stage in stage_counts),
        DROPPED: sum(int(stage[expectations.DROPPED]) for stage in stage_counts),
        **{
            UNMET + name.removeprefix(expectations.UNMET): int(count)
            for stage in stage_counts
            for name, count in stage.items()
            if name.startswith(expectations.UNMET)
        },
    }
    return {**counts, DUPLICATES: unexplained(counts, rows)}


def local_rows(spark: SparkSession, rows: Any, schema: StructType) -> DataFrame:
    """A frame of rows that the JVM already holds, without passing them through Python."""
    jvm = jvm_of(spark)
    values = jvm.scala.jdk.javaapi.CollectionConverters.asJava(rows)
    data_type = jvm.org.apache.spark.sql.types.DataType.fromJson(schema.json())
    return DataFrame(java_session(spark).createDataFrame(values, data_type), spark)
