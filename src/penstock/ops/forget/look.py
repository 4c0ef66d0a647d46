"""What a forget would do, in numbers: every file of every table that could hold somebody is read, none is changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.forget.erase import sought
from penstock.engine.forget.list import SuppressionList
from penstock.engine.forget.matching import Wanted
from penstock.engine.forget.order import Order, order_of
from penstock.engine.store import Store
from penstock.errors import Terminal
from penstock.ops.forget.asked import Name
from penstock.ops.forget.files import current, remove_files
from penstock.ops.forget.readers import running, sources_of
from penstock.ops.forget.turns import to_oneself
from penstock.ops.vacuum.guard import time_text
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class PlaceLooked:
    name: str
    files: int
    """Of the newest version."""
    rows: int
    marked: int
    held: int
    """Files that would be written anew."""
    beside: int
    """Files of older versions, change feeds and of nobody that would be deleted."""
    bytes: int


@dataclass(frozen=True)
class Outlook:
    places: tuple[PlaceLooked, ...]
    readers: tuple[str, ...]
    """Tables that this command would run itself, up to what is there."""
    waits: tuple[str, ...]
    """Tables that another process runs: it would be waited for them."""
    anew: tuple[str, ...]
    """Tables that would be made anew."""


def known_key(listed: SuppressionList) -> bytes:
    """To look only: before the first order there is none, and any will do."""
    try:
        return listed.key
    except Terminal:
        return b"nobody was forgotten yet"


def provisional(listed: SuppressionList, names: list[Name]) -> Wanted:
    """Orders that are written nowhere."""
    key = known_key(listed)
    return Wanted(key, tuple(order_of(key, name.subject, name.value, 0) for name in names))


def look(spark: SparkSession, plan: Plan, store: Store, wanted: Wanted) -> Outlook:
    found = []
    for table in plan.tables:
        if not sought(table, store, wanted):
            continue
        with to_oneself(spark, plan, table) as work:
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
    return Outlook(
        tuple(found),
        tuple(table.name for table in below if not running(plan, table)),
        tuple(table.name for table in below if running(plan, table)),
        tuple(table.name for table in below if _made_anew(table)),
    )


def _below(plan: Plan, changed: set[str]) -> list[TablePlan]:
    found: dict[str, TablePlan] = {}
    for table in plan.tables:
        if any(source.table in changed or source.table in found for source in sources_of(table)):
            found[table.name] = table
    return list(found.values())


def _made_anew(table: TablePlan) -> bool:
    if table.stream is not None:
        return True
    return table.aggregate is not None and table.aggregate.emit == "final"


def document(outlook: Outlook) -> dict[str, Any]:
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
        "made_anew": list(outlook.anew),
    }


def order_document(order: Order) -> dict[str, Any]:
    return {
        "id": order.id,
        "subject": order.subject,
        "hash": order.hash,
        "time": time_text(order.time_ms).replace(" ", "T") + "Z",
    }
