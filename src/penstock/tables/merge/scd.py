"""What a merge makes of its changes: one row per key (scd1), or a row per version (scd2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.sources.columns import DELETED, SEQUENCE, SOURCE
from penstock.spark.sql_text import literal, quote
from penstock.tables.merge.changes import CONTENT, CURRENT, FROM, TO
from penstock.tables.merge.row_exchange import FILE, PLACE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a merge makes of its changes: which rows of the table go, which come, and what the change feed says of it.
#
# A frame with a row per change, or per row of the table that changes with it:
#     FILE, PLACE     where the row lies that goes; NULL if none does
#     KIND            what became of the change, one of KINDS; NULL for a row that no change of the batch is about
#     ROWS            the rows that come, each with its `_change_type`: NULL is a row of the table, TOMBSTONE one of the
#                     table beside it, others are of its feed


KIND, ROWS, TIE, TYPE = "__kind", "__rows", "__tie", "_change_type"
TOMBSTONE = "tombstone"
INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS, SUPERSEDED = "inserted", "updated", "deleted", "superseded"
KINDS = (INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS, SUPERSEDED)
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


# One row per key: the newest change decides. `_sequence` and `_source` say which that is.


CONTRADICTED, RANK = "__contradicted", "__rank"
_ORDER = f"{SEQUENCE} DESC, {SOURCE} DESC, {CONTENT} DESC"


def ranked_current(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """RANK 1 is the newest of its key. CONTRADICTED marks a change that lost against another with its sequence."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_ORDER})"
    return changes.selectExpr(
        "*",
        f"row_number() OVER {window} AS {RANK}",
        f"coalesce(lag({SEQUENCE}) OVER {window} = {SEQUENCE} AND lag({CONTENT}) OVER {window} <> {CONTENT}, false) "
        f"AS {CONTRADICTED}",
    )


def decisive(there: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Of the rows of the table and its tombstones one per key: the living row, if there is one. Tombstones that it has
    outlived stay until they are old."""
    order = f"{DELETED}, {SEQUENCE} DESC, {SOURCE} DESC"
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {order})"
    return there.selectExpr("*", f"row_number() OVER {window} AS {RANK}").where(f"{RANK} = 1").drop(RANK)


def turned_current(
    newest: DataFrame, there: DataFrame, keys: Sequence[str], columns: Sequence[str], *, feed: bool, few: bool
) -> DataFrame:
    """`newest` has one change per key; `there` the row of the table, or the tombstone, that each of these keys has, and
    its place: `few`, or more than every task can hold."""
    old = there.selectExpr(
        *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
        f"{SEQUENCE} AS __s",
        f"{SOURCE} AS __p",
        f"{DELETED} AS __d",
        FILE,
        PLACE,
        *([f"{row(columns)} AS __was"] if feed else []),
    )
    equal = " AND ".join(f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys))
    joined = newest.alias("new").join((F.broadcast(old) if few else old).alias("old"), F.expr(equal), "left")
    newer = f"named_struct('s', new.{SEQUENCE}, 'p', new.{SOURCE}) > named_struct('s', old.__s, 'p', old.__p)"
    decided = joined.selectExpr(
        "new.*",
        "old.*",
        f"(old.__d IS NULL OR {newer}) AS __took",
        f"coalesce(old.__s = new.{SEQUENCE} AND NOT (old.__p <=> new.{SOURCE}), false) AS {TIE}",
    )
    return outcome(decided, columns, feed=feed)


def outcome(decided: DataFrame, columns: Sequence[str], *, feed: bool) -> DataFrame:
    """`decided` has the row as it is to be, __took: whether that changes something, and of the row that is there its
    place, __d: whether it is a tombstone, and with a feed __was: the whole row."""
    was_there, dead = f"({FILE} IS NOT NULL AND NOT __d)", DELETED
    become = row(columns)
    rows = [f"IF({dead}, {comes(TOMBSTONE, become)}, {comes(None, become)})"]
    if feed:
        rows += [
            f"IF({was_there} AND NOT {dead}, {comes('update_preimage', '__was')}, NULL)",
            f"IF({was_there} AND NOT {dead}, {comes('update_postimage', become)}, NULL)",
            f"IF({was_there} AND {dead}, {comes('delete', '__was')}, NULL)",
            f"IF(NOT {was_there} AND NOT {dead}, {comes('insert', become)}, NULL)",
        ]
    return decided.selectExpr(
        f"IF(__took, {FILE}, NULL) AS {FILE}",
        f"IF(__took, {PLACE}, NULL) AS {PLACE}",
        f"CASE WHEN NOT __took THEN 'superseded' WHEN {dead} THEN 'deleted' WHEN {was_there} THEN 'updated' "
        f"ELSE 'inserted' END AS {KIND}",
        TIE,
        f"IF(__took, array_compact(array({', '.join(rows)})), NULL) AS {ROWS}",
    )


# A row per version: each change is kept, valid until the next one of its key.
#
# Deletes are kept too, as tombstones beside the table: whatever comes late finds its place between the changes before
# and after it.


def ranked_history(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """RANK 1 is what a key became by a sequence. CONTRADICTED marks a change that lost against another."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))}, {SEQUENCE} ORDER BY {SOURCE} DESC, {CONTENT} DESC)"
    return changes.selectExpr(
        "*",
        f"row_number() OVER {window} AS {RANK}",
        f"coalesce(lag({CONTENT}) OVER {window} <> {CONTENT}, false) AS {CONTRADICTED}",
    )


def turned_history(
    newest: DataFrame,
    there: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    feed: bool,
) -> DataFrame:
    """`newest` has one change per key and sequence; `there` every version and every tombstone of these keys, and the
    places of those that lie in the table."""
    names = [*map(quote, columns)]
    old = there.selectExpr(*names, FILE, PLACE, f"{TO} AS __to", f"{CURRENT} AS __current", "true AS __old")
    new = newest.selectExpr(
        *names,
        f"CAST(NULL AS STRING) AS {FILE}",
        f"CAST(NULL AS BIGINT) AS {PLACE}",
        f"{TO} AS __to",
        f"{CURRENT} AS __current",
        "false AS __old",
    )
    by_key = ", ".join(map(quote, keys))
    same = f"PARTITION BY {by_key}, {SEQUENCE}"
    # One that says the same from a later place stands too: a third one from in between must lose against it.
    placed = (
        old.unionByName(new)
        .selectExpr(
            "*",
            f"max(__old) OVER ({same}) AS __there",
            f"row_number() OVER ({same} ORDER BY {SOURCE} DESC, NOT __old) AS {RANK}",
        )
        .selectExpr("*", f"({RANK} = 1) AS __stands")
    )
    following = f"(PARTITION BY {by_key}, __stands ORDER BY {SEQUENCE})"
    next_ = placed.selectExpr(
        "*",
        f"IF(__stands, lead({FROM}) OVER {following}, NULL) AS __until",
        f"IF(__stands, lead({SEQUENCE}) OVER {following} IS NULL, false) AS __last",
        f"max(IF(__old AND NOT {DELETED}, 1, 0)) OVER ({same}) = 1 AS __was_alive",
        f"max(IF(__stands AND NOT {DELETED}, 1, 0)) OVER ({same}) = 1 AS __is_alive",
    )
    now = next_.selectExpr("*", f"(__last AND NOT {DELETED}) AS __now")
    differs = "(NOT (__until <=> __to) OR __now <> __current)"
    # A tombstone says when the version before it ended; its own end is nobody's business.
    decided = now.selectExpr(
        "*",
        f"({PLACE} IS NOT NULL AND (NOT __stands OR (NOT {DELETED} AND {differs}))) AS __goes",
        f"(__stands AND (NOT __old OR (NOT {DELETED} AND {differs}))) AS __comes",
    )
    was, become = row(columns), row(columns, {TO: "__until", CURRENT: "__now"})
    # Version by version: what is replaced under its own sequence is an update; the rest begins or ends.
    before = f"IF(__is_alive, {comes('update_preimage', was)}, {comes('delete', was)})"
    after = f"IF(__was_alive, {comes('update_postimage', become)}, {comes('insert', become)})"
    rows = [f"IF(__comes, IF({DELETED}, {comes(TOMBSTONE, become)}, {comes(None, become)}), NULL)"]
    if feed:
        rows += [f"IF(__goes AND NOT {DELETED}, {before}, NULL)", f"IF(__comes AND NOT {DELETED}, {after}, NULL)"]
    return decided.selectExpr(
        f"IF(__goes, {FILE}, NULL) AS {FILE}",
        f"IF(__goes, {PLACE}, NULL) AS {PLACE}",
        f"CASE WHEN __old THEN NULL WHEN NOT __stands THEN 'superseded' WHEN {DELETED} THEN 'deleted' "
        f"WHEN __there THEN 'updated' ELSE 'inserted' END AS {KIND}",
        f"(NOT __old AND __there) AS {TIE}",
        f"IF(__goes OR __comes, array_compact(array({', '.join(rows)})), NULL) AS {ROWS}",
    )
