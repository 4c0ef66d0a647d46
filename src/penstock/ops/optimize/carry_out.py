"""Looking after the files of a table. Each step is one commit; killed anywhere, it can be run again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from penstock.engine.store import Store
from penstock.engine.upkeep.layout import Layout, snapshot_layout
from penstock.engine.upkeep.memory import Memory, read_memory, write_memory
from penstock.engine.upkeep.optimizing import is_conflict, rewrite
from penstock.engine.upkeep.places import Place
from penstock.engine.upkeep.turns import Hold
from penstock.engine.upkeep.worth import Step, Wanted, steps
from penstock.errors import Conflict
from penstock.ops.optimize.look import now_ms, wanted_of
from penstock.plan.model import Plan, TablePlan
from penstock.spec.quantity import counted

TRIES = 3
"""Beside a stream that keeps changing the files; the last time the stream waits, where that can be arranged."""


@dataclass(frozen=True)
class Optimized:
    place: Place
    files_before: int
    bytes_before: int
    files: int
    bytes: int
    done: tuple[Step, ...]

    @property
    def said(self) -> str:
        became = f"{counted(self.files_before, 'file')} became {self.files:,}"
        return f"{'; '.join(step.said for step in self.done)}: {became}"


@contextmanager
def _free() -> Iterator[None]:
    yield


def optimize(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    place: Place,
    store: Store,
    *,
    by: str,
    hold: Hold,
    full: bool = False,
    beside: bool = False,
    step_done: Callable[[Step], None] = lambda _: None,
) -> Optimized:
    """Under the table's upkeep lock. `hold` keeps the table's batches waiting; `beside` goes without it as long as no
    batch comes in between."""
    before = layout = snapshot_layout(spark, place.uri)
    done: list[Step] = []
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
    spark: SparkSession, place: Place, layout: Layout, step: Step, wanted: Wanted, by: str, hold: Hold, *, beside: bool
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


def _in_order(memory: Memory, table: TablePlan, place: Place, step: Step, layout: Layout) -> Memory:
    there = {file.partition for file in layout.files}
    now = now_ms()
    by = place.zorder_by if step.kind == "zorder" else table.write.cluster_by
    kept = {part: at for part, at in memory.ordered.items() if part in there} if memory.ordered_by == by else {}
    return replace(memory, ordered={**kept, **dict.fromkeys(step.partitions or there, now)}, ordered_by=by)
