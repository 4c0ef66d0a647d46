"""`vacuum`: finds the files that nobody needs any more, and deletes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.ledger.entry import MaintenanceNote
from penstock.ledger.head import LedgerHead
from penstock.maintenance.retention import HOUR_MS, files_needed, horizon, hours, ledger_end, needs, span_text
from penstock.maintenance.tables import (
    LOG,
    REMOVED,
    SINCE,
    exclusive_maintenance,
    known_since_ms,
    maintained_tables,
    paused_batches,
    read_history,
    retention_ms,
    session_with,
    unreadable_log,
    write_memory,
)
from penstock.operations.causes import JvmDied, explain
from penstock.spark.jvm import java_session, jvm_of
from penstock.spark.session import logs_folder
from penstock.spark.sql_text import quote
from penstock.spec.quantity import counted, iso_time, now_ms, time_text
from penstock.storage.layout import read_layout, snapshot_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.entry import Entry
    from penstock.maintenance.retention import Horizon
    from penstock.maintenance.tables import MaintainedTable, PauseBatches
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.layout import Layout
    from penstock.storage.stores import Store, StoredFile

# Delta's VACUUM with an exact limit, and a note in the table's log of what it did.
#
# By default VACUUM ignores the hours that it is given unless they are 0, and commits twice whatever it finds (both
# verified by running it).


_DELTA = "spark.databricks.delta"


def list_removable(spark: SparkSession, uri: str, hours: int) -> list[str]:
    """Paths in the table that a vacuum would delete now: files, and empty folders as well."""
    rows = _vacuum_session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS DRY RUN").collect()
    return [within(str(row[0]), uri) for row in rows]


def delete(spark: SparkSession, uri: str, hours: int) -> None:
    """Makes no commit: a vacuum that dies in between has only deleted unneeded files, and the next one continues."""
    _vacuum_session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS").collect()


def _vacuum_session(spark: SparkSession, uri: str) -> SparkSession:
    return session_with(
        spark,
        {
            f"{_DELTA}.vacuum.retentionWindowIgnore.enabled": "false",
            f"{_DELTA}.retentionDurationCheck.enabled": "false",
            f"{_DELTA}.vacuum.logging.enabled": "false",
            f"{_DELTA}.vacuum.lite.enabled": "false",
            f"{_DELTA}.vacuum.parallelDelete.enabled": str("://" in uri).lower(),
        },
    )


def within(path: str, uri: str) -> str:
    """`file:/lake/t/day=1/part-0` is `day=1/part-0` of /lake/t."""
    place = uri.removeprefix("file://")
    plain = path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else path
    return plain[len(place) :].lstrip("/") if plain.startswith(place) else plain


def record(spark: SparkSession, uri: str, note: MaintenanceNote, files: int) -> None:
    """Makes a commit without rows and files that records who deleted what."""
    session = session_with(spark, {}, note)
    jvm = jvm_of(session)
    metrics = jvm.java.util.HashMap()
    metrics.put("numDeletedFiles", files)
    jvm.penstock.delta.Note.vacuumed(java_session(session), uri, metrics)


def remember(
    spark: SparkSession, uri: str, span_ms: int, configuration: Mapping[str, str], note: MaintenanceNote
) -> None:
    """Makes the table remember removals for so long from now on. Those already forgotten stay forgotten."""
    hours = -(-span_ms // HOUR_MS)
    properties = {REMOVED: f"interval {hours} hours", SINCE: str(known_since_ms(configuration, now_ms()))}
    if retention_ms(configuration, LOG) < hours * HOUR_MS:  # Delta requires a log that goes back as far
        properties[LOG] = f"interval {hours} hours"
    assignments = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    session_with(spark, {}, note).sql(f"ALTER TABLE delta.{quote(uri)} SET TBLPROPERTIES ({assignments})")


# The plan of a vacuum: how far it may go in each table, and which files it would delete.


@dataclass(frozen=True)
class TableVacuum:
    place: MaintainedTable
    table: TablePlan
    horizon: Horizon | None = None
    """None if the table does not exist or could not be read."""
    files: tuple[str, ...] = ()
    """Files that would be deleted, as paths in the table; unknown until Spark has listed them."""
    bytes: int = 0
    candidates: bool = False
    """Whether there is a file that could be deleted: without one Spark is not needed."""
    remember_ms: int | None = None
    """How long the table has to remember removed files; None if it already does."""
    problem: PenstockError | None = None

    @property
    def created(self) -> bool:
        return self.horizon is not None or self.problem is not None


@dataclass(frozen=True)
class RememberRemovedFiles:
    place: MaintainedTable
    span_ms: int

    def describe(self) -> str:
        return f"{self.place.name}: remember removed files for {span_text(self.span_ms)} from now on"


@dataclass(frozen=True)
class DeleteFiles:
    place: MaintainedTable
    files: int
    bytes: int

    def describe(self) -> str:
        return f"{self.place.name}: delete {counted(self.files, 'file')}"


@dataclass(frozen=True)
class DropOldCheckpoints:
    table: TablePlan
    folders: tuple[str, ...]

    def describe(self) -> str:
        return f"{self.table.name}: delete {counted(len(self.folders), 'checkpoint')} of old generations"


VacuumStep = RememberRemovedFiles | DeleteFiles | DropOldCheckpoints


@dataclass(frozen=True)
class VacuumPlan:
    tables: tuple[TableVacuum, ...]
    old: tuple[DropOldCheckpoints, ...]
    retain_ms: int | None
    """The value of this command; None: the project's setting counts."""

    @property
    def needs_listing(self) -> bool:
        """Whether there is a file that may be deleted: only Delta, in Spark, knows which."""
        return any(table.candidates for table in self.tables)

    @property
    def steps(self) -> tuple[VacuumStep, ...]:
        """By table of the project, in the order in which they run. Files are known only after `list_files`."""
        return tuple(step for table in self.project_tables for step in self.steps_of(table))

    def steps_of(self, table: TablePlan) -> Iterator[VacuumStep]:
        for task in self.tables_of(table):
            if task.remember_ms:
                yield RememberRemovedFiles(task.place, task.remember_ms)
            if task.files:
                yield DeleteFiles(task.place, len(task.files), task.bytes)
        yield from (old for old in self.old if old.table is table)

    @property
    def project_tables(self) -> list[TablePlan]:
        return list({task.table.name: task.table for task in self.tables}.values())

    @property
    def checkpoints(self) -> list[str]:
        return [folder for old in self.old for folder in old.folders]

    @property
    def problems(self) -> dict[str, PenstockError]:
        return {table.place.name: table.problem for table in self.tables if table.problem is not None}

    def tables_of(self, table: TablePlan) -> list[TableVacuum]:
        """The Delta tables of this table with something to do."""
        return [task for task in self.tables if task.table is table and (task.files or task.remember_ms)]


def plan_vacuum(plan: Plan, tables: Sequence[TablePlan], store: Store, retain_ms: int | None) -> VacuumPlan:
    """Plans each table and those beside it, without a JVM. Errors of a table are not raised: they are in the plan."""
    planned, old = [], []
    for table in tables:
        for place in maintained_tables(table):
            if not DeltaLog(store, place.uri, place.name).versions():
                planned += [TableVacuum(place, table)] if place.expected else []
                continue
            try:
                planned.append(plan_table_vacuum(plan, table, place, store, read_layout(place.uri), retain_ms))
            except Exception as error:  # deltalake raises plain Exception
                planned.append(TableVacuum(place, table, problem=unreadable_log(error, place.name)))
        if folders := leftovers_of(plan, table, store):
            old.append(DropOldCheckpoints(table, tuple(folders)))
    return VacuumPlan(tuple(planned), tuple(old), retain_ms)


def list_files(spark: SparkSession, plan: Plan, planned: VacuumPlan, store: Store, tell: Tell) -> VacuumPlan:
    """The same plan with the files to delete, as Delta lists them. Errors of a table are in the plan."""

    def with_listing(table: TableVacuum) -> TableVacuum:
        tell(table.place.name, "listing its files")
        try:
            return with_files(spark, table, store)
        except Exception as error:
            return replace(table, problem=explain(error, table.place.name, str(logs_folder(plan))))

    return replace(planned, tables=tuple(map(with_listing, planned.tables)))


def plan_table_vacuum(
    plan: Plan, table: TablePlan, place: MaintainedTable, store: Store, layout: Layout, retain_ms: int | None
) -> TableVacuum:
    """How far a vacuum may go, without a JVM. `retain_ms` is this command's value; None: the project's setting."""
    now, still = now_ms(), at_once(plan, retain_ms)
    windows = max(plan.maintenance.retain_ms or 0, plan.maintenance.replay_ms, plan.maintenance.lag_ms(table.name))
    retain = retain_ms if retain_ms is not None else plan.maintenance.retain_ms
    remembered = retention_ms(layout.configuration)
    table_needs = needs(plan, table, place, store, now, still=still)
    asked_ms = now - (remembered if retain is None else retain)
    limit = horizon(place.name, asked_ms, table_needs, known_since_ms(layout.configuration, now), still=still)
    return TableVacuum(
        place,
        table,
        limit,
        candidates=limit.at_ms is not None and _has_candidates(layout, store.listing(place.uri), limit.at_ms),
        remember_ms=windows if windows > remembered and place.kind != "files" else None,
    )


def at_once(plan: Plan, retain_ms: int | None) -> bool:
    """Whether files may be deleted at once: the table's batches wait meanwhile, so that none has uncommitted files."""
    return plan.local and retain_ms == 0


def _has_candidates(layout: Layout, listing: Mapping[str, StoredFile], before_ms: int) -> bool:
    """Whether any file could be deleted: old enough, and not in the newest version. Delta decides in the end."""
    active = {file.name for file in layout.files}
    return any(
        file.modified_ms < before_ms and name not in active and not _is_hidden(name) for name, file in listing.items()
    )


def _is_hidden(name: str) -> bool:
    """The log itself, and checksums, which are deleted with their files."""
    return name.startswith("_delta_log/") or name.rpartition("/")[2].startswith(".")


def with_files(spark: SparkSession, task: TableVacuum, store: Store) -> TableVacuum:
    """The task with the files to delete, listed by Delta; without any if a reader still needs one of them."""
    limit = task.horizon
    if limit is None or limit.at_ms is None or not task.candidates:
        return task
    uri = task.place.uri
    removable = list_removable(spark, uri, hours(now_ms(), limit))
    needed = files_needed(store, uri, limit.needs)
    wrong = [name for name in removable if name in needed]
    if wrong:
        reason = (
            f"{needed[wrong[0]]} still needs {len(wrong):,} of the files that would go, {wrong[0]} for example: Delta "
            "no longer knows when they were removed, or a clock was wrong"
        )
        return replace(task, horizon=replace(limit, at_ms=None, why=reason))
    listing = store.listing(uri) if removable else {}
    files = tuple(name for name in removable if name in listing)  # Delta names empty folders as well
    return replace(task, files=files, bytes=sum(listing[name].size for name in files))


def document(task: TableVacuum) -> dict[str, Any]:
    limit = task.horizon
    return {
        "table": task.place.name,
        "created": task.created,
        "removed_before": iso_time(limit.at_ms) if limit is not None and limit.at_ms is not None else None,
        "why_nothing_may_go": limit.why if limit is not None else None,
        "needs": [
            {
                "who": need.reader,
                "what": need.what,
                "version": need.version,
                "removed_since": None if need.since_ms is None else iso_time(need.since_ms),
            }
            for need in (limit.needs if limit is not None else ())
        ],
        "files": len(task.files),
        "bytes": task.bytes,
        "remember_hours": None if task.remember_ms is None else -(-task.remember_ms // HOUR_MS),
    }


# Penstock's own leftovers: checkpoints of generations that nothing goes back to, and unfinished ones.


GENERATIONS_KEPT = 2
"""Number of generations to keep: the current one, and the one before it, to inspect after an accident."""


def leftovers(plan: Plan, table: TablePlan, store: Store, entry: Entry) -> list[str]:
    """Checkpoint folders to delete. `entry` is the table's last entry: no generation before its own can write any more.

    Under the commit lock of a local lake, an unfinished checkpoint is left from a process that died. Elsewhere one of
    the newest generation may still be being written."""
    folders = []
    for name in sorted(store.names(table.checkpoints)):
        generation, _, suffix = name.partition(".")
        if not generation.isdigit():
            continue
        is_old = int(generation) <= entry.generation - GENERATIONS_KEPT
        is_unfinished = suffix.endswith("new") and (plan.local or int(generation) < entry.generation)
        if (is_old and not suffix) or is_unfinished:
            folders.append(f"{table.checkpoints}/{name}")
    return folders


# Deleting the files that nobody needs any more. Deleting again does no harm: after a kill, just run it again.


@dataclass(frozen=True)
class Vacuumed:
    place: MaintainedTable
    horizon: Horizon
    files: int = 0
    bytes: int = 0
    remembers_ms: int | None = None
    """Set if the table now remembers removed files for longer."""


@dataclass
class VacuumResult:
    done: dict[str, Vacuumed] = field(default_factory=dict)
    errors: dict[str, PenstockError] = field(default_factory=dict)


def run_vacuum(
    spark: SparkSession, plan: Plan, planned: VacuumPlan, store: Store, tell: Tell, *, by: str = "penstock vacuum"
) -> VacuumResult:
    """Handles each table separately: one failure does not stop the others. Needs the session of a plan
    `with_commit_waiting`."""
    result = VacuumResult(errors=planned.problems)
    for table in planned.project_tables:
        steps = list(planned.steps_of(table))
        if not steps:
            continue
        tell(table.name, "deleting files")
        try:
            with exclusive_maintenance(spark, plan, table.name):
                pause_batches = paused_batches(spark, plan, table.name)
                for task in planned.tables_of(table):
                    result.done[task.place.name] = vacuum(
                        spark,
                        plan,
                        table,
                        task.place,
                        store,
                        by=by,
                        pause_batches=pause_batches,
                        retain_ms=planned.retain_ms,
                        planned=task,
                    )
                if any(isinstance(step, DropOldCheckpoints) for step in steps):
                    remove_leftovers(plan, table, store, pause_batches)
        except Exception as error:
            result.errors[table.name] = explain(error, table.name, str(logs_folder(plan)))
            if isinstance(result.errors[table.name], JvmDied):
                break
    return result


def vacuum(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    place: MaintainedTable,
    store: Store,
    *,
    by: str,
    pause_batches: PauseBatches,
    retain_ms: int | None = None,
    planned: TableVacuum | None = None,
) -> Vacuumed:
    """Needs the table's maintenance lock. Goes no further than `planned`, which the user has seen; and checks all needs
    again, since readers may have moved."""
    still = at_once(plan, retain_ms)
    pause: PauseBatches = nullcontext if still else pause_batches
    with pause_batches() if still else nullcontext():
        plan_again = partial(plan_table_vacuum, plan, table, place, store, retain_ms=retain_ms)
        task = _extend_memory(spark, place, by, pause, plan_again)
        task = with_files(spark, _limit_to_plan(task, planned), store)
        limit = task.horizon
        assert limit is not None
        result = Vacuumed(place, limit, remembers_ms=task.remember_ms)
        if limit.at_ms is not None and task.files:
            delete(spark, place.uri, hours(now_ms(), limit))
            remaining = store.listing(place.uri)
            deleted = [name for name in task.files if name not in remaining]
            kept_bytes = sum(remaining[name].size for name in task.files if name in remaining)
            result = replace(result, files=len(deleted), bytes=task.bytes - kept_bytes)
            if deleted and place.kind != "files":
                note = f"{counted(len(deleted), 'file')} deleted, removed before {time_text(limit.at_ms)}"
                with pause():
                    record(spark, place.uri, MaintenanceNote("vacuum", place.name, by, note), len(deleted))
        history = read_history(store, plan.system, place.name)
        write_memory(store, plan.system, place.name, replace(history, done={**history.done, "vacuum": now_ms()}))
        return result


def _extend_memory(
    spark: SparkSession,
    place: MaintainedTable,
    by: str,
    pause: PauseBatches,
    plan_again: Callable[[Layout], TableVacuum],
) -> TableVacuum:
    """Makes the table remember removed files for as long as they are needed, then plans again."""
    layout = snapshot_layout(spark, place.uri)
    task = plan_again(layout)
    if task.remember_ms is None:
        return task
    note = f"removed files are remembered for {span_text(task.remember_ms)}"
    with pause():
        maintenance_note = MaintenanceNote("remember", place.name, by, note)
        remember(spark, place.uri, task.remember_ms, layout.configuration, maintenance_note)
    return replace(plan_again(snapshot_layout(spark, place.uri)), remember_ms=task.remember_ms)


def remove_leftovers(plan: Plan, table: TablePlan, store: Store, pause_batches: PauseBatches) -> list[str]:
    """Removes Penstock's own leftovers and returns them."""
    with pause_batches():
        folders = leftovers_of(plan, table, store)
        for folder in folders:
            store.delete(folder)
    return folders


def leftovers_of(plan: Plan, table: TablePlan, store: Store) -> list[str]:
    head = ledger_end(RecentLog(store, table.uri, table.name))
    return leftovers(plan, table, store, head.entry) if isinstance(head, LedgerHead) else []


def _limit_to_plan(task: TableVacuum, planned: TableVacuum | None) -> TableVacuum:
    limit, seen = task.horizon, planned.horizon if planned is not None else None
    if limit is None or limit.at_ms is None or seen is None or seen.all_may_go:
        return task
    if seen.at_ms is None:
        return replace(task, horizon=replace(limit, at_ms=None, why=seen.why))
    return replace(task, horizon=replace(limit, at_ms=min(limit.at_ms, seen.at_ms)))
