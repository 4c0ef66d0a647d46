"""Plans an erasure as steps, without a JVM; and previews it in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.erasure.files import remove_files, search_current
from penstock.erasure.readers import exclusive_table, running, sources_of
from penstock.erasure.rewrite import places_to_search
from penstock.errors import Terminal
from penstock.ledger.delta_log import DeltaLog
from penstock.spec.quantity import counted
from penstock.tables.subject_columns import SubjectOrders
from penstock.tables.suppression_list import SuppressionList, order_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.request import Name
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# The steps. Those over tables handle one table after the other; a failure in one does not stop the others.


@dataclass(frozen=True)
class AddToSuppressionList:
    """From then on, rows with these names are left out of whatever is read."""

    names: tuple[Name, ...]

    def describe(self) -> str:
        return f"add {counted(len(self.names), 'name')} to the suppression list, by hash"


@dataclass(frozen=True)
class EraseRows:
    """Erases rows of tables that declare such a subject."""

    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"erase rows, in one commit per table: {_table_names(self.tables)}"


@dataclass(frozen=True)
class CatchUpReaders:
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"bring their readers past those commits: {_table_names(self.tables)}"


@dataclass(frozen=True)
class RemoveOldFiles:
    """Removes files of older versions that hold a name; files that a reader still needs stay until it is past them."""

    declared: tuple[TablePlan, ...]
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"delete older files with a name in them: {_table_names(self.tables)}"


@dataclass(frozen=True)
class CleanLogs:
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"take names out of the table logs, Spark's logs and states: {_table_names(self.tables)}"


@dataclass(frozen=True)
class ProveErasure:
    declared: tuple[TablePlan, ...]
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return "prove it: read every table and search every file of the lake again"


ErasureStep = AddToSuppressionList | EraseRows | CatchUpReaders | RemoveOldFiles | CleanLogs | ProveErasure


@dataclass(frozen=True)
class ErasurePlan:
    names: tuple[Name, ...]
    not_names: tuple[str, ...]
    """Places that the caller declared to hold no names."""
    tables: tuple[TablePlan, ...]
    """Those that declare such a subject."""
    created: tuple[TablePlan, ...]
    """All tables that exist: each is searched."""
    readers: tuple[TablePlan, ...]

    @property
    def steps(self) -> tuple[ErasureStep, ...]:
        """In order. All but the first are repeated while new names turn up."""
        return (
            AddToSuppressionList(self.names),
            EraseRows(self.tables),
            CatchUpReaders(self.readers),
            RemoveOldFiles(self.tables, self.created),
            CleanLogs(self.created),
            ProveErasure(self.tables, self.created),
        )


def plan_forget(plan: Plan, store: Store, names: Sequence[Name], not_names: Sequence[str] = ()) -> ErasurePlan:
    matcher = _provisional_match(plan, store, names)
    tables = tuple(table for table in plan.tables if places_to_search(table, store, matcher))
    created = tuple(table for table in plan.tables if DeltaLog(store, table.uri, table.name).versions())
    readers = tuple(table for table in _downstream(plan, {table.name for table in tables}) if table in created)
    return ErasurePlan(tuple(names), tuple(not_names), tables, created, readers)


def _table_names(tables: Sequence[TablePlan]) -> str:
    return ", ".join(table.name for table in tables) or "none"


# The preview in numbers: every file of every table that could hold a subject is read, none is changed.


@dataclass(frozen=True)
class PlacePreview:
    name: str
    files: int
    """Files of the newest version."""
    rows: int
    marked: int
    files_to_rewrite: int
    """Files that would be rewritten."""
    files_to_delete: int
    """Files of older versions, of change feeds and of no version that would be deleted."""
    bytes: int


@dataclass(frozen=True)
class ForgetPreview:
    places: tuple[PlacePreview, ...]
    readers: tuple[str, ...]
    """Tables that this command would run itself, up to the current end of their sources."""
    waits: tuple[str, ...]
    """Tables that another process runs: the command would wait for them."""
    starts_over: tuple[str, ...]
    """Tables that would be rebuilt from their start."""


def _provisional_match(plan: Plan, store: Store, names: Sequence[Name]) -> SubjectOrders:
    """Orders for searching only, which are not stored. Before the first order there is no key, so any key will do."""
    assert plan.forget is not None
    try:
        key = SuppressionList(plan.forget, store).key
    except Terminal:
        key = b"nobody was forgotten yet"
    return SubjectOrders(key, tuple(order_of(key, name.subject, name.value, 0) for name in names))


def preview_forget(spark: SparkSession, plan: Plan, store: Store, planned: ErasurePlan) -> ForgetPreview:
    matcher = _provisional_match(plan, store, planned.names)
    places = []
    for table in planned.tables:
        with exclusive_table(spark, plan, table) as work:
            unlisted = {place.place: place for place in remove_files(plan, work, matcher, delete=False)}
            for name, (files, subject_rows) in search_current(spark, work, matcher).items():
                place_unlisted = unlisted[name]
                places.append(
                    PlacePreview(
                        name,
                        files,
                        subject_rows.rows,
                        subject_rows.marked,
                        len(subject_rows.files),
                        len(place_unlisted.removed) + max(place_unlisted.needed_by.values(), default=0),
                        place_unlisted.bytes,
                    )
                )
    changed = {place.name for place in places if place.files_to_rewrite}
    readers = _downstream(plan, changed)
    return ForgetPreview(
        tuple(places),
        tuple(table.name for table in readers if not running(plan, table)),
        tuple(table.name for table in readers if running(plan, table)),
        tuple(table.name for table in readers if _starts_over(table)),
    )


def _downstream(plan: Plan, changed: set[str]) -> list[TablePlan]:
    downstream: dict[str, TablePlan] = {}
    for table in plan.tables:
        if any(source.table in changed or source.table in downstream for source in sources_of(table)):
            downstream[table.name] = table
    return list(downstream.values())


def _starts_over(table: TablePlan) -> bool:
    return table.stream is not None or (table.aggregate is not None and table.aggregate.emit == "final")


def document(preview: ForgetPreview) -> dict[str, Any]:
    return {
        "tables": [
            {
                "table": place.name,
                "files": place.files,
                "rows": place.rows,
                "marked_rows": place.marked,
                "files_to_rewrite": place.files_to_rewrite,
                "files_to_delete": place.files_to_delete,
                "bytes_to_delete": place.bytes,
            }
            for place in preview.places
        ],
        "runs": list(preview.readers),
        "waits_for": list(preview.waits),
        "made_anew": list(preview.starts_over),
    }
