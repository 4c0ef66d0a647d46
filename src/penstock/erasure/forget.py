"""Runs an erasure step by step. No state is kept between the steps: each finds what is left to do."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.erasure.files import OutputSearch, clean_output, remove_files, remove_files_with_names, search_current
from penstock.erasure.forget_plan import CatchUpReaders, CleanLogs, EraseRows, ProveErasure, RemoveOldFiles
from penstock.erasure.log_files import clean_log, log_search, remove_attempts, search_log
from penstock.erasure.readers import catch_up_readers, exclusive_table, skip_last_batch
from penstock.erasure.request import in_definition, list_unreachable, outdated, undeclared
from penstock.erasure.rewrite import DELETED, REDACTED, erase, paused_table, places_to_search
from penstock.erasure.search import OWN, LakeSearch, SearchFindings
from penstock.erasure.text_search import NameSearch
from penstock.errors import Transient
from penstock.ledger.delta_log import DeltaLog, RecentLog
from penstock.maintenance.tables import all_maintained_tables
from penstock.operations.causes import explain
from penstock.plan.quarantine import MOVED_ASIDE
from penstock.spark.session import logs_folder
from penstock.spec.quantity import counted, iso_time, now_ms
from penstock.tables.subject_columns import SubjectOrders
from penstock.tables.suppression_list import SuppressionList

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.forget_plan import ErasurePlan, ErasureStep
    from penstock.erasure.readers import ReaderProgress, Run
    from penstock.erasure.search import KnownTable
    from penstock.errors import PenstockError
    from penstock.operations.steps import Tell
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.subjects import SubjectColumnPlan
    from penstock.storage.stores import Store
    from penstock.tables.suppression_list import ForgetOrder

# The result of an erasure, which goes into its certificate: numbers, hashes and places; no names.


@dataclass(frozen=True)
class ErasureCommit:
    version: int
    time_ms: int
    rows: int
    redacted: bool


@dataclass
class ErasedPlace:
    """A table, or a quarantine."""

    name: str
    columns: tuple[str, ...] = ()
    """Where it holds names, such as `customer_id` or `$.customer_id of value`."""
    rows: int = 0
    rows_marked_deleted: int = 0
    files: int = 0
    """Files that were rewritten."""
    redacted: bool = False
    commits: list[ErasureCommit] = field(default_factory=list)
    """All commits of these orders, including those of an earlier run: read from the table's log."""
    removed_files: int = 0
    removed_bytes: int = 0
    log_rewritten: int = 0
    log_removed: int = 0
    needed_by: dict[str, int] = field(default_factory=dict)
    """By reader: the number of files with the subject that it still needs."""
    problem: str | None = None
    decoded: int = 0
    """Files that the proof decoded."""
    rows_left: int = 0
    """Rows that the proof found."""
    log_files: int = 0
    log_left: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.rows_left or self.log_left or self.problem or self.needed_by)


@dataclass
class ErasureResult:
    id: str
    orders: tuple[ForgetOrder, ...]
    began_ms: int
    places: dict[str, ErasedPlace] = field(default_factory=dict)
    readers: list[ReaderProgress] = field(default_factory=list)
    output_search: OutputSearch = field(default_factory=OutputSearch)
    outside: list[str] = field(default_factory=list)
    undeclared: tuple[str, ...] = ()
    """Tables that read a table with declared subjects and declare none themselves: no row was erased from them."""
    outdated: dict[str, str] = field(default_factory=dict)
    """Tables whose runner may not know of the subject."""
    not_names: tuple[str, ...] = ()
    """Places that the user declared to hold no names."""
    search: SearchFindings = field(default_factory=SearchFindings)
    """What the final search of every file found."""
    ended_ms: int = 0

    @property
    def problems(self) -> list[str]:
        problems = [f"{place.name}: {place.problem}" for place in self.places.values() if place.problem]
        problems += [
            f"{place.name}: {place.rows_left:,} rows are still there"
            for place in self.places.values()
            if place.rows_left
        ]
        problems += [
            f"{place.name}: {reader} still needs {counted(files, 'file')} of it, and they hold a forgotten subject"
            for place in self.places.values()
            for reader, files in place.needed_by.items()
        ]
        problems += [
            f"{place.name}: its log still has a name: {', '.join(place.log_left[:3])}"
            for place in self.places.values()
            if place.log_left
        ]
        problems += [f"{reader.table} {reader.problem}" for reader in self.readers if reader.problem]
        problems += [f"{table}: {reason}" for table, reason in self.outdated.items()]
        for (table, place), files in self.search.names.items():
            if not (table in self.places and self.places[table].log_left and files[0].startswith("_delta_log/")):
                problems.append(
                    f"{table}: {place} still has the name, in {_files(files)}. {self._advice(table, files)}"
                )
        problems += [f"{path}: it cannot be searched, so nothing is known of it" for path in self.search.unreadable]
        return problems

    def _advice(self, table: str, files: list[str]) -> str:
        if table not in self.places:
            return "It belongs to no table of the project: delete it, or take the name out of it"
        if table.endswith(".files"):
            return (
                "A source file is called so. Its rows are left out, its name is not: rename such files at their source"
            )
        if all(file.startswith("_delta_log/") for file in files):
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


def order_document(order: ForgetOrder) -> dict[str, Any]:
    return {"id": order.id, "subject": order.subject, "hash": order.hash, "time": iso_time(order.time_ms)}


# A killed command is simply run again: a finished step finds nothing to do.
#
# The order goes on the suppression list first: from then on, whatever is read leaves the subject out. Then rows are
# erased from the top down, readers move past that, old files go, logs are cleaned; a last search of everything proves
# it.


ROUNDS = 3
"""How often all steps run at most, if rows or files turn up that were not there before."""
TRIES = 3


def run_forget(
    spark: SparkSession, plan: Plan, store: Store, planned: ErasurePlan, *, run: Run, tell: Tell, patience: float
) -> ErasureResult:
    """Needs the session of a plan `with_commit_waiting`. `run` runs a table up to the current end of its sources;
    `patience` is how many seconds to wait for tables of other processes."""
    assert plan.forget is not None
    tell("", "names are added to the suppression list")
    suppression_list = SuppressionList(plan.forget, store)
    orders = tuple(suppression_list.add(name.subject, name.value) for name in planned.names)
    matcher = SubjectOrders(suppression_list.key, orders)
    return Erasure(spark, plan, store, planned, matcher, run, tell, patience).run_steps()


class Erasure:
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        store: Store,
        planned: ErasurePlan,
        matcher: SubjectOrders,
        run: Run,
        tell: Tell,
        patience: float,
    ) -> None:
        self._spark, self._plan, self._store = spark, plan, store
        self._planned, self._matcher, self._run, self._tell, self._patience = planned, matcher, run, tell, patience
        needles = [NameSearch(name.subject, name.value) for name in planned.names]
        self._search = LakeSearch(spark, plan, store, needles, planned.not_names)
        self.result = ErasureResult(uuid.uuid4().hex[:12], matcher.orders, now_ms(), not_names=planned.not_names)
        for table in planned.tables:
            for place, subjects in places_to_search(table, store, matcher).items():
                where = tuple(_describe_column(column) for subject in subjects for column in subjects[subject])
                self.result.places[place.name] = ErasedPlace(place.name, tuple(dict.fromkeys(where)))
        for known_table in self._search.tables:
            self.result.places.setdefault(known_table.name, ErasedPlace(known_table.name))

    def run_steps(self) -> ErasureResult:
        """Runs all steps but the first, which `run_forget` has done before."""
        for round_number in range(ROUNDS):
            for place in self.result.places.values():
                place.problem = None
            for step in self._planned.steps[1:]:
                self._run_step(step)
            if self.result.proven or round_number == ROUNDS - 1 or not self._can_retry():
                break
        self.result.outside = list_unreachable(self._plan, self._matcher.orders)
        self.result.outside += in_definition(self._plan, self._search.name_searches)
        self.result.outdated = outdated(self._plan, self._planned.tables)
        self.result.undeclared = undeclared(self._plan, self._matcher.orders)
        self._for_each_table("", self._collect_commits, self._planned.created)
        self.result.ended_ms = now_ms()
        return self.result

    def _run_step(self, step: ErasureStep) -> None:
        match step:
            case EraseRows(tables):
                self._for_each_table("rows are erased", self._erase, tables)
            case CatchUpReaders():
                self.result.readers = catch_up_readers(
                    self._spark, self._plan, self._store, self._run, self._tell, self._patience
                )
            case RemoveOldFiles(declared, tables):
                self._for_each_table("files are read", self._files, declared)
                self._for_each_table("files are searched", self._remove_named_files, tables)
                if any(place.needed_by for place in self.result.places.values()):
                    self._skip_last_batches()
                    self._for_each_table("files are read", self._remove_needed_files, declared)
                    self._for_each_table("files are searched", self._remove_named_files, tables)
            case CleanLogs(tables):
                self._for_each_table("the log is searched", self._clean_log, tables)
                self._clean_other_files()
            case ProveErasure(declared, tables):
                self._for_each_table("the proof: every file is read again", self._prove, declared)
                self._for_each_table("the proof: the log is read again", self._prove_log, tables)
                self._prove_everything()

    def _for_each_table(self, message: str, action: Callable[[TablePlan], None], tables: Sequence[TablePlan]) -> None:
        """Handles each table separately: a failure in one does not stop the others."""
        for table in tables:
            if message:
                self._tell(table.name, message)
            for attempt in range(1, TRIES + 1):
                try:
                    action(table)
                    break
                except Exception as error:
                    cause = self._explain(error, table)
                    if isinstance(cause, Transient) and attempt < TRIES:  # on an object store a batch can interfere
                        continue
                    self.result.places[table.name].problem = cause.message
                    break

    def _explain(self, error: Exception, table: TablePlan) -> PenstockError:
        return explain(error, table.name, str(logs_folder(self._plan)))

    def _erase(self, table: TablePlan) -> None:
        note = f"forget {', '.join(order.id for order in self._matcher.orders[:3])}"
        note += f" and {len(self._matcher.orders) - 3} more" if len(self._matcher.orders) > 3 else ""
        with exclusive_table(self._spark, self._plan, table) as work:
            for erased in erase(work, self._matcher, note):
                place_done = self.result.places[erased.place]
                place_done.rows += erased.subject_rows.rows
                place_done.rows_marked_deleted += erased.subject_rows.marked
                place_done.files += len(erased.subject_rows.files)
                place_done.redacted = erased.redacted

    def _files(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            for unlisted in remove_files(self._plan, work, self._matcher, delete=True):
                place_done = self.result.places[unlisted.place]
                place_done.removed_files += len(unlisted.removed)
                place_done.removed_bytes += unlisted.bytes
                place_done.needed_by = dict(unlisted.needed_by)

    def _remove_needed_files(self, table: TablePlan) -> None:
        if any(
            self.result.places[place.name].needed_by for place in places_to_search(table, self._store, self._matcher)
        ):
            self._files(table)

    def _skip_last_batches(self) -> None:
        """The readers are past the erased rows except for their last batch, which would run again if their checkpoint
        were lost."""
        names = {reader for place in self.result.places.values() for reader in place.needed_by}
        for table in self._plan.tables:
            if table.name in names:
                self._tell(table.name, "continues without its last batch")
                try:
                    skip_last_batch(self._spark, self._plan, table, self._store)
                except Exception as error:
                    self._tell(table.name, self._explain(error, table).message)

    def _remove_named_files(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            for known_table in self._created_places(table):
                unlisted = remove_files_with_names(self._plan, work, known_table, self._search)
                place_done = self.result.places[known_table.name]
                place_done.removed_files += len(unlisted.removed)
                place_done.removed_bytes += unlisted.bytes
                for reader in unlisted.needed_by.keys() | place_done.needed_by.keys():
                    place_done.needed_by[reader] = max(
                        unlisted.needed_by.get(reader, 0), place_done.needed_by.get(reader, 0)
                    )
                if not place_done.columns:
                    place_done.needed_by = dict(unlisted.needed_by)

    def _created_places(self, table: TablePlan) -> Iterator[KnownTable]:
        """The table and the places that belong to it, as far as they exist."""
        names = {place.name for place in all_maintained_tables(table, self._store)}
        for known_table in self._search.tables:
            if known_table.name in names and DeltaLog(self._store, known_table.uri, known_table.name).versions():
                yield known_table

    def _clean_log(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            if self._plan.local:
                with paused_table(work):
                    for known_table in self._created_places(table):
                        if known_table.kind != "files":  # those are written without the lock
                            remove_attempts(work.store, known_table, alone=True)
            for known_table in self._created_places(table):
                log_names = log_search(self._spark, self._search, work.store, known_table)
                result = clean_log(self._spark, self._search, work.store, known_table, log_names)
                self.result.places[known_table.name].log_rewritten += result.rewritten
                self.result.places[known_table.name].log_removed += result.removed

    def _clean_other_files(self) -> None:
        self._tell("", "logs and states are searched")
        folders = [place.uri for table in self._plan.tables for place in all_maintained_tables(table, self._store)]
        self.result.output_search = clean_output(self._plan, self._store, self._search.name_searches, folders)

    def _prove(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            unlisted = {result.place: result for result in remove_files(self._plan, work, self._matcher, delete=False)}
            for name, (files, subject_rows) in search_current(self._spark, work, self._matcher).items():
                place_done = self.result.places[name]
                place_done.decoded = files + unlisted[name].files
                place_done.rows_left = subject_rows.rows + subject_rows.marked + unlisted[name].subject_rows

    def _prove_log(self, table: TablePlan) -> None:
        with exclusive_table(self._spark, self._plan, table) as work:
            for known_table in self._created_places(table):
                log_names = log_search(self._spark, self._search, work.store, known_table)
                result = search_log(self._search, work.store, known_table, log_names)
                self.result.places[known_table.name].log_files = result.files
                self.result.places[known_table.name].log_left = result.files_with_names

    def _prove_everything(self) -> None:
        self._tell("", "the proof: every file of the lake is searched")
        lake = self._plan.lake
        folders = [*(known.uri for known in self._search.tables), str(Path(self._plan.root) / OWN)]
        self.result.search = self._search.search_all(
            [lake, *(folder for folder in folders if not folder.startswith(f"{lake}/"))]
        )

    def _can_retry(self) -> bool:
        """Whether another round can help: rows or names turned up again after they were removed."""
        return any(place.rows_left or place.log_left for place in self.result.places.values() if not place.problem)

    def _collect_commits(self, table: TablePlan) -> None:
        ids = {order.id for order in self._matcher.orders}
        for place in all_maintained_tables(table, self._store):
            place_done = self.result.places.get(place.name)
            if place_done is None:
                continue
            place_done.commits = []
            for commit in RecentLog(self._store, place.uri, place.ledger).backwards():
                entry = commit.entry
                if entry is None or entry.kind != "forget" or not commit.changes:
                    continue
                if any(order_id in (entry.note or "") for order_id in ids):
                    deleted, redacted = (entry.changed.get(name, 0) for name in (DELETED, REDACTED))
                    rows = deleted + redacted
                    place_done.commits.insert(
                        0, ErasureCommit(commit.version, commit.timestamp_ms, rows, bool(redacted))
                    )


def _describe_column(place: SubjectColumnPlan) -> str:
    return place.column if place.path is None else f"{place.path} of {place.column}"
