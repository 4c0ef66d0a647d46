"""`vacuum`: which files no version needs any more, and deleting them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError, Terminal
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
    known_since_ms,
    places,
    read_memory,
    retention_ms,
    session_with,
    write_memory,
)
from penstock.spark.jvm import java_session, jvm_of
from penstock.spark.sql_text import quote
from penstock.spec.quantity import counted
from penstock.storage.layout import read_layout, snapshot_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.maintenance.retention import (
        Horizon,
        Need,
    )
    from penstock.maintenance.tables import (
        Hold,
        MaintainedTable,
    )
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
class VacuumPlan:
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


def look_all(plan: Plan, tables: Sequence[TablePlan], store: Store, retain_ms: int | None) -> list[VacuumPlan]:
    """Each table and what lies beside it. Nothing is raised because of a table: it is in the answer."""
    found = []
    for table in tables:
        for place in places(table):
            if not DeltaLog(store, place.uri, place.name).versions():
                found += [VacuumPlan(place, table)] if place.expected else []
                continue
            try:
                found.append(look(plan, table, place, store, read_layout(place.uri), retain_ms))
            except PenstockError as error:
                found.append(VacuumPlan(place, table, problem=error))
            except Exception as error:  # deltalake raises plain Exception
                text = " ".join(str(error).split())[:300]
                problem = Terminal(f"its log cannot be read: {text}", where=place.name)
                found.append(VacuumPlan(place, table, problem=problem))
    return found


def look(
    plan: Plan, table: TablePlan, place: MaintainedTable, store: Store, layout: Layout, retain_ms: int | None
) -> VacuumPlan:
    """Without a JVM: how far it may go. `retain_ms` is what was asked for just now; else the project's wish counts."""
    now, still = now_ms(), at_once(plan, retain_ms)
    windows = max(plan.maintenance.retain_ms or 0, plan.maintenance.replay_ms, plan.maintenance.lag_ms(table.name))
    asked = retain_ms if retain_ms is not None else plan.maintenance.retain_ms
    remembered = retention_ms(layout.configuration)
    found = needs(plan, table, place, store, now, still=still)
    asked_ms = now - (remembered if asked is None else asked)
    made = horizon(place.name, asked_ms, found, known_since_ms(layout.configuration, now), still=still)
    return VacuumPlan(
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


def with_files(spark: SparkSession, looked: VacuumPlan, store: Store) -> VacuumPlan:
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


def document(looked: VacuumPlan) -> dict[str, Any]:
    made, problem = looked.horizon, looked.problem
    return {
        "table": looked.place.name,
        "created": looked.created,
        "removed_before": _iso(made.at_ms) if made is not None else None,
        "why_nothing_may_go": made.why if made is not None else None,
        "needs": [_need(one) for one in made.needs] if made is not None else [],
        "files": len(looked.files),
        "bytes": looked.bytes,
        "remember_hours": None if looked.remember_ms is None else -(-looked.remember_ms // 3_600_000),
        "error": {"kind": type(problem).__name__, "message": problem.message, "hint": problem.hint}
        if problem
        else None,
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
    planned: VacuumPlan | None = None,
) -> Vacuumed:
    """Under the table's upkeep lock. It goes no further than `planned`, which a person has seen; and looks again at
    what everybody needs, who may have moved since."""
    still = at_once(plan, retain_ms)
    turn: Hold = nullcontext if still else hold
    with hold() if still else nullcontext():
        look_at = partial(look, plan, table, place, store, retain_ms=retain_ms)
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
    spark: SparkSession, place: MaintainedTable, by: str, turn: Hold, look_at: Callable[[Layout], VacuumPlan]
) -> VacuumPlan:
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


def _not_beyond(looked: VacuumPlan, planned: VacuumPlan | None) -> VacuumPlan:
    made, seen = looked.horizon, planned.horizon if planned is not None else None
    if made is None or seen is None or made.at_ms is None or seen.at_ms is None or seen.all_may_go:
        return looked
    return replace(looked, horizon=replace(made, at_ms=min(made.at_ms, seen.at_ms)))
