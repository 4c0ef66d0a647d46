"""Somebody forgotten, step by step. Nothing is remembered between the steps: each finds what is left to do, so that one
that was killed is simply given again, and one that was done finds nothing.

The order is on the suppression list before this begins: whatever is read from then on leaves him out. So rows go from
the top down; readers go on, past that; then the files; then the log; and the last look at everything is the proof.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql import SparkSession

from penstock.engine.forget.erase import DELETED, REDACTED, erase, sought
from penstock.engine.forget.matching import Wanted
from penstock.engine.forget.needle import Needle
from penstock.engine.forget.scrub import Sought
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.upkeep.places import Place as DeltaPlace
from penstock.engine.upkeep.places import places
from penstock.errors import PenstockError, Transient
from penstock.ops.forget.asked import Name
from penstock.ops.forget.elsewhere import search
from penstock.ops.forget.files import current, remove_files
from penstock.ops.forget.logs import look_into_log, scrub_log, sought_in
from penstock.ops.forget.model import Commit, Done, PlaceDone
from penstock.ops.forget.outdated import outdated
from penstock.ops.forget.outside import outside, undeclared
from penstock.ops.forget.readers import Run, bring_on, step_over
from penstock.ops.forget.turns import to_oneself
from penstock.ops.recent import RecentLog
from penstock.plan.model import Plan, TablePlan
from penstock.plan.subjects import Place

Told = Callable[[str, str], None]
Explain = Callable[[Exception, str], PenstockError]
ROUNDS = 3
"""Looks at everything, if rows or files turn up that were not there before."""
TRIES = 3


class Forgetting:
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        store: Store,
        wanted: Wanted,
        asked: Sequence[Name],
        *,
        run: Run,
        told: Told,
        explain: Explain,
        patience: float,
    ) -> None:
        self._spark, self._plan, self._store = spark, plan, store
        self._wanted, self._asked, self._run, self._told, self._explain = wanted, asked, run, told, explain
        self._patience = patience
        self._tables = [table for table in plan.tables if sought(table, wanted)]
        self.done = Done(uuid.uuid4().hex[:12], wanted.orders, _now())
        for table in self._tables:
            for name, subjects in sought(table, wanted).items():
                where = tuple(_said(one) for subject in subjects for one in subjects[subject])
                self.done.places[name] = PlaceDone(name, tuple(dict.fromkeys(where)))

    def carry_out(self) -> Done:
        for turn in range(ROUNDS):
            for place in self.done.places.values():
                place.problem = None
            self._each("rows are taken out", self._erase)
            self._readers()
            self._each("files are looked through", self._files)
            if any(one.needed for one in self.done.places.values()):
                self._step_over()
                self._each("files are looked through", self._files_left)
            self._each("the log is looked through", self._log)
            self._elsewhere()
            self._each("the proof: every file is read again", self._prove)
            if self.done.proven or turn == ROUNDS - 1 or not self._came_back():
                break
        self.done.outside = outside(self._plan, self._wanted.orders)
        self.done.outdated = outdated(self._plan, self._tables)
        self.done.undeclared = undeclared(self._plan, self._wanted.orders)
        self._each("", self._commits)
        self.done.ended_ms = _now()
        return self.done

    def _each(self, what: str, step: Callable[[TablePlan], None]) -> None:
        """Each table alone: what fails for one leaves the others."""
        for table in self._tables:
            if what:
                self._told(table.name, what)
            for tries in range(1, TRIES + 1):
                try:
                    step(table)
                    break
                except Exception as error:
                    cause = self._explain(error, table.name)
                    if isinstance(cause, Transient) and tries < TRIES:  # on an object store a batch came in between
                        continue
                    self.done.places[next(iter(sought(table, self._wanted)))].problem = cause.message
                    break

    def _erase(self, table: TablePlan) -> None:
        note = f"forget {', '.join(order.id for order in self._wanted.orders[:3])}"
        note += f" and {len(self._wanted.orders) - 3} more" if len(self._wanted.orders) > 3 else ""
        with to_oneself(self._spark, self._plan, table) as work:
            for one in erase(work, self._wanted, note):
                done = self.done.places[one.place]
                done.rows += one.held.rows
                done.marked += one.held.marked
                done.files += len(one.held.files)
                done.redacted = one.redacted

    def _readers(self) -> None:
        self.done.readers = bring_on(self._spark, self._plan, self._store, self._run, self._told, self._patience)

    def _files(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            for one in remove_files(self._plan, work, self._wanted, delete=True):
                done = self.done.places[one.place]
                done.removed_files += len(one.removed)
                done.removed_bytes += one.bytes
                done.needed = dict(one.needed)

    def _files_left(self, table: TablePlan) -> None:
        if any(self.done.places[name].needed for name in sought(table, self._wanted)):
            self._files(table)

    def _step_over(self) -> None:
        """Readers are past, but for their last batch, which would be run again if their checkpoint was lost."""
        names = {reader for one in self.done.places.values() for reader in one.needed}
        for table in self._plan.tables:
            if table.name in names:
                self._told(table.name, "goes on without its last batch")
                try:
                    step_over(self._spark, self._plan, table, self._store)
                except Exception as error:
                    problem = self._explain(error, table.name).message
                    self._told(table.name, problem)

    def _log(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            for place, within in self._logs(table):
                looked = scrub_log(self._spark, work.store, place, within)
                self.done.places[place.name].log_rewritten += looked.rewritten
                self.done.places[place.name].log_removed += looked.removed

    def _logs(self, table: TablePlan) -> Iterator[tuple[DeltaPlace, Sought]]:
        known = sought(table, self._wanted)
        for place in places(table):
            if place.name in known and DeltaLog(self._store, place.uri, place.name).versions():
                yield place, sought_in(self._asked, known[place.name])

    def _elsewhere(self) -> None:
        self._told("", "everything else is searched")
        needles = [Needle(one.subject, one.value) for one in self._asked]
        folders = [place.uri for table in self._plan.tables for place in places(table)]
        self.done.elsewhere = search(self._plan, self._store, needles, folders, mask=True)

    def _prove(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            beside = {one.place: one for one in remove_files(self._plan, work, self._wanted, delete=False)}
            for name, (files, held) in current(self._spark, work, self._wanted).items():
                done = self.done.places[name]
                done.decoded = files + beside[name].files
                done.left = held.rows + held.marked + beside[name].held
            for place, within in self._logs(table):
                looked = look_into_log(self._spark, work.store, place, within)
                self.done.places[place.name].log_files = looked.files
                self.done.places[place.name].log_left = looked.held

    def _came_back(self) -> bool:
        """Whether another round can help: something turned up after it was taken out."""
        return any(one.left or one.log_left for one in self.done.places.values() if not one.problem)

    def _commits(self, table: TablePlan) -> None:
        ids = {order.id for order in self._wanted.orders}
        for place in places(table):
            done = self.done.places.get(place.name)
            if done is None:
                continue
            done.commits = []
            for commit in RecentLog(self._store, place.uri, place.name).backwards():
                entry = commit.entry
                if entry is None or entry.kind != "forget" or not any(one in (entry.note or "") for one in ids):
                    continue
                counts = [entry.changed.get(name, 0) for name in (DELETED, REDACTED)]
                if commit.changes:
                    done.commits.insert(0, Commit(commit.version, commit.timestamp_ms, sum(counts), bool(counts[1])))


def _said(place: Place) -> str:
    return place.column if place.path is None else f"{place.path} of {place.column}"


def _now() -> int:
    return time.time_ns() // 1_000_000
