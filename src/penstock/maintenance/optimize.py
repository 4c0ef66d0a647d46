"""`optimize`: decides which files to rewrite and whether that pays, and rewrites them. Each step is one commit."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from penstock.errors import Conflict, Terminal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import MaintenanceNote
from penstock.maintenance.tables import (
    exclusive_maintenance,
    maintained_tables,
    paused_batches,
    read_history,
    session_with,
    unreadable_log,
    write_memory,
)
from penstock.operations.causes import JvmDied, explain
from penstock.spark.session import logs_folder
from penstock.spark.sql_text import literal, quote
from penstock.spec.base_model import FindingsError
from penstock.spec.quantity import counted, now_ms, size
from penstock.storage.layout import read_layout, snapshot_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.maintenance.tables import MaintainedTable, MaintenanceHistory, PauseBatches
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.layout import DataFile, Layout, Partition
    from penstock.storage.stores import Store

# Which steps would optimize a table's files, and whether they pay. Pure: files in, steps out.
#
# Every rule weighs the bytes to rewrite against the files that a reader no longer has to open. Without these rules a
# table of a terabyte would be rewritten every hour because of one new megabyte.


MIN_FILES = 5
"""The smallest number of files that is worth a rewrite."""
SHARE = 0.2
"""The smallest share that pays: of new bytes among those to put in order, of deleted rows among those to read."""
MANY = 100
"""This many new files are put in order, however small their share."""
CUBE = 16
"""Rows are clustered in groups of about this many files of the target size; a full group stays as it is."""
MOST_PARTITIONS = 200
"""At most this many are put in order in one commit: the statement names them. The others follow in the next run."""
Kind = Literal["purge", "compact", "zorder", "cluster"]


@dataclass(frozen=True)
class OptimizeStep:
    kind: Kind
    files: int
    """Files to rewrite."""
    bytes: int
    left: int
    """About how many files they become."""
    partitions: tuple[Partition, ...] = ()
    """For zorder: only these; empty: the whole table."""

    def describe(self) -> str:
        what = {
            "purge": "without their deleted rows",
            "compact": "as larger ones",
            "zorder": "in order",
            "cluster": "clustered",
        }[self.kind]
        partitions = f" in {counted(len(self.partitions), 'partition')}" if self.partitions else ""
        return f"{counted(self.files, 'file')}{partitions} {what}"


@dataclass(frozen=True)
class LayoutGoal:
    """What the layout of a table's files should be."""

    target: int
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    """Rewrite also where it does not pay."""
    ordered: Mapping[Partition, int] = field(default_factory=dict)
    """By partition: when it was put in order; newer files are not in order. Partitions that are missing here have no
    files in order."""

    @property
    def small(self) -> int:
        """Files below this size are rewritten. It is half of the target, so that rewritten files are left alone."""
        return self.target if self.full else self.target // 2


def target_bytes(configuration: Mapping[str, str], default_bytes: int) -> int:
    """`delta.targetFileSize` of the table, else the project's default."""
    try:
        return size(configuration["delta.targetFileSize"].strip()) or default_bytes
    except (KeyError, FindingsError):
        return default_bytes


def plan_steps(layout: Layout, goal: LayoutGoal) -> list[OptimizeStep]:
    """The steps in the order in which they run; [] if nothing pays."""
    ordering: Kind | None = "cluster" if layout.clustered else "zorder" if goal.zorder_by else None
    if ordering is not None and (step := plan_step(ordering, layout, goal)) is not None:
        return [step]  # this also removes deleted rows
    kinds: tuple[Kind, ...] = ("purge", "compact") if ordering is None else ("purge",)
    return [step for kind in kinds if (step := plan_step(kind, layout, goal)) is not None]


def plan_step(kind: Kind, layout: Layout, goal: LayoutGoal) -> OptimizeStep | None:
    """None if it does not pay."""
    if goal.full and kind in ("zorder", "cluster"):
        return _ordering_step(kind, layout.files, goal, ()) if layout.files else None
    planners = {"purge": _purge_step, "compact": _compact_step, "zorder": _zorder_step, "cluster": _cluster_step}
    return planners[kind](layout, goal)


def _purge_step(layout: Layout, goal: LayoutGoal) -> OptimizeStep | None:
    """The step for files with rows that are only marked as deleted."""
    marked = [file for file in layout.files if file.deleted]
    rows, deleted = sum(max(file.rows, file.deleted) for file in marked), sum(file.deleted for file in marked)
    if not marked or (deleted < rows * SHARE and not goal.full):
        return None
    total = sum(file.size for file in marked)
    partition_count = len({file.partition for file in marked})
    size_left = total * (rows - deleted) // max(1, rows)
    return OptimizeStep("purge", len(marked), total, max(partition_count, -(-size_left // goal.target)))


def _compact_step(layout: Layout, goal: LayoutGoal) -> OptimizeStep | None:
    is_purged = _purge_step(layout, goal) is not None
    files = [file for file in layout.files if not (is_purged and file.deleted)]
    groups = [
        group
        for partition_files in _by_partition(files).values()
        for group in _groups_to_compact(partition_files, goal)
    ]
    count = sum(map(len, groups))
    if count - len(groups) < (1 if goal.full else MIN_FILES - 1):
        return None
    return OptimizeStep("compact", count, sum(file.size for group in groups for file in group), len(groups))


def _groups_to_compact(files: Sequence[DataFile], goal: LayoutGoal) -> Iterator[list[DataFile]]:
    """Groups files as Delta does: the smallest first, each group up to the target; a single file stays as it is."""
    small = sorted((file for file in files if file.size < goal.small), key=lambda file: file.size)
    group: list[DataFile] = []
    group_size = 0
    for file in small:
        if group and group_size + file.size > goal.target:
            if len(group) > 1:
                yield group
            group, group_size = [], 0
        group.append(file)
        group_size += file.size
    if len(group) > 1:
        yield group


def _zorder_step(layout: Layout, goal: LayoutGoal) -> OptimizeStep | None:
    """Each partition is put in order as a whole."""
    by_partition = _by_partition(layout.files)
    chosen = [
        partition for partition, files in by_partition.items() if _pays(files, sum(file.size for file in files), goal)
    ]
    chosen = sorted(chosen, key=lambda partition: -_unordered_files(by_partition[partition], goal)[0])[:MOST_PARTITIONS]
    if not chosen:
        return None
    files = [file for partition in chosen for file in by_partition[partition]]
    return _ordering_step("zorder", files, goal, tuple(chosen) if layout.partition_by else ())


def _cluster_step(layout: Layout, goal: LayoutGoal) -> OptimizeStep | None:
    """New files join the group that is not full yet."""
    count, new_bytes = _unordered_files(layout.files, goal)
    total = min(layout.bytes, new_bytes + CUBE * goal.target)
    if not _pays(layout.files, total, goal):
        return None
    files = len(layout.files) if total == layout.bytes else count + CUBE
    return OptimizeStep("cluster", files, total, max(1, total // goal.target))


def _ordering_step(
    kind: Kind, files: Sequence[DataFile], goal: LayoutGoal, partitions: tuple[Partition, ...]
) -> OptimizeStep:
    by_partition = _by_partition(files)
    left = sum(
        max(1, sum(file.size for file in partition_files) // goal.target) for partition_files in by_partition.values()
    )
    return OptimizeStep(kind, len(files), sum(file.size for file in files), left, partitions)


def _pays(files: Sequence[DataFile], total: int, goal: LayoutGoal) -> bool:
    count, new_bytes = _unordered_files(files, goal)
    return count >= MIN_FILES and (new_bytes >= total * SHARE or count >= MANY)


def _unordered_files(files: Sequence[DataFile], goal: LayoutGoal) -> tuple[int, int]:
    """The number and bytes of files that are not in order yet."""
    unordered = [file for file in files if file.modified_ms > goal.ordered.get(file.partition, 0)]
    return len(unordered), sum(file.size for file in unordered)


def _by_partition(files: Sequence[DataFile]) -> dict[Partition, list[DataFile]]:
    by_partition: dict[Partition, list[DataFile]] = {}
    for file in files:
        by_partition.setdefault(file.partition, []).append(file)
    return by_partition


# The statements that rewrite files. None changes a row: readers and streams do not notice them.


_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception|ProtocolChangedException|MetadataChangedException")
_OPTIMIZE = "spark.databricks.delta.optimize"


def is_conflict(error: BaseException) -> bool:
    """Whether a batch changed one of the files first: then the rewritten files are useless."""
    return bool(_CONFLICT.search(str(error)))


def rewrite(
    spark: SparkSession, place: MaintainedTable, layout: Layout, step: OptimizeStep, goal: LayoutGoal, by: str
) -> None:
    """One commit, or none if Delta finds nothing to do. Raises what Delta raises."""
    note = f"{step.describe()}, {len(layout.files):,} before"
    maintenance_note = MaintenanceNote("purge" if step.kind == "purge" else "optimize", place.name, by, note)
    threads = str(max(1, spark.sparkContext.defaultParallelism))
    session = session_with(
        spark,
        {
            f"{_OPTIMIZE}.minFileSize": str(goal.small),
            f"{_OPTIMIZE}.maxFileSize": str(goal.target),
            f"{_OPTIMIZE}.maxThreads": threads,
            # Deleted rows are a separate step: here they would cause files of any size to be rewritten.
            f"{_OPTIMIZE}.maxDeletedRowsRatio": "1.0",
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold": str(CUBE * goal.target),
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(2 * CUBE * goal.target),
        },
        maintenance_note,
    )
    try:
        session.sql(statement(place, layout, step, goal)).collect()
    except PySparkException as error:
        raise _zorder_error(error, place, goal) or error from None


def _zorder_error(error: PySparkException, place: MaintainedTable, goal: LayoutGoal) -> Terminal | None:
    columns = ", ".join(goal.zorder_by)
    if "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS" in str(error):
        return Terminal(
            f"zorder_by: {columns}: the table keeps no statistics of these columns, so ordering by them would not help",
            where=place.name,
            hint="order by columns that have some; delta.dataSkippingStatsColumns says which they are",
        )
    if "DELTA_ZORDERING" in str(error):
        hint = "`zorder_by` names columns of the table by which it is not partitioned"
        return Terminal(f"zorder_by: {columns}: {str(error).splitlines()[0]}", where=place.name, hint=hint)
    return None


def statement(place: MaintainedTable, layout: Layout, step: OptimizeStep, goal: LayoutGoal) -> str:
    table = f"delta.{quote(place.uri)}"
    match step.kind:
        case "purge":
            return f"REORG TABLE {table} APPLY (PURGE)"
        case "compact":
            return f"OPTIMIZE {table}"
        case "cluster":
            return f"OPTIMIZE {table} FULL" if goal.full else f"OPTIMIZE {table}"
        case "zorder":
            where = f" WHERE {_partition_condition(layout, step.partitions)}" if step.partitions else ""
            return f"OPTIMIZE {table}{where} ZORDER BY ({', '.join(map(quote, goal.zorder_by))})"


def _partition_condition(layout: Layout, partitions: tuple[Partition, ...]) -> str:
    """The values are data, so untrusted text: each becomes a literal of its column's type."""
    return " OR ".join(
        "("
        + " AND ".join(
            f"{quote(column)} <=> CAST({'NULL' if value is None else literal(value)} AS {layout.types[column]})"
            for column, value in zip(layout.partition_by, partition, strict=True)
        )
        + ")"
        for partition in partitions
    )


# The plan of an optimize, from the tables' logs alone.


Progress = Callable[[str, str, float], None]
"""Takes the table, what is being done, and the fraction that is complete."""


@dataclass(frozen=True)
class TableOptimize:
    """What to do with the files of a table, or of one beside it."""

    place: MaintainedTable
    table: TablePlan
    """The table of the project to which `place` belongs."""
    files: int = 0
    bytes: int = 0
    steps: tuple[OptimizeStep, ...] = ()
    created: bool = True
    problem: PenstockError | None = None


@dataclass(frozen=True)
class OptimizePlan:
    tables: tuple[TableOptimize, ...]
    full: bool

    @property
    def todo(self) -> list[TableOptimize]:
        return [table for table in self.tables if table.steps]

    @property
    def problems(self) -> dict[str, PenstockError]:
        return {table.place.name: table.problem for table in self.tables if table.problem is not None}


def plan_optimize(
    plan: Plan, tables: Sequence[TablePlan], store: Store, *, full: bool, progress: Progress = lambda *_: None
) -> OptimizePlan:
    """Plans the tables in this order. Errors of a table are not raised: they are in the plan."""
    candidates = ((table, place) for table in tables for place in maintained_tables(table) if place.kind != "files")
    chosen = [
        (table, place)
        for table, place in candidates
        if place.expected or DeltaLog(store, place.uri, place.name).versions()
    ]
    planned = []
    for index, (table, place) in enumerate(chosen):
        progress(place.name, "counting its files", index / len(chosen))
        planned.append(_plan_table(plan, table, place, store, full=full))
    return OptimizePlan(tuple(planned), full)


def _plan_table(plan: Plan, table: TablePlan, place: MaintainedTable, store: Store, *, full: bool) -> TableOptimize:
    if not DeltaLog(store, place.uri, place.name).versions():
        return TableOptimize(place, table, created=False)
    try:
        layout = read_layout(place.uri)
    except Exception as error:  # deltalake raises plain Exception
        return TableOptimize(place, table, problem=unreadable_log(error, place.name))
    goal = layout_goal(plan, table, place, layout, read_history(store, plan.system, place.name), full=full)
    return TableOptimize(place, table, len(layout.files), layout.bytes, tuple(plan_steps(layout, goal)))


def layout_goal(
    plan: Plan, table: TablePlan, place: MaintainedTable, layout: Layout, history: MaintenanceHistory, *, full: bool
) -> LayoutGoal:
    """The goal for a table. Files that were put in order by other columns count as unordered."""
    columns = place.zorder_by or (table.write.cluster_by if place.kind == "table" else ())
    return LayoutGoal(
        target=target_bytes(layout.configuration, plan.maintenance.target_bytes),
        zorder_by=() if layout.clustered else place.zorder_by,
        full=full,
        ordered=history.ordered if history.ordered_by == columns else {},
    )


def document(planned: TableOptimize) -> dict[str, Any]:
    return {
        "table": planned.place.name,
        "created": planned.created,
        "files": planned.files,
        "bytes": planned.bytes,
        "steps": [
            {**asdict(step), "partitions": [list(partition) for partition in step.partitions]} for step in planned.steps
        ],
    }


# Optimizing a table. Each step is one commit; after a kill it can simply be run again.


TRIES = 3
"""Attempts beside a stream that keeps changing the files; for the last one the stream waits, where that is possible."""


@dataclass(frozen=True)
class Optimized:
    place: MaintainedTable
    files_before: int
    bytes_before: int
    files: int
    bytes: int
    done: tuple[OptimizeStep, ...]

    @property
    def summary(self) -> str:
        change = f"{counted(self.files_before, 'file')} became {self.files:,}"
        return f"{'; '.join(step.describe() for step in self.done)}: {change}"


@dataclass
class OptimizeResult:
    done: dict[str, Optimized] = field(default_factory=dict)
    errors: dict[str, PenstockError] = field(default_factory=dict)


def run_optimize(
    spark: SparkSession, plan: Plan, planned: OptimizePlan, store: Store, tell: Tell, *, by: str = "penstock optimize"
) -> OptimizeResult:
    """Handles each table separately: one failure does not stop the others. Needs the session of a plan
    `with_commit_waiting`."""
    result = OptimizeResult(errors=planned.problems)
    for task in planned.todo:
        name, table = task.place.name, task.table
        tell(name, task.steps[0].describe())
        try:
            with exclusive_maintenance(spark, plan, table.name):
                pause_batches = paused_batches(spark, plan, table.name)
                result.done[name] = optimize(
                    spark,
                    plan,
                    table,
                    task.place,
                    store,
                    by=by,
                    pause_batches=pause_batches,
                    full=planned.full,
                    concurrent=True,
                    planned=task.steps,
                )
        except Exception as error:
            result.errors[name] = explain(error, name, str(logs_folder(plan)))
            if isinstance(result.errors[name], JvmDied):
                break
    return result


def optimize(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    place: MaintainedTable,
    store: Store,
    *,
    by: str,
    pause_batches: PauseBatches,
    full: bool = False,
    concurrent: bool = False,
    planned: Sequence[OptimizeStep] | None = None,
) -> Optimized:
    """Carries out the `planned` steps; None: those that pay now. Needs the table's maintenance lock.
    `pause_batches` makes the table's batches wait; with `concurrent` it is used only for the last attempt, when batches
    have interfered before."""
    before = layout = snapshot_layout(spark, place.uri)
    history = read_history(store, plan.system, place.name)
    goal = layout_goal(plan, table, place, layout, history, full=full)
    done: list[OptimizeStep] = []
    try:
        for planned_step in plan_steps(layout, goal) if planned is None else planned:
            # With the files that the table has by now: batches, or other maintenance, may have changed them since.
            step = plan_step(planned_step.kind, layout, goal)
            if step is None:
                continue
            # A vacuum of the table knows by this that there are files that are not committed yet.
            history = replace(history, began_ms=now_ms())
            write_memory(store, plan.system, place.name, history)
            _rewrite_with_retries(spark, place, layout, step, goal, by, pause_batches, concurrent=concurrent)
            done.append(step)
            layout = snapshot_layout(spark, place.uri)
            if step.kind in ("zorder", "cluster"):
                history = _mark_ordered(history, table, place, step, layout)
        history = replace(history, done={**history.done, "optimize": now_ms()})
    finally:
        with suppress(Exception):  # the session may be gone: then the end is not recorded
            write_memory(store, plan.system, place.name, replace(history, began_ms=None))
    return Optimized(place, len(before.files), before.bytes, len(layout.files), layout.bytes, tuple(done))


def _rewrite_with_retries(
    spark: SparkSession,
    place: MaintainedTable,
    layout: Layout,
    step: OptimizeStep,
    goal: LayoutGoal,
    by: str,
    pause_batches: PauseBatches,
    *,
    concurrent: bool,
) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            with nullcontext() if concurrent and attempt < TRIES else pause_batches():
                rewrite(spark, place, layout, step, goal, by)
            return
        except Exception as error:
            if not is_conflict(error):
                raise
            if attempt == TRIES:
                raise Conflict(
                    f"batches changed its files {TRIES} times while they were rewritten",
                    where=place.name,
                    hint="nothing was lost. Run it again when less is changed, or between two runs of the table",
                ) from error


def _mark_ordered(
    history: MaintenanceHistory, table: TablePlan, place: MaintainedTable, step: OptimizeStep, layout: Layout
) -> MaintenanceHistory:
    present = {file.partition for file in layout.files}
    columns = place.zorder_by if step.kind == "zorder" else table.write.cluster_by
    earlier = history.ordered if history.ordered_by == columns else {}
    ordered = {partition: time_ms for partition, time_ms in earlier.items() if partition in present}
    ordered |= dict.fromkeys(step.partitions or present, now_ms())
    return replace(history, ordered=ordered, ordered_by=columns)
