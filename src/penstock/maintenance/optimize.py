"""`optimize`: which files to rewrite, whether that pays, and doing it. Each step is one commit."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException

from penstock.errors import Conflict, Terminal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import MaintenanceNote
from penstock.maintenance.tables import (
    exclusive_maintenance,
    paused_batches,
    places,
    read_memory,
    session_with,
    unreadable_log,
    write_memory,
)
from penstock.operations.causes import JvmDied, explain
from penstock.spark.session import logs_folder
from penstock.spark.sql_text import literal, quote
from penstock.spec.base_model import Wrong
from penstock.spec.quantity import counted, size
from penstock.storage.layout import read_layout, snapshot_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.maintenance.tables import Hold, MaintainedTable, MaintenanceHistory
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.layout import DataFile, Layout, Partition
    from penstock.storage.stores import Store

# What looking after the files of a table would do, and whether it pays. Pure: files in, steps out.
#
# Every rule weighs bytes that are written anew against files that a reader no longer has to open. Without them a
# table of a terabyte would be written anew every hour because of the megabyte that came meanwhile.


FEWEST = 5
"""Files that have to come together before they are worth a write."""
SHARE = 0.2
"""Of the bytes that would be put in order, those that are new; of the rows that would be read, those that are gone."""
MANY = 100
"""Files that are new: so many are put in order, however small their share."""
CUBE = 16
"""Rows are clustered in groups of about so many files of the target's size; a group that is full stays as it is."""
MOST_PARTITIONS = 200
"""That are put in order in one commit: they are named in the statement. The others follow in the next run."""
Kind = Literal["purge", "compact", "zorder", "cluster"]


@dataclass(frozen=True)
class OptimizeStep:
    kind: Kind
    files: int
    """That are written anew."""
    bytes: int
    left: int
    """About so many files are left of them."""
    partitions: tuple[Partition, ...] = ()
    """Of zorder: only these; empty: the whole table."""

    def describe(self) -> str:
        what = {
            "purge": "without their deleted rows",
            "compact": "as larger ones",
            "zorder": "in order",
            "cluster": "clustered",
        }[self.kind]
        some = f" in {counted(len(self.partitions), 'partition')}" if self.partitions else ""
        return f"{counted(self.files, 'file')}{some} {what}"


@dataclass(frozen=True)
class LayoutGoal:
    """What a table's files should be like."""

    target: int
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    """Also where it does not pay."""
    ordered: Mapping[Partition, int] = field(default_factory=dict)
    """When a partition was put in order: files that are newer are not, yet. All of the others are not."""

    @property
    def small(self) -> int:
        """Files below are written anew. Half of the target: what was written once is left alone."""
        return self.target if self.full else self.target // 2


def target_bytes(configuration: Mapping[str, str], default: int) -> int:
    """`delta.targetFileSize` of the table, else the project's."""
    try:
        return size(configuration["delta.targetFileSize"].strip()) or default
    except (KeyError, Wrong):
        return default


def steps(layout: Layout, wanted: LayoutGoal) -> list[OptimizeStep]:
    """In the order in which they are done; [] if there is nothing that pays."""
    ordering = _cluster(layout, wanted) if layout.clustered else _zorder(layout, wanted) if wanted.zorder_by else None
    if ordering is not None:
        return [ordering]  # it leaves no deleted row behind either
    purge, rest = _purge(layout, wanted)
    if layout.clustered or wanted.zorder_by:
        return [purge] if purge else []
    compact = _compact(rest, wanted)
    return [step for step in (purge, compact) if step is not None]


def _purge(layout: Layout, wanted: LayoutGoal) -> tuple[OptimizeStep | None, list[DataFile]]:
    """Files with rows that are only marked as deleted, and the others."""
    marked = [file for file in layout.files if file.deleted]
    rows, gone = sum(max(file.rows, file.deleted) for file in marked), sum(file.deleted for file in marked)
    if not marked or (gone < rows * SHARE and not wanted.full):
        return None, list(layout.files)
    size_left = sum(file.size for file in marked) * (rows - gone) // max(1, rows)
    parts = len({file.partition for file in marked})
    step = OptimizeStep(
        "purge", len(marked), sum(file.size for file in marked), max(parts, -(-size_left // wanted.target))
    )
    return step, [file for file in layout.files if not file.deleted]


def _compact(files: Sequence[DataFile], wanted: LayoutGoal) -> OptimizeStep | None:
    bins = [one for found in _by_partition(files).values() for one in _bins(found, wanted)]
    count = sum(map(len, bins))
    if count - len(bins) < (1 if wanted.full else FEWEST - 1):
        return None
    return OptimizeStep("compact", count, sum(file.size for one in bins for file in one), len(bins))


def _bins(files: Sequence[DataFile], wanted: LayoutGoal) -> Iterator[list[DataFile]]:
    """As Delta fills them: the smallest first, each up to the target; a file alone stays as it is."""
    small = sorted((file for file in files if file.size < wanted.small), key=lambda file: file.size)
    one: list[DataFile] = []
    filled = 0
    for file in small:
        if one and filled + file.size > wanted.target:
            if len(one) > 1:
                yield one
            one, filled = [], 0
        one.append(file)
        filled += file.size
    if len(one) > 1:
        yield one


def _zorder(layout: Layout, wanted: LayoutGoal) -> OptimizeStep | None:
    """A partition is put in order as a whole."""
    parts = _by_partition(layout.files)
    if wanted.full:
        return _ordering("zorder", list(layout.files), wanted, ()) if layout.files else None
    chosen = [part for part, files in parts.items() if _pays(files, sum(file.size for file in files), wanted)]
    chosen = sorted(chosen, key=lambda part: -_new(parts[part], wanted)[0])[:MOST_PARTITIONS]
    if not chosen:
        return None
    files = [file for part in chosen for file in parts[part]]
    return _ordering("zorder", files, wanted, tuple(chosen) if layout.partition_by else ())


def _cluster(layout: Layout, wanted: LayoutGoal) -> OptimizeStep | None:
    """What is new joins the group that is not full yet."""
    count, fresh = _new(layout.files, wanted)
    total = layout.bytes if wanted.full else min(layout.bytes, fresh + CUBE * wanted.target)
    if wanted.full:
        return _ordering("cluster", list(layout.files), wanted, ()) if layout.files else None
    if not _pays(layout.files, total, wanted):
        return None
    files = len(layout.files) if total == layout.bytes else count + CUBE
    return OptimizeStep("cluster", files, total, max(1, total // wanted.target))


def _ordering(
    kind: Kind, files: Sequence[DataFile], wanted: LayoutGoal, partitions: tuple[Partition, ...]
) -> OptimizeStep:
    parts = _by_partition(files)
    left = sum(max(1, sum(file.size for file in found) // wanted.target) for found in parts.values())
    return OptimizeStep(kind, len(files), sum(file.size for file in files), left, partitions)


def _pays(files: Sequence[DataFile], total: int, wanted: LayoutGoal) -> bool:
    count, fresh = _new(files, wanted)
    return count >= FEWEST and (fresh >= total * SHARE or count >= MANY)


def _new(files: Sequence[DataFile], wanted: LayoutGoal) -> tuple[int, int]:
    """How many files are not in order yet, and their bytes."""
    found = [file for file in files if file.modified_ms > wanted.ordered.get(file.partition, 0)]
    return len(found), sum(file.size for file in found)


def _by_partition(files: Sequence[DataFile]) -> dict[Partition, list[DataFile]]:
    found: dict[Partition, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return found


# The statements by which files are written anew. None changes a row: readers and streams do not see them.


_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception|ProtocolChangedException|MetadataChangedException")
_OPTIMIZE = "spark.databricks.delta.optimize"


def is_conflict(error: BaseException) -> bool:
    """A batch has changed one of the files first: what was written anew is of no use."""
    return bool(_CONFLICT.search(str(error)))


def rewrite(
    spark: SparkSession, place: MaintainedTable, layout: Layout, step: OptimizeStep, wanted: LayoutGoal, by: str
) -> None:
    """One commit, or none if Delta finds nothing to do. Raises what Delta raises."""
    note = f"{step.describe()}, {len(layout.files):,} before"
    upkeep = MaintenanceNote("purge" if step.kind == "purge" else "optimize", place.name, by, note)
    threads = str(max(1, spark.sparkContext.defaultParallelism))
    session = session_with(
        spark,
        {
            f"{_OPTIMIZE}.minFileSize": str(wanted.small),
            f"{_OPTIMIZE}.maxFileSize": str(wanted.target),
            f"{_OPTIMIZE}.maxThreads": threads,
            # Deleted rows are another step: here they would have files of any size written anew.
            f"{_OPTIMIZE}.maxDeletedRowsRatio": "1.0",
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold": str(CUBE * wanted.target),
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(2 * CUBE * wanted.target),
        },
        upkeep,
    )
    try:
        session.sql(statement(place, layout, step, wanted)).collect()
    except PySparkException as error:
        raise _explained(error, place, wanted) or error from None


def _explained(error: PySparkException, place: MaintainedTable, wanted: LayoutGoal) -> Terminal | None:
    columns = ", ".join(wanted.zorder_by)
    if "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS" in str(error):
        return Terminal(
            f"zorder_by: {columns}: the table keeps no statistics of these columns, so their order would help nobody",
            where=place.name,
            hint="order by columns that have some; delta.dataSkippingStatsColumns says which they are",
        )
    if "DELTA_ZORDERING" in str(error):
        hint = "`zorder_by` names columns of the table by which it is not partitioned"
        return Terminal(f"zorder_by: {columns}: {str(error).splitlines()[0]}", where=place.name, hint=hint)
    return None


def statement(place: MaintainedTable, layout: Layout, step: OptimizeStep, wanted: LayoutGoal) -> str:
    table = f"delta.{quote(place.uri)}"
    match step.kind:
        case "purge":
            return f"REORG TABLE {table} APPLY (PURGE)"
        case "compact":
            return f"OPTIMIZE {table}"
        case "cluster":
            return f"OPTIMIZE {table} FULL" if wanted.full else f"OPTIMIZE {table}"
        case "zorder":
            where = f" WHERE {_within(layout, step.partitions)}" if step.partitions else ""
            return f"OPTIMIZE {table}{where} ZORDER BY ({', '.join(map(quote, wanted.zorder_by))})"


def _within(layout: Layout, partitions: tuple[Partition, ...]) -> str:
    """The values are data: somebody else's text. Each is a literal of its column's type."""
    return " OR ".join(
        "("
        + " AND ".join(
            f"{quote(column)} <=> CAST({'NULL' if value is None else literal(value)} AS {layout.types[column]})"
            for column, value in zip(layout.partition_by, partition, strict=True)
        )
        + ")"
        for partition in partitions
    )


# What `optimize` would do to a table, from its log alone.


Progress = Callable[[str, str, float], None]
"""Table, what is being done, and which part of that is done."""


@dataclass(frozen=True)
class TableOptimize:
    """What is to be done with the files of a table, or of its quarantine."""

    place: MaintainedTable
    table: TablePlan
    """Whose files they are: its own, or those of its quarantine."""
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
    """In their order. Nothing is raised because of a table: it is in the answer."""
    every = ((table, place) for table in tables for place in places(table) if place.kind != "files")
    chosen = [(t, place) for t, place in every if place.expected or DeltaLog(store, place.uri, place.name).versions()]
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
    wanted = wanted_of(plan, table, place, layout, read_memory(store, plan.system, place.name), full=full)
    return TableOptimize(place, table, len(layout.files), layout.bytes, tuple(steps(layout, wanted)))


def wanted_of(
    plan: Plan, table: TablePlan, place: MaintainedTable, layout: Layout, memory: MaintenanceHistory, *, full: bool
) -> LayoutGoal:
    """What was put in order by other columns is not in order."""
    by = place.zorder_by or (table.write.cluster_by if place.kind == "table" else ())
    return LayoutGoal(
        target=target_bytes(layout.configuration, plan.maintenance.target_bytes),
        zorder_by=() if layout.clustered else place.zorder_by,
        full=full,
        ordered=memory.ordered if memory.ordered_by == by else {},
    )


def document(planned: TableOptimize) -> dict[str, Any]:
    return {
        "table": planned.place.name,
        "created": planned.created,
        "files": planned.files,
        "bytes": planned.bytes,
        "steps": [{**asdict(step), "partitions": [list(one) for one in step.partitions]} for step in planned.steps],
    }


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# Looking after the files of a table. Each step is one commit; killed anywhere, it can be run again.


TRIES = 3
"""Beside a stream that keeps changing the files; the last time the stream waits, where that can be arranged."""


@dataclass(frozen=True)
class Optimized:
    place: MaintainedTable
    files_before: int
    bytes_before: int
    files: int
    bytes: int
    done: tuple[OptimizeStep, ...]

    @property
    def said(self) -> str:
        became = f"{counted(self.files_before, 'file')} became {self.files:,}"
        return f"{'; '.join(step.describe() for step in self.done)}: {became}"


@dataclass
class OptimizeResult:
    done: dict[str, Optimized] = field(default_factory=dict)
    errors: dict[str, PenstockError] = field(default_factory=dict)


def run_optimize(
    spark: SparkSession, plan: Plan, planned: OptimizePlan, store: Store, tell: Tell, *, by: str = "penstock optimize"
) -> OptimizeResult:
    """Each table alone: one that fails leaves the others. In a session of `beside_a_runner`."""
    result = OptimizeResult(errors=planned.problems)
    for task in planned.todo:
        name, table = task.place.name, task.table
        tell(name, task.steps[0].describe())
        try:
            with exclusive_maintenance(spark, plan, table.name):
                hold = paused_batches(spark, plan, table.name)
                result.done[name] = optimize(
                    spark, plan, table, task.place, store, by=by, hold=hold, full=planned.full, beside=True
                )
        except Exception as error:
            result.errors[name] = explain(error, name, str(logs_folder(plan)))
            if isinstance(result.errors[name], JvmDied):
                break
    return result


@contextmanager
def _free() -> Iterator[None]:
    yield


def optimize(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    place: MaintainedTable,
    store: Store,
    *,
    by: str,
    hold: Hold,
    full: bool = False,
    beside: bool = False,
    step_done: Callable[[OptimizeStep], None] = lambda _: None,
) -> Optimized:
    """Under the table's upkeep lock. `hold` keeps the table's batches waiting; `beside` goes without it as long as no
    batch comes in between."""
    before = layout = snapshot_layout(spark, place.uri)
    done: list[OptimizeStep] = []
    with _remembered(store, plan.system, place.name) as memory:
        while len(done) < 2:
            wanted = wanted_of(plan, table, place, layout, memory.now, full=full)
            step = next((one for one in steps(layout, wanted) if one.kind not in {past.kind for past in done}), None)
            if step is None:
                break
            memory.begin()
            _try(spark, place, layout, step, wanted, by, hold, beside=beside)
            done.append(step)
            step_done(step)
            layout = snapshot_layout(spark, place.uri)
            if step.kind in ("zorder", "cluster"):
                memory.now = _in_order(memory.now, table, place, step, layout)
    return Optimized(place, len(before.files), before.bytes, len(layout.files), layout.bytes, tuple(done))


def _try(
    spark: SparkSession,
    place: MaintainedTable,
    layout: Layout,
    step: OptimizeStep,
    wanted: LayoutGoal,
    by: str,
    hold: Hold,
    *,
    beside: bool,
) -> None:
    for number in range(1, TRIES + 1):
        try:
            with _free() if beside and number < TRIES else hold():
                rewrite(spark, place, layout, step, wanted, by)
            return
        except Exception as error:
            if not is_conflict(error):
                raise
            if number == TRIES:
                raise Conflict(
                    f"batches changed its files {TRIES} times while they were written anew",
                    where=place.name,
                    hint="nothing was lost. Run it again when less is changed, or between two runs of the table",
                ) from error


class _Kept:
    """From `begin` on whoever vacuums the table knows that files lie there which no commit names yet."""

    def __init__(self, store: Store, system: str, name: str) -> None:
        self._place = (store, system, name)
        self.now = read_memory(*self._place)

    def begin(self) -> None:
        self.now = replace(self.now, began_ms=now_ms())
        write_memory(*self._place, self.now)

    def end(self) -> None:
        write_memory(*self._place, replace(self.now, began_ms=None))


@contextmanager
def _remembered(store: Store, system: str, name: str) -> Iterator[_Kept]:
    kept = _Kept(store, system, name)
    try:
        yield kept
        kept.now = replace(kept.now, done={**kept.now.done, "optimize": now_ms()})
    finally:
        with suppress(Exception):  # the session may be gone: then nobody can tell, and the note stays
            kept.end()


def _in_order(
    memory: MaintenanceHistory, table: TablePlan, place: MaintainedTable, step: OptimizeStep, layout: Layout
) -> MaintenanceHistory:
    there = {file.partition for file in layout.files}
    now = now_ms()
    by = place.zorder_by if step.kind == "zorder" else table.write.cluster_by
    kept = {part: at for part, at in memory.ordered.items() if part in there} if memory.ordered_by == by else {}
    return replace(memory, ordered={**kept, **dict.fromkeys(step.partitions or there, now)}, ordered_by=by)
