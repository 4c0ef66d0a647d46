"""What `vacuum` would do to a table: how far it may go, and which files that are."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Listed, Store
from penstock.engine.upkeep.layout import Layout, read_layout
from penstock.engine.upkeep.places import Place, places
from penstock.engine.upkeep.remembered import known_since_ms, retention_ms
from penstock.engine.upkeep.vacuuming import would_go
from penstock.errors import PenstockError, Terminal
from penstock.ops.vacuum.guard import Horizon, Need, horizon, hours, time_text
from penstock.ops.vacuum.needs import needs, still_needed
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class Looked:
    place: Place
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


def look_all(plan: Plan, tables: Sequence[TablePlan], store: Store, retain_ms: int | None) -> list[Looked]:
    """Each table and what lies beside it. Nothing is raised because of a table: it is in the answer."""
    found = []
    for table in tables:
        for place in places(table):
            if not DeltaLog(store, place.uri, place.name).versions():
                found += [Looked(place, table)] if place.expected else []
                continue
            try:
                found.append(look(plan, table, place, store, read_layout(place.uri), retain_ms))
            except PenstockError as error:
                found.append(Looked(place, table, problem=error))
            except Exception as error:  # deltalake raises plain Exception
                text = " ".join(str(error).split())[:300]
                problem = Terminal(f"its log cannot be read: {text}", where=place.name)
                found.append(Looked(place, table, problem=problem))
    return found


def look(plan: Plan, table: TablePlan, place: Place, store: Store, layout: Layout, retain_ms: int | None) -> Looked:
    """Without a JVM: how far it may go. `retain_ms` is what was asked for just now; else the project's wish counts."""
    now, still = now_ms(), at_once(plan, retain_ms)
    windows = max(plan.maintenance.retain_ms or 0, plan.maintenance.replay_ms, plan.maintenance.lag_ms(table.name))
    asked = retain_ms if retain_ms is not None else plan.maintenance.retain_ms
    remembered = retention_ms(layout.configuration)
    found = needs(plan, table, place, store, now, still=still)
    asked_ms = now - (remembered if asked is None else asked)
    made = horizon(place.name, asked_ms, found, known_since_ms(layout.configuration, now), still=still)
    return Looked(
        place,
        table,
        made,
        candidates=made.at_ms is not None and _candidates(layout, store.listing(place.uri), made.at_ms),
        remember_ms=windows if windows > remembered and place.kind != "files" else None,
    )


def at_once(plan: Plan, retain_ms: int | None) -> bool:
    """Whether no time shall pass: the batches of the table wait meanwhile, so that none has files in no commit yet."""
    return plan.local and retain_ms == 0


def _candidates(layout: Layout, listed: Mapping[str, Listed], before_ms: int) -> bool:
    """Whether there is a file that could go: old enough, and not of the newest version. Delta will know more of it."""
    active = {file.name for file in layout.files}
    return any(
        about.modified_ms < before_ms and name not in active and not _hidden(name) for name, about in listed.items()
    )


def _hidden(name: str) -> bool:
    """The log itself, and checksums, which go with their files."""
    return name.startswith("_delta_log/") or name.rpartition("/")[2].startswith(".")


def with_files(spark: SparkSession, looked: Looked, store: Store) -> Looked:
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


def document(looked: Looked) -> dict[str, Any]:
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
