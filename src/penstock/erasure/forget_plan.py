"""What a forget does, as steps, without a JVM; and its preview in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.erasure.files import current, remove_files
from penstock.erasure.readers import exclusive_table, running, sources_of
from penstock.erasure.rewrite import sought
from penstock.errors import Terminal
from penstock.ledger.delta_log import DeltaLog
from penstock.spec.quantity import counted
from penstock.tables.subject_columns import SubjectMatch
from penstock.tables.suppression_list import SuppressionList, order_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.request import Name
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# The steps. Those over tables do one table after the other, and what fails for one leaves the others.


@dataclass(frozen=True)
class AddToSuppressionList:
    """From then on whatever is read leaves these names out."""

    names: tuple[Name, ...]

    def describe(self) -> str:
        return f"add {counted(len(self.names), 'name')} to the suppression list, by hash"


@dataclass(frozen=True)
class EraseRows:
    """Of tables that declare such a subject."""

    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"erase rows, in one commit per table: {_names(self.tables)}"


@dataclass(frozen=True)
class CatchUpReaders:
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"bring their readers past those commits: {_names(self.tables)}"


@dataclass(frozen=True)
class RemoveOldFiles:
    """Files of older versions that hold a name; those that a reader still needs stay until it is past them."""

    declared: tuple[TablePlan, ...]
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"delete older files with a name in them: {_names(self.tables)}"


@dataclass(frozen=True)
class CleanLogs:
    tables: tuple[TablePlan, ...]

    def describe(self) -> str:
        return f"take names out of the table logs, Spark's logs and states: {_names(self.tables)}"


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
    """Places of which the caller says that they hold no names."""
    tables: tuple[TablePlan, ...]
    """Those that declare such a subject."""
    created: tuple[TablePlan, ...]
    """All that exist: each is searched."""
    readers: tuple[TablePlan, ...]

    @property
    def steps(self) -> tuple[ErasureStep, ...]:
        """In order. All but the first are repeated while something turns up that was not there before."""
        return (
            AddToSuppressionList(self.names),
            EraseRows(self.tables),
            CatchUpReaders(self.readers),
            RemoveOldFiles(self.tables, self.created),
            CleanLogs(self.created),
            ProveErasure(self.tables, self.created),
        )


def plan_forget(plan: Plan, store: Store, names: Sequence[Name], not_names: Sequence[str] = ()) -> ErasurePlan:
    wanted = _provisional(plan, store, names)
    tables = tuple(table for table in plan.tables if sought(table, store, wanted))
    created = tuple(table for table in plan.tables if DeltaLog(store, table.uri, table.name).versions())
    readers = tuple(table for table in _below(plan, {table.name for table in tables}) if table in created)
    return ErasurePlan(tuple(names), tuple(not_names), tables, created, readers)


def _names(tables: Sequence[TablePlan]) -> str:
    return ", ".join(table.name for table in tables) or "none"


# What a forget would do, in numbers: every file of every table that could hold a subject is read, none is changed.


@dataclass(frozen=True)
class PlaceLooked:
    name: str
    files: int
    """Of the newest version."""
    rows: int
    marked: int
    held: int
    """Files that would be rewritten."""
    beside: int
    """Files of older versions, change feeds and of nobody that would be deleted."""
    bytes: int


@dataclass(frozen=True)
class ForgetPreview:
    places: tuple[PlaceLooked, ...]
    readers: tuple[str, ...]
    """Tables that this command would run itself, up to what is there."""
    waits: tuple[str, ...]
    """Tables that another process runs: it would be waited for them."""
    starts_over: tuple[str, ...]
    """Tables that would be rebuilt from their start."""


def _provisional(plan: Plan, store: Store, names: Sequence[Name]) -> SubjectMatch:
    """Orders that are written nowhere, to look only: before the first order there is no key, and any will do."""
    assert plan.forget is not None
    try:
        key = SuppressionList(plan.forget, store).key
    except Terminal:
        key = b"nobody was forgotten yet"
    return SubjectMatch(key, tuple(order_of(key, name.subject, name.value, 0) for name in names))


def preview_forget(spark: SparkSession, plan: Plan, store: Store, planned: ErasurePlan) -> ForgetPreview:
    wanted = _provisional(plan, store, planned.names)
    found = []
    for table in planned.tables:
        with exclusive_table(spark, plan, table) as work:
            beside = {one.place: one for one in remove_files(plan, work, wanted, delete=False)}
            for name, (files, held) in current(spark, work, wanted).items():
                other = beside[name]
                found.append(
                    PlaceLooked(
                        name,
                        files,
                        held.rows,
                        held.marked,
                        len(held.files),
                        len(other.removed) + max(other.needed.values(), default=0),
                        other.bytes,
                    )
                )
    changed = {one.name for one in found if one.held}
    below = _below(plan, changed)
    return ForgetPreview(
        tuple(found),
        tuple(table.name for table in below if not running(plan, table)),
        tuple(table.name for table in below if running(plan, table)),
        tuple(table.name for table in below if _starts_over(table)),
    )


def _below(plan: Plan, changed: set[str]) -> list[TablePlan]:
    found: dict[str, TablePlan] = {}
    for table in plan.tables:
        if any(source.table in changed or source.table in found for source in sources_of(table)):
            found[table.name] = table
    return list(found.values())


def _starts_over(table: TablePlan) -> bool:
    if table.stream is not None:
        return True
    return table.aggregate is not None and table.aggregate.emit == "final"


def document(outlook: ForgetPreview) -> dict[str, Any]:
    return {
        "tables": [
            {
                "table": one.name,
                "files": one.files,
                "rows": one.rows,
                "marked_rows": one.marked,
                "files_to_rewrite": one.held,
                "files_to_delete": one.beside,
                "bytes_to_delete": one.bytes,
            }
            for one in outlook.places
        ],
        "runs": list(outlook.readers),
        "waits_for": list(outlook.waits),
        "made_anew": list(outlook.starts_over),
    }
