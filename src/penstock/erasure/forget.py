"""`forget`, step by step. Nothing is remembered between the steps: each finds what is left to do."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.erasure.files import PATIENCE, Searched, current, remove_files, remove_named, search
from penstock.erasure.forget_plan import CatchUpReaders, CleanLogs, EraseRows, ProveErasure, RemoveOldFiles
from penstock.erasure.log_files import look_into_log, remove_attempts, scrub_log, sought_in
from penstock.erasure.readers import bring_on, exclusive_table, step_over
from penstock.erasure.request import in_definition, outdated, outside, undeclared
from penstock.erasure.rewrite import DELETED, REDACTED, erase, sought
from penstock.erasure.search import OWN, LakeSearch, Left
from penstock.erasure.text_search import NameSearch
from penstock.errors import Transient
from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.maintenance.retention import time_text
from penstock.maintenance.tables import all_places
from penstock.operations.causes import explain
from penstock.plan.quarantine import MOVED_ASIDE
from penstock.spark.session import logs_folder
from penstock.spec.quantity import counted
from penstock.storage.locks import acquire_commit
from penstock.tables.subject_columns import SubjectMatch
from penstock.tables.suppression_list import SuppressionList

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.forget_plan import ErasurePlan, ErasureStep
    from penstock.erasure.readers import Run, Waited
    from penstock.erasure.search import KnownTable
    from penstock.errors import PenstockError
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.subjects import SubjectColumnPlan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession
    from penstock.tables.suppression_list import Order

# What a forget has found and done: the content of its certificate. Numbers, hashes and places; no names.


@dataclass(frozen=True)
class ErasureCommit:
    version: int
    time_ms: int
    rows: int
    redacted: bool


@dataclass
class PlaceDone:
    """A table, or a quarantine."""

    name: str
    where: tuple[str, ...] = ()
    """Where it holds names: customer_id, $.customer_id of value."""
    rows: int = 0
    marked: int = 0
    files: int = 0
    """Written anew."""
    redacted: bool = False
    commits: list[ErasureCommit] = field(default_factory=list)
    """All of this order, those of an earlier run as well: from the table's log."""
    removed_files: int = 0
    removed_bytes: int = 0
    log_rewritten: int = 0
    log_removed: int = 0
    needed: dict[str, int] = field(default_factory=dict)
    """How many files that hold somebody each reader still needs."""
    problem: str | None = None
    decoded: int = 0
    """Files that the proof has decoded."""
    left: int = 0
    """Rows that it found."""
    log_files: int = 0
    log_left: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.left or self.log_left or self.problem or self.needed)


@dataclass
class ErasureResult:
    id: str
    orders: tuple[Order, ...]
    began_ms: int
    places: dict[str, PlaceDone] = field(default_factory=dict)
    readers: list[Waited] = field(default_factory=list)
    elsewhere: Searched = field(default_factory=Searched)
    outside: list[str] = field(default_factory=list)
    undeclared: tuple[str, ...] = ()
    """Tables made of one that declares, and that declare nothing: no row was taken out."""
    outdated: dict[str, str] = field(default_factory=dict)
    """Tables whose runner may not know of the subject."""
    not_names: tuple[str, ...] = ()
    """Places of which whoever gave the command says that they hold no names."""
    search: Left = field(default_factory=Left)
    """What the search of every file has found at the end."""
    ended_ms: int = 0

    @property
    def problems(self) -> list[str]:
        found = [f"{one.name}: {one.problem}" for one in self.places.values() if one.problem]
        found += [f"{one.name}: {one.left:,} rows are still there" for one in self.places.values() if one.left]
        found += [
            f"{one.name}: {reader} still needs {counted(files, 'file')} of it, and somebody is in there"
            for one in self.places.values()
            for reader, files in one.needed.items()
        ]
        found += [
            f"{one.name}: its log still has a name: {', '.join(one.log_left[:3])}"
            for one in self.places.values()
            if one.log_left
        ]
        found += [f"{one.table} {one.problem}" for one in self.readers if one.problem]
        found += [f"{table}: {why}" for table, why in self.outdated.items()]
        found += [f"{path} still has a name" for path in self.elsewhere.held]
        for (table, place), files in self.search.names.items():
            if not (table in self.places and self.places[table].log_left and files[0].startswith("_delta_log/")):
                found.append(
                    f"{table}: {place} still has the name, in {_files(files)}. {self._what_to_do(table, files)}"
                )
        found += [f"{path}: it cannot be searched, so nothing is known of it" for path in self.search.unreadable]
        return found

    def _what_to_do(self, table: str, files: list[str]) -> str:
        if table not in self.places:
            return "It belongs to no table of the project: delete it, or take the name out of it"
        if table.endswith(".files"):
            return (
                "A source file is called so. Its rows are left out, its name is not: rename such files at their source"
            )
        if all(one.startswith("_delta_log/") for one in files):
            return "Run the command again"
        if MOVED_ASIDE in table:
            return "It is of an earlier table of that name, and nothing reads it: delete its folder"
        return (
            "Rows of others hold it there. If it is a name, declare the place under `subjects` of that table and run "
            "the command again; if it is not, say so with --not-a-name"
        )

    @property
    def proven(self) -> bool:
        return not self.problems


def _files(files: list[str]) -> str:
    return files[0] if len(files) == 1 else f"{counted(len(files), 'file')}, {files[0]} among them"


def order_document(order: Order) -> dict[str, Any]:
    return {
        "id": order.id,
        "subject": order.subject,
        "hash": order.hash,
        "time": time_text(order.time_ms).replace(" ", "T") + "Z",
    }


# Nothing is remembered between the steps: each finds what is left to do, so that one that was killed is simply given
# again, and one that was done finds nothing.
#
# The order is on the suppression list first: whatever is read from then on leaves the subject out. So rows are erased
# from the top down; readers move past that; then the files; then the logs; the last look at everything is the proof.


ROUNDS = 3
"""Looks at everything, if rows or files turn up that were not there before."""
TRIES = 3


def run_forget(
    spark: SparkSession, plan: Plan, store: Store, planned: ErasurePlan, *, run: Run, tell: Tell, patience: float
) -> ErasureResult:
    """In a session of `beside_a_runner`. `run` runs a table up to what is there; `patience` is how many seconds to wait
    for tables of other processes."""
    assert plan.forget is not None
    tell("", "names are added to the suppression list")
    listed = SuppressionList(plan.forget, store)
    orders = tuple(listed.add(name.subject, name.value) for name in planned.names)
    return Erasure(spark, plan, store, planned, SubjectMatch(listed.key, orders), run, tell, patience).run_steps()


class Erasure:
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        store: Store,
        planned: ErasurePlan,
        wanted: SubjectMatch,
        run: Run,
        tell: Tell,
        patience: float,
    ) -> None:
        self._spark, self._plan, self._store = spark, plan, store
        self._planned, self._wanted, self._run, self._tell, self._patience = planned, wanted, run, tell, patience
        needles = [NameSearch(name.subject, name.value) for name in planned.names]
        self._search = LakeSearch(spark, plan, store, needles, planned.not_names)
        self.done = ErasureResult(uuid.uuid4().hex[:12], wanted.orders, _now(), not_names=planned.not_names)
        for table in planned.tables:
            for place, subjects in sought(table, store, wanted).items():
                where = tuple(_said(one) for subject in subjects for one in subjects[subject])
                self.done.places[place.name] = PlaceDone(place.name, tuple(dict.fromkeys(where)))
        for known in self._search.known:
            self.done.places.setdefault(known.name, PlaceDone(known.name))

    def run_steps(self) -> ErasureResult:
        """All but the first, which is done before."""
        for turn in range(ROUNDS):
            for place in self.done.places.values():
                place.problem = None
            for step in self._planned.steps[1:]:
                self._run_step(step)
            if self.done.proven or turn == ROUNDS - 1 or not self._came_back():
                break
        self.done.outside = outside(self._plan, self._wanted.orders)
        self.done.outside += in_definition(self._plan, self._search.needles)
        self.done.outdated = outdated(self._plan, self._planned.tables)
        self.done.undeclared = undeclared(self._plan, self._wanted.orders)
        self._each("", self._commits, self._planned.created)
        self.done.ended_ms = _now()
        return self.done

    def _run_step(self, step: ErasureStep) -> None:
        match step:
            case EraseRows(tables):
                self._each("rows are erased", self._erase, tables)
            case CatchUpReaders():
                self._readers()
            case RemoveOldFiles(declared, tables):
                self._each("files are read", self._files, declared)
                self._each("files are searched", self._named_files, tables)
                if any(one.needed for one in self.done.places.values()):
                    self._step_over()
                    self._each("files are read", self._files_left, declared)
                    self._each("files are searched", self._named_files, tables)
            case CleanLogs(tables):
                self._each("the log is searched", self._log, tables)
                self._elsewhere()
            case ProveErasure(declared, tables):
                self._each("the proof: every file is read again", self._prove, declared)
                self._each("the proof: the log is read again", self._prove_log, tables)
                self._prove_everything()

    def _each(self, what: str, work: Callable[[TablePlan], None], tables: Sequence[TablePlan]) -> None:
        """Each table alone: what fails for one leaves the others."""
        for table in tables:
            if what:
                self._tell(table.name, what)
            for tries in range(1, TRIES + 1):
                try:
                    work(table)
                    break
                except Exception as error:
                    cause = self._explain(error, table)
                    if isinstance(cause, Transient) and tries < TRIES:  # on an object store a batch came in between
                        continue
                    self.done.places[table.name].problem = cause.message
                    break

    def _explain(self, error: Exception, table: TablePlan) -> PenstockError:
        return explain(error, table.name, str(logs_folder(self._plan)))

    def _erase(self, table: TablePlan) -> None:
        note = f"forget {', '.join(order.id for order in self._wanted.orders[:3])}"
        note += f" and {len(self._wanted.orders) - 3} more" if len(self._wanted.orders) > 3 else ""
        with exclusive_table(self._spark, self._plan, table) as work:
            for one in erase(work, self._wanted, note):
                done = self.done.places[one.place]
                done.rows += one.held.rows
                done.marked += one.held.marked
                done.files += len(one.held.files)
                done.redacted = one.redacted

    def _readers(self) -> None:
        self.done.readers = bring_on(self._spark, self._plan, self._store, self._run, self._tell, self._patience)

    def _files(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
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
                self._tell(table.name, "continues without its last batch")
                try:
                    step_over(self._spark, self._plan, table, self._store)
                except Exception as error:
                    problem = self._explain(error, table).message
                    self._tell(table.name, problem)

    def _named_files(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            for known in self._known(table):
                one = remove_named(self._plan, work, known, self._search)
                done = self.done.places[known.name]
                done.removed_files += len(one.removed)
                done.removed_bytes += one.bytes
                for reader in one.needed.keys() | done.needed.keys():
                    done.needed[reader] = max(one.needed.get(reader, 0), done.needed.get(reader, 0))
                if not done.where:
                    done.needed = dict(one.needed)

    def _known(self, table: TablePlan) -> Iterator[KnownTable]:
        """The table and what belongs to it, as far as it is made."""
        names = {place.name for place in all_places(table, self._store)}
        for known in self._search.known:
            if known.name in names and DeltaLog(self._store, known.uri, known.name).versions():
                yield known

    def _log(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            if self._plan.local:
                self._attempts(work)
            for known in self._known(table):
                within = sought_in(self._spark, self._search, work.store, known)
                looked = scrub_log(self._spark, self._search, work.store, known, within)
                self.done.places[known.name].log_rewritten += looked.rewritten
                self.done.places[known.name].log_removed += looked.removed

    def _attempts(self, work: TableSession) -> None:
        acquire_commit(work.lock, work.table.name, patience=PATIENCE)
        try:
            for known in self._known(work.table):
                if known.kind != "files":  # which is written to without the lock
                    remove_attempts(work.store, known, alone=True)
        finally:
            work.lock.release()

    def _elsewhere(self) -> None:
        self._tell("", "logs and states are searched")
        folders = [place.uri for table in self._plan.tables for place in all_places(table, self._store)]
        self.done.elsewhere = search(self._plan, self._store, self._search.needles, folders, mask=True)

    def _prove(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            beside = {one.place: one for one in remove_files(self._plan, work, self._wanted, delete=False)}
            for name, (files, held) in current(self._spark, work, self._wanted).items():
                done = self.done.places[name]
                done.decoded = files + beside[name].files
                done.left = held.rows + held.marked + beside[name].held

    def _prove_log(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            for known in self._known(table):
                within = sought_in(self._spark, self._search, work.store, known)
                looked = look_into_log(self._search, work.store, known, within)
                self.done.places[known.name].log_files = looked.files
                self.done.places[known.name].log_left = looked.held

    def _prove_everything(self) -> None:
        self._tell("", "the proof: every file of the lake is searched")
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
                    done.commits.insert(
                        0, ErasureCommit(commit.version, commit.timestamp_ms, sum(counts), bool(counts[1]))
                    )


def _said(place: SubjectColumnPlan) -> str:
    return place.column if place.path is None else f"{place.path} of {place.column}"


def _now() -> int:
    return time.time_ns() // 1_000_000
