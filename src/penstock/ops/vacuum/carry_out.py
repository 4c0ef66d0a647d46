"""Deleting the files that nobody needs any more. Deleting twice is deleting once: killed anywhere, run it again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import SparkSession

from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.upkeep import Upkeep
from penstock.engine.store import Store
from penstock.engine.upkeep.layout import Layout, snapshot_layout
from penstock.engine.upkeep.memory import read_memory, write_memory
from penstock.engine.upkeep.places import Place
from penstock.engine.upkeep.turns import Hold
from penstock.engine.upkeep.vacuuming import delete, record, remember
from penstock.ops.recent import RecentLog
from penstock.ops.vacuum.guard import Horizon, hours, span_text, time_text
from penstock.ops.vacuum.leftovers import leftovers
from penstock.ops.vacuum.look import Looked, at_once, look, now_ms, with_files
from penstock.ops.vacuum.needs import ledger_end
from penstock.plan.model import Plan, TablePlan
from penstock.spec.quantity import counted


@dataclass(frozen=True)
class Vacuumed:
    place: Place
    horizon: Horizon
    files: int = 0
    bytes: int = 0
    remembers_ms: int | None = None
    """Set if the table was made to remember for longer."""


def vacuum(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    place: Place,
    store: Store,
    *,
    by: str,
    hold: Hold,
    retain_ms: int | None = None,
    planned: Looked | None = None,
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
                    record(spark, place.uri, Upkeep("vacuum", place.name, by, note), len(gone))
        memory = read_memory(store, plan.system, place.name)
        write_memory(store, plan.system, place.name, replace(memory, done={**memory.done, "vacuum": now_ms()}))
        return done


def _remembering(spark: SparkSession, place: Place, by: str, turn: Hold, look_at: Callable[[Layout], Looked]) -> Looked:
    """The table is made to remember removed files for as long as somebody needs them, and looked at then."""
    layout = snapshot_layout(spark, place.uri)
    looked = look_at(layout)
    if looked.remember_ms is None:
        return looked
    note = f"removed files are remembered for {span_text(looked.remember_ms)}"
    with turn():
        told = Upkeep("remember", place.name, by, note)
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
    return leftovers(plan, table, store, tail.entry) if isinstance(tail, Tail) else []


def _not_beyond(looked: Looked, planned: Looked | None) -> Looked:
    made, seen = looked.horizon, planned.horizon if planned is not None else None
    if made is None or seen is None or made.at_ms is None or seen.at_ms is None or seen.all_may_go:
        return looked
    return replace(looked, horizon=replace(made, at_ms=min(made.at_ms, seen.at_ms)))
