"""Somebody forgotten, step by step. Nothing is remembered between the steps: each finds what is left to do, so that one
that was killed is simply given again, and one that was done finds nothing.

The order is on the suppression list before this begins: whatever is read from then on leaves him out. So rows go from
the top down; readers go on, past that; then the files; then the log; and the last look at everything is the proof.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.engine.forget.erase import DELETED, REDACTED, erase, sought
from penstock.engine.forget.matching import Wanted
from penstock.engine.forget.needle import Needle
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.fill import Work
from penstock.engine.store import Store
from penstock.engine.upkeep.places import all_places
from penstock.errors import PenstockError, Transient
from penstock.ops.forget.asked import Name
from penstock.ops.forget.elsewhere import search
from penstock.ops.forget.files import PATIENCE, current, remove_files, remove_named
from penstock.ops.forget.logs import look_into_log, remove_attempts, scrub_log, sought_in
from penstock.ops.forget.model import Commit, Done, PlaceDone
from penstock.ops.forget.outdated import outdated
from penstock.ops.forget.outside import in_definition, outside, undeclared
from penstock.ops.forget.readers import Run, bring_on, step_over
from penstock.ops.forget.search import OWN, Known, LakeSearch
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
        not_names: Sequence[str] = (),
    ) -> None:
        self._spark, self._plan, self._store = spark, plan, store
        self._wanted, self._asked, self._run, self._told, self._explain = wanted, asked, run, told, explain
        self._patience = patience
        self._tables = [table for table in plan.tables if sought(table, store, wanted)]
        self._there = [table for table in plan.tables if DeltaLog(store, table.uri, table.name).versions()]
        needles = [Needle(one.subject, one.value) for one in asked]
        self._search = LakeSearch(spark, plan, store, needles, not_names)
        self.done = Done(uuid.uuid4().hex[:12], wanted.orders, _now(), not_names=tuple(not_names))
        for table in self._tables:
            for place, subjects in sought(table, store, wanted).items():
                where = tuple(_said(one) for subject in subjects for one in subjects[subject])
                self.done.places[place.name] = PlaceDone(place.name, tuple(dict.fromkeys(where)))
        for known in self._search.known:
            self.done.places.setdefault(known.name, PlaceDone(known.name))

    def carry_out(self) -> Done:
        for turn in range(ROUNDS):
            for place in self.done.places.values():
                place.problem = None
            self._each("rows are taken out", self._erase)
            self._readers()
            self._each("files are looked through", self._files)
            self._each("files are searched", self._named_files, self._there)
            if any(one.needed for one in self.done.places.values()):
                self._step_over()
                self._each("files are looked through", self._files_left)
                self._each("files are searched", self._named_files, self._there)
            self._each("the log is looked through", self._log, self._there)
            self._elsewhere()
            self._each("the proof: every file is read again", self._prove)
            self._each("the proof: the log is read again", self._prove_log, self._there)
            self._prove_everything()
            if self.done.proven or turn == ROUNDS - 1 or not self._came_back():
                break
        self.done.outside = outside(self._plan, self._wanted.orders)
        self.done.outside += in_definition(self._plan, self._search.needles)
        self.done.outdated = outdated(self._plan, self._tables)
        self.done.undeclared = undeclared(self._plan, self._wanted.orders)
        self._each("", self._commits, self._there)
        self.done.ended_ms = _now()
        return self.done

    def _each(self, what: str, step: Callable[[TablePlan], None], tables: Sequence[TablePlan] | None = None) -> None:
        """Each table alone: what fails for one leaves the others. Those that declare such a subject, if not told."""
        for table in self._tables if tables is None else tables:
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
                    self.done.places[table.name].problem = cause.message
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
        if any(self.done.places[place.name].needed for place in sought(table, self._store, self._wanted)):
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

    def _named_files(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            for known in self._known(table):
                one = remove_named(self._plan, work, known, self._search)
                done = self.done.places[known.name]
                done.removed_files += len(one.removed)
                done.removed_bytes += one.bytes
                for reader in one.needed.keys() | done.needed.keys():
                    done.needed[reader] = max(one.needed.get(reader, 0), done.needed.get(reader, 0))
                if not done.where:
                    done.needed = dict(one.needed)

    def _known(self, table: TablePlan) -> Iterator[Known]:
        """The table and what belongs to it, as far as it is made."""
        names = {place.name for place in all_places(table, self._store)}
        for known in self._search.known:
            if known.name in names and DeltaLog(self._store, known.uri, known.name).versions():
                yield known

    def _log(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            if self._plan.local:
                self._attempts(work)
            for known in self._known(table):
                within = sought_in(self._spark, self._search, work.store, known)
                looked = scrub_log(self._spark, self._search, work.store, known, within)
                self.done.places[known.name].log_rewritten += looked.rewritten
                self.done.places[known.name].log_removed += looked.removed

    def _attempts(self, work: Work) -> None:
        acquire_commit(work.lock, work.table.name, patience=PATIENCE)
        try:
            for known in self._known(work.table):
                if known.kind != "files":  # which is written to without the lock
                    remove_attempts(work.store, known, alone=True)
        finally:
            work.lock.release()

    def _elsewhere(self) -> None:
        self._told("", "logs and states are searched")
        folders = [place.uri for table in self._plan.tables for place in all_places(table, self._store)]
        self.done.elsewhere = search(self._plan, self._store, self._search.needles, folders, mask=True)

    def _prove(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            beside = {one.place: one for one in remove_files(self._plan, work, self._wanted, delete=False)}
            for name, (files, held) in current(self._spark, work, self._wanted).items():
                done = self.done.places[name]
                done.decoded = files + beside[name].files
                done.left = held.rows + held.marked + beside[name].held

    def _prove_log(self, table: TablePlan) -> None:
        with to_oneself(self._spark, self._plan, table) as work:
            for known in self._known(table):
                within = sought_in(self._spark, self._search, work.store, known)
                looked = look_into_log(self._search, work.store, known, within)
                self.done.places[known.name].log_files = looked.files
                self.done.places[known.name].log_left = looked.held

    def _prove_everything(self) -> None:
        self._told("", "the proof: every file of the lake is searched")
        lake = self._plan.lake
        own = [str(Path(self._plan.root) / OWN)]
        roots = [lake, *(one.uri for one in self._search.known if not one.uri.startswith(f"{lake}/"))]
        self.done.search = self._search.everything([*roots, *(one for one in own if not one.startswith(f"{lake}/"))])

    def _came_back(self) -> bool:
        """Whether another round can help: something turned up after it was taken out."""
        return any(one.left or one.log_left for one in self.done.places.values() if not one.problem)

    def _commits(self, table: TablePlan) -> None:
        ids = {order.id for order in self._wanted.orders}
        for place in all_places(table, self._store):
            done = self.done.places.get(place.name)
            if done is None:
                continue
            done.commits = []
            for commit in RecentLog(self._store, place.uri, place.ledger).backwards():
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
