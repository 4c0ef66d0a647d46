"""What `optimize` would do to a table, from its log alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.upkeep.layout import Layout, read_layout
from penstock.engine.upkeep.memory import Memory, read_memory
from penstock.engine.upkeep.places import Place, places
from penstock.engine.upkeep.worth import Step, Wanted, steps, target_bytes
from penstock.errors import PenstockError, Terminal
from penstock.plan.model import Plan, TablePlan

Progress = Callable[[str, str, float], None]
"""Table, what is being done, and which part of that is done."""


@dataclass(frozen=True)
class Looked:
    place: Place
    table: TablePlan
    """Whose files they are: its own, or those of its quarantine."""
    files: int = 0
    bytes: int = 0
    steps: tuple[Step, ...] = ()
    created: bool = True
    problem: PenstockError | None = None


def look(
    plan: Plan, tables: Sequence[TablePlan], store: Store, *, full: bool, progress: Progress = lambda *_: None
) -> list[Looked]:
    """In their order. Nothing is raised because of a table: it is in the answer."""
    found: list[Looked] = []
    every = ((table, place) for table in tables for place in places(table) if place.kind != "files")
    chosen = [(t, place) for t, place in every if place.expected or DeltaLog(store, place.uri, place.name).versions()]
    for index, (table, place) in enumerate(chosen):
        progress(place.name, "counting its files", index / len(chosen))
        found.append(_look(plan, table, place, store, full=full))
    return found


def _look(plan: Plan, table: TablePlan, place: Place, store: Store, *, full: bool) -> Looked:
    if not DeltaLog(store, place.uri, place.name).versions():
        return Looked(place, table, created=False)
    try:
        layout = read_layout(place.uri)
    except Exception as error:  # deltalake raises plain Exception
        text = " ".join(str(error).split())[:300]
        problem = Terminal(f"its log cannot be read: {text}", where=place.name)
        return Looked(place, table, problem=problem)
    wanted = wanted_of(plan, table, place, layout, read_memory(store, plan.system, place.name), full=full)
    return Looked(place, table, len(layout.files), layout.bytes, tuple(steps(layout, wanted)))


def wanted_of(plan: Plan, table: TablePlan, place: Place, layout: Layout, memory: Memory, *, full: bool) -> Wanted:
    """What was put in order by other columns is not in order."""
    by = place.zorder_by or (table.write.cluster_by if place.kind == "table" else ())
    return Wanted(
        target=target_bytes(layout.configuration, plan.maintenance.target_bytes),
        zorder_by=() if layout.clustered else place.zorder_by,
        full=full,
        ordered=memory.ordered if memory.ordered_by == by else {},
    )


def document(looked: Looked) -> dict[str, Any]:
    return {
        "table": looked.place.name,
        "created": looked.created,
        "files": looked.files,
        "bytes": looked.bytes,
        "steps": [{**asdict(step), "partitions": [list(one) for one in step.partitions]} for step in looked.steps],
        "error": _error(looked.problem),
    }


def _error(problem: PenstockError | None) -> dict[str, Any] | None:
    if problem is None:
        return None
    return {"kind": type(problem).__name__, "message": problem.message, "hint": problem.hint}


def now_ms() -> int:
    return time.time_ns() // 1_000_000
