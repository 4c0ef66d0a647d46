"""`vacuum`: which files no version needs any more, and deleting them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.ledger.entry import MaintenanceNote
from penstock.ledger.head import LedgerHead
from penstock.maintenance.retention import (
    horizon,
    hours,
    ledger_end,
    needs,
    span_text,
    still_needed,
    time_text,
)
from penstock.maintenance.tables import (
    LOG,
    REMOVED,
    SINCE,
    exclusive_maintenance,
    known_since_ms,
    paused_batches,
    places,
    read_memory,
    retention_ms,
    session_with,
    unreadable_log,
    write_memory,
)
from penstock.operations.causes import JvmDied, explain
from penstock.spark.jvm import java_session, jvm_of
from penstock.spark.session import logs_folder
from penstock.spark.sql_text import quote
from penstock.spec.quantity import counted
from penstock.storage.layout import read_layout, snapshot_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.entry import Entry
    from penstock.maintenance.retention import (
        Horizon,
        Need,
    )
    from penstock.maintenance.tables import (
        Hold,
        MaintainedTable,
    )
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.layout import Layout
    from penstock.storage.stores import Store, StoredFile

# Delta's VACUUM, told exactly how far it may go, and a note in the table's log of what it did.
#
# By default it ignores the hours that it is told unless they are 0, and commits twice whatever it finds (both run).


_DELTA = "spark.databricks.delta"
_HOUR_MS = 3_600_000


def would_go(spark: SparkSession, uri: str, hours: int) -> list[str]:
    """The files, by their names within the table, that a vacuum would delete now; empty folders as well."""
    rows = _session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS DRY RUN").collect()
    return [within(str(row[0]), uri) for row in rows]


def delete(spark: SparkSession, uri: str, hours: int) -> None:
    """Makes no commit: whoever dies in between has deleted what nobody needs, and the next one goes on."""
    _session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS").collect()


def _session(spark: SparkSession, uri: str) -> SparkSession:
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


def record(spark: SparkSession, uri: str, upkeep: MaintenanceNote, files: int) -> None:
    """A commit without rows and files, which says who deleted what."""
    session = session_with(spark, {}, upkeep)
    jvm = jvm_of(session)
    told = jvm.java.util.HashMap()
    told.put("numDeletedFiles", files)
    jvm.penstock.delta.Note.vacuumed(java_session(session), uri, told)


def remember(
    spark: SparkSession,
    uri: str,
    wanted_ms: int,
    configuration: Mapping[str, str],
    now_ms: int,
    upkeep: MaintenanceNote,
) -> None:
    """From now on the table remembers for so long what is removed. What is forgotten by now stays forgotten."""
    hours = -(-wanted_ms // _HOUR_MS)
    properties = {REMOVED: f"interval {hours} hours", SINCE: str(known_since_ms(configuration, now_ms))}
    if retention_ms(configuration, LOG) < hours * _HOUR_MS:  # Delta asks for a log that goes back as far
        properties[LOG] = f"interval {hours} hours"
    told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    session_with(spark, {}, upkeep).sql(f"ALTER TABLE delta.{quote(uri)} SET TBLPROPERTIES ({told})")


# What `vacuum` would do to a table: how far it may go, and which files that are.


@dataclass(frozen=True)
class TableVacuum:
    place: MaintainedTable
    table: TablePlan
    horizon: Horizon | None = None
    """None if the table is not made, or could not be looked at."""
    files: tuple[str, ...] = ()
    """That would go, by their names within the table; without Spark nobody knows."""
    bytes: int = 0
    candidates: bool = False
    """Whether there is a file that could go: without one Spark need not be asked."""
    remember_ms: int | None = None
    """The table has to remember removed files for so long, and does not yet."""
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
    """What was asked for just now; else the project's setting counts."""

    @property
    def needs_listing(self) -> bool:
        """Whether there is a file that may go: only Delta knows which, in Spark."""
        return any(table.candidates for table in self.tables)

    @property
    def steps(self) -> tuple[VacuumStep, ...]:
        """Per table of the project, in the order in which they are carried out. Files only after `list_files`."""
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
        """Those of its Delta tables with something to do."""
        return [task for task in self.tables if task.table is table and (task.files or task.remember_ms)]


def plan_vacuum(plan: Plan, tables: Sequence[TablePlan], store: Store, retain_ms: int | None) -> VacuumPlan:
    """Each table and what lies beside it, without a JVM. Nothing is raised because of a table: it is in the answer."""
    planned, old = [], []
    for table in tables:
        for place in places(table):
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
    """The same with the files that would go, as Delta lists them. A table that fails has its problem in the answer."""

    def listed(table: TableVacuum) -> TableVacuum:
        tell(table.place.name, "listing its files")
        try:
            return with_files(spark, table, store)
        except Exception as error:
            return replace(table, problem=explain(error, table.place.name, str(logs_folder(plan))))

    return replace(planned, tables=tuple(map(listed, planned.tables)))


def plan_table_vacuum(
    plan: Plan, table: TablePlan, place: MaintainedTable, store: Store, layout: Layout, retain_ms: int | None
) -> TableVacuum:
    """Without a JVM: how far it may go. `retain_ms` is what was asked for just now; else the project's wish counts."""
    now, still = now_ms(), at_once(plan, retain_ms)
    windows = max(plan.maintenance.retain_ms or 0, plan.maintenance.replay_ms, plan.maintenance.lag_ms(table.name))
    asked = retain_ms if retain_ms is not None else plan.maintenance.retain_ms
    remembered = retention_ms(layout.configuration)
    found = needs(plan, table, place, store, now, still=still)
    asked_ms = now - (remembered if asked is None else asked)
    made = horizon(place.name, asked_ms, found, known_since_ms(layout.configuration, now), still=still)
    return TableVacuum(
        place,
        table,
        made,
        candidates=made.at_ms is not None and _candidates(layout, store.listing(place.uri), made.at_ms),
        remember_ms=windows if windows > remembered and place.kind != "files" else None,
    )


def at_once(plan: Plan, retain_ms: int | None) -> bool:
    """Whether no time shall pass: the batches of the table wait meanwhile, so that none has files in no commit yet."""
    return plan.local and retain_ms == 0


def _candidates(layout: Layout, listed: Mapping[str, StoredFile], before_ms: int) -> bool:
    """Whether there is a file that could go: old enough, and not of the newest version. Delta will know more of it."""
    active = {file.name for file in layout.files}
    return any(
        about.modified_ms < before_ms and name not in active and not _hidden(name) for name, about in listed.items()
    )


def _hidden(name: str) -> bool:
    """The log itself, and checksums, which go with their files."""
    return name.startswith("_delta_log/") or name.rpartition("/")[2].startswith(".")


def with_files(spark: SparkSession, looked: TableVacuum, store: Store) -> TableVacuum:
    """The files that would go, listed by Delta; and none of them if a reader still needs one."""
    made = looked.horizon
    if made is None or made.at_ms is None or not looked.candidates:
        return looked
    uri = looked.place.uri
    found = would_go(spark, uri, hours(now_ms(), made))
    needed = still_needed(store, uri, made.needs)
    wrong = [name for name in found if name in needed]
    if wrong:
        why = (
            f"{needed[wrong[0]]} still needs {len(wrong):,} of the files that would go, {wrong[0]} for example: Delta "
            "no longer knows when they were removed, or a clock was wrong"
        )
        return replace(looked, horizon=replace(made, at_ms=None, why=why))
    listed = store.listing(uri) if found else {}
    files = tuple(name for name in found if name in listed)  # Delta names empty folders as well
    return replace(looked, files=files, bytes=sum(listed[name].size for name in files))


def document(looked: TableVacuum) -> dict[str, Any]:
    made = looked.horizon
    return {
        "table": looked.place.name,
        "created": looked.created,
        "removed_before": _iso(made.at_ms) if made is not None else None,
        "why_nothing_may_go": made.why if made is not None else None,
        "needs": [_need(one) for one in made.needs] if made is not None else [],
        "files": len(looked.files),
        "bytes": looked.bytes,
        "remember_hours": None if looked.remember_ms is None else -(-looked.remember_ms // 3_600_000),
    }


def _need(need: Need) -> dict[str, Any]:
    return {
        "who": need.who,
        "what": need.what,
        "version": need.version,
        "removed_since": _iso(need.since_ms),
    }


def _iso(ms: int | None) -> str | None:
    return None if ms is None else time_text(ms).replace(" ", "T") + "Z"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


# What Penstock itself leaves behind: checkpoints of generations that nobody goes back to, and halves of new ones.


KEPT = 2
"""Generations: the one that runs, and the one before it, to look at after an accident."""


def leftovers(plan: Plan, table: TablePlan, store: Store, entry: Entry) -> list[str]:
    """Folders of checkpoints. `entry` is the last one of the table: no generation before its own can write any more.

    On a local lake a half-made one is left by a process that died, if this is asked under the commit lock. Elsewhere
    one of the newest generation may be in the making."""
    found = []
    for name in sorted(store.names(table.checkpoints)):
        generation, _, rest = name.partition(".")
        if not generation.isdigit():
            continue
        old = int(generation) <= entry.generation - KEPT
        half = rest.endswith("new") and (plan.local or int(generation) < entry.generation)
        if (old and not rest) or half:
            found.append(f"{table.checkpoints}/{name}")
    return found


# Deleting the files that nobody needs any more. Deleting twice is deleting once: killed anywhere, run it again.


@dataclass(frozen=True)
class Vacuumed:
    place: MaintainedTable
    horizon: Horizon
    files: int = 0
    bytes: int = 0
    remembers_ms: int | None = None
    """Set if the table was made to remember for longer."""


@dataclass
class VacuumResult:
    done: dict[str, Vacuumed] = field(default_factory=dict)
    errors: dict[str, PenstockError] = field(default_factory=dict)


def run_vacuum(
    spark: SparkSession, plan: Plan, planned: VacuumPlan, store: Store, tell: Tell, *, by: str = "penstock vacuum"
) -> VacuumResult:
    """Each table alone: one that fails leaves the others. In a session of `beside_a_runner`."""
    result = VacuumResult(errors=planned.problems)
    for table in planned.project_tables:
        steps = list(planned.steps_of(table))
        if not steps:
            continue
        tell(table.name, "deleting files")
        try:
            with exclusive_maintenance(spark, plan, table.name):
                hold = paused_batches(spark, plan, table.name)
                for task in planned.tables_of(table):
                    result.done[task.place.name] = vacuum(
                        spark,
                        plan,
                        table,
                        task.place,
                        store,
                        by=by,
                        hold=hold,
                        retain_ms=planned.retain_ms,
                        planned=task,
                    )
                if any(isinstance(step, DropOldCheckpoints) for step in steps):
                    tidy(plan, table, store, hold)
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
    hold: Hold,
    retain_ms: int | None = None,
    planned: TableVacuum | None = None,
) -> Vacuumed:
    """Under the table's upkeep lock. It goes no further than `planned`, which a person has seen; and looks again at
    what everybody needs, who may have moved since."""
    still = at_once(plan, retain_ms)
    turn: Hold = nullcontext if still else hold
    with hold() if still else nullcontext():
        look_at = partial(plan_table_vacuum, plan, table, place, store, retain_ms=retain_ms)
        looked = _remembering(spark, place, by, turn, look_at)
        looked = with_files(spark, _not_beyond(looked, planned), store)
        made = looked.horizon
        assert made is not None
        done = Vacuumed(place, made, remembers_ms=looked.remember_ms)
        if made.at_ms is not None and looked.files:
            delete(spark, place.uri, hours(now_ms(), made))
            left = store.listing(place.uri)
            gone = [name for name in looked.files if name not in left]
            kept = sum(left[name].size for name in looked.files if name in left)
            done = replace(done, files=len(gone), bytes=looked.bytes - kept)
            if gone and place.kind != "files":
                note = f"{counted(len(gone), 'file')} deleted, removed before {time_text(made.at_ms)}"
                with turn():
                    record(spark, place.uri, MaintenanceNote("vacuum", place.name, by, note), len(gone))
        memory = read_memory(store, plan.system, place.name)
        write_memory(store, plan.system, place.name, replace(memory, done={**memory.done, "vacuum": now_ms()}))
        return done


def _remembering(
    spark: SparkSession, place: MaintainedTable, by: str, turn: Hold, look_at: Callable[[Layout], TableVacuum]
) -> TableVacuum:
    """The table is made to remember removed files for as long as somebody needs them, and looked at then."""
    layout = snapshot_layout(spark, place.uri)
    looked = look_at(layout)
    if looked.remember_ms is None:
        return looked
    note = f"removed files are remembered for {span_text(looked.remember_ms)}"
    with turn():
        told = MaintenanceNote("remember", place.name, by, note)
        remember(spark, place.uri, looked.remember_ms, layout.configuration, now_ms(), told)
    return replace(look_at(snapshot_layout(spark, place.uri)), remember_ms=looked.remember_ms)


def tidy(plan: Plan, table: TablePlan, store: Store, hold: Hold) -> list[str]:
    """Removes what Penstock itself has left behind; what that was."""
    with hold():
        found = leftovers_of(plan, table, store)
        for folder in found:
            store.delete(folder)
    return found


def leftovers_of(plan: Plan, table: TablePlan, store: Store) -> list[str]:
    tail = ledger_end(RecentLog(store, table.uri, table.name))
    return leftovers(plan, table, store, tail.entry) if isinstance(tail, LedgerHead) else []


def _not_beyond(looked: TableVacuum, planned: TableVacuum | None) -> TableVacuum:
    made, seen = looked.horizon, planned.horizon if planned is not None else None
    if made is None or seen is None or made.at_ms is None or seen.at_ms is None or seen.all_may_go:
        return looked
    return replace(looked, horizon=replace(made, at_ms=min(made.at_ms, seen.at_ms)))
