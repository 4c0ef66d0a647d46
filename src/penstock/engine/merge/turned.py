"""What a merge makes of its changes: which rows of the table go, which come, and what the change feed says of it.

A frame with a row per change, or per row of the table that changes with it:
    FILE, PLACE     where the row lies that goes; NULL if none does
    KIND            what became of the change, one of KINDS; NULL for a row that no change of the batch is about
    ROWS            the rows that come, each with its `_change_type`: NULL is a row of the table, TOMBSTONE one of the
                    table beside it, others are of its feed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.merge.exchange import FILE, PLACE
from penstock.engine.stages.decode import literal

KIND, ROWS, TIE, TYPE = "__kind", "__rows", "__tie", "_change_type"
TOMBSTONE = "tombstone"
INSERTED, UPDATED, DELETED, SUPERSEDED = "inserted", "updated", "deleted", "superseded"
KINDS = (INSERTED, UPDATED, DELETED, SUPERSEDED)
TIES = "ties"
COUNTS = (*KINDS, TIES)


def row(columns: Sequence[str], other: Mapping[str, str] = MappingProxyType({})) -> str:
    """The row of the table as a struct; with `other` expressions for some of its columns."""
    parts = ", ".join(f"{literal(name)}, {other.get(name, quote(name))}" for name in columns)
    return f"named_struct({parts})"


def comes(kind: str | None, row: str) -> str:
    """An element of ROWS."""
    change = "CAST(NULL AS STRING)" if kind is None else literal(kind)
    return f"named_struct('change', {change}, 'row', {row})"


def by_file(turned: DataFrame) -> DataFrame:
    """For each file the places of the rows that go, and how many changes of each kind; without a file the rest."""
    return turned.groupBy(FILE).agg(
        F.collect_list(PLACE).alias("places"),
        *(F.count_if(F.expr(f"{KIND} = '{kind}'")).alias(kind) for kind in KINDS),
        F.count_if(F.expr(TIE)).alias(TIES),
    )


def coming(turned: DataFrame, *, feed: bool) -> DataFrame:
    """The rows to write. Those of the feed only if the table keeps one, and rows go: what only comes, Delta reads from
    the files that were added."""
    rows = turned.selectExpr(f"explode({ROWS}) AS one")
    if not feed:
        return rows.where("one.change IS NULL").selectExpr("one.row.*")
    return rows.where(f"NOT (one.change <=> '{TOMBSTONE}')").selectExpr("one.row.*", f"one.change AS {TYPE}")


def tombstones(turned: DataFrame) -> DataFrame:
    """The rows for the table of tombstones."""
    return turned.selectExpr(f"explode({ROWS}) AS one").where(f"one.change = '{TOMBSTONE}'").selectExpr("one.row.*")
