"""The result of a merge: one row per key (scd1), or one row per version (scd2)."""

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

# A merge result: which rows of the table are removed, which are added, and what goes into the change feed.
#
# A frame with a row per change, or per table row that changes with it:
#     FILE, PLACE     where the removed row is stored; NULL if none is removed
#     KIND            the outcome of the change, one of KINDS; NULL for a row that no change of the batch applies to
#     ROWS            the added rows, each with its `_change_type`: NULL is a row of the table, TOMBSTONE a row of the
#                     tombstone table, all others are rows of the change feed


KIND, ROWS, TIE, TYPE = "__kind", "__rows", "__tie", "_change_type"
TOMBSTONE = "tombstone"
INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS, SUPERSEDED = "inserted", "updated", "deleted", "superseded"
KINDS = (INSERTED_ROWS, UPDATED_ROWS, DELETED_ROWS, SUPERSEDED)
TIES = "ties"
COUNTS = (*KINDS, TIES)


def row(columns: Sequence[str], replacements: Mapping[str, str] = MappingProxyType({})) -> str:
    """The table row as a struct, with `replacements`: expressions for some of its columns."""
    parts = ", ".join(f"{literal(name)}, {replacements.get(name, quote(name))}" for name in columns)
    return f"named_struct({parts})"


def added_row(change_type: str | None, row: str) -> str:
    """An element of ROWS."""
    change = "CAST(NULL AS STRING)" if change_type is None else literal(change_type)
    return f"named_struct('change', {change}, 'row', {row})"


def removals_by_file(merge_result: DataFrame) -> DataFrame:
    """For each file the places of its removed rows and the number of changes of each kind; file NULL has the rest."""
    return merge_result.groupBy(FILE).agg(
        F.collect_list(PLACE).alias("places"),
        *(F.count_if(F.expr(f"{KIND} = '{kind}'")).alias(kind) for kind in KINDS),
        F.count_if(F.expr(TIE)).alias(TIES),
    )


def rows_to_write(merge_result: DataFrame, *, feed: bool) -> DataFrame:
    """The rows to write. Feed rows only if the table keeps a feed and rows are removed: pure inserts Delta reads from
    the added files."""
    rows = merge_result.selectExpr(f"explode({ROWS}) AS one")
    if not feed:
        return rows.where("one.change IS NULL").selectExpr("one.row.*")
    return rows.where(f"NOT (one.change <=> '{TOMBSTONE}')").selectExpr("one.row.*", f"one.change AS {TYPE}")


def tombstones(merge_result: DataFrame) -> DataFrame:
    """The rows for the tombstone table."""
    rows = merge_result.selectExpr(f"explode({ROWS}) AS one")
    return rows.where(f"one.change = '{TOMBSTONE}'").selectExpr("one.row.*")


# One row per key: the newest change by `_sequence` and `_source` decides.


CONTRADICTED, RANK = "__contradicted", "__rank"
_ORDER = f"{SEQUENCE} DESC, {SOURCE} DESC, {CONTENT} DESC"


def ranked_current(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """RANK 1 is the newest change of its key. CONTRADICTED marks one that lost to another with the same sequence."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_ORDER})"
    return changes.selectExpr(
        "*",
        f"row_number() OVER {window} AS {RANK}",
        f"coalesce(lag({SEQUENCE}) OVER {window} = {SEQUENCE} AND lag({CONTENT}) OVER {window} <> {CONTENT}, false) "
        f"AS {CONTRADICTED}",
    )


def living_or_latest(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row per key out of table rows and tombstones: the living row, if there is one. Tombstones older than it stay
    in their table until they expire."""
    order = f"{DELETED}, {SEQUENCE} DESC, {SOURCE} DESC"
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {order})"
    return rows.selectExpr("*", f"row_number() OVER {window} AS {RANK}").where(f"{RANK} = 1").drop(RANK)


def merge_current(
    newest: DataFrame, existing: DataFrame, keys: Sequence[str], columns: Sequence[str], *, feed: bool, few: bool
) -> DataFrame:
    """The merge result for scd1. `newest` has one change per key; `existing` the table row or tombstone of each of
    these keys, and its place. `few`: every task can hold `existing` in memory."""
    old = existing.selectExpr(
        *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
        f"{SEQUENCE} AS __s",
        f"{SOURCE} AS __p",
        f"{DELETED} AS __d",
        FILE,
        PLACE,
        *([f"{row(columns)} AS __was"] if feed else []),
    )
    same_key = " AND ".join(f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys))
    joined = newest.alias("new").join((F.broadcast(old) if few else old).alias("old"), F.expr(same_key), "left")
    newer = f"named_struct('s', new.{SEQUENCE}, 'p', new.{SOURCE}) > named_struct('s', old.__s, 'p', old.__p)"
    decided = joined.selectExpr(
        "new.*",
        "old.*",
        f"(old.__d IS NULL OR {newer}) AS __took",
        f"coalesce(old.__s = new.{SEQUENCE} AND NOT (old.__p <=> new.{SOURCE}), false) AS {TIE}",
    )
    return outcome(decided, columns, feed=feed)


def outcome(decided: DataFrame, columns: Sequence[str], *, feed: bool) -> DataFrame:
    """The merge result. `decided` has the new row; __took: whether it changes something; and of the existing row its
    place, __d: whether it is a tombstone, and with a feed __was: the full row."""
    existed, is_deleted = f"({FILE} IS NOT NULL AND NOT __d)", DELETED
    new_row = row(columns)
    rows = [f"IF({is_deleted}, {added_row(TOMBSTONE, new_row)}, {added_row(None, new_row)})"]
    if feed:
        rows += [
            f"IF({existed} AND NOT {is_deleted}, {added_row('update_preimage', '__was')}, NULL)",
            f"IF({existed} AND NOT {is_deleted}, {added_row('update_postimage', new_row)}, NULL)",
            f"IF({existed} AND {is_deleted}, {added_row('delete', '__was')}, NULL)",
            f"IF(NOT {existed} AND NOT {is_deleted}, {added_row('insert', new_row)}, NULL)",
        ]
    return decided.selectExpr(
        f"IF(__took, {FILE}, NULL) AS {FILE}",
        f"IF(__took, {PLACE}, NULL) AS {PLACE}",
        f"CASE WHEN NOT __took THEN 'superseded' WHEN {is_deleted} THEN 'deleted' WHEN {existed} THEN 'updated' "
        f"ELSE 'inserted' END AS {KIND}",
        TIE,
        f"IF(__took, array_compact(array({', '.join(rows)})), NULL) AS {ROWS}",
    )


# One row per version: each change is kept, valid until the next change of its key.
#
# Deletes are kept too, as tombstones beside the table, so that a late change finds its place between the changes before
# and after it.


def ranked_history(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """RANK 1 is the change that wins for a key and sequence. CONTRADICTED marks a change that lost to another."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))}, {SEQUENCE} ORDER BY {SOURCE} DESC, {CONTENT} DESC)"
    return changes.selectExpr(
        "*",
        f"row_number() OVER {window} AS {RANK}",
        f"coalesce(lag({CONTENT}) OVER {window} <> {CONTENT}, false) AS {CONTRADICTED}",
    )


def merge_history(
    newest: DataFrame, existing: DataFrame, keys: Sequence[str], columns: Sequence[str], *, feed: bool
) -> DataFrame:
    """The merge result for scd2. `newest` has one change per key and sequence; `existing` every version and tombstone
    of these keys, with the places of those that are in the table."""
    names = [*map(quote, columns)]
    old = existing.selectExpr(*names, FILE, PLACE, f"{TO} AS __to", f"{CURRENT} AS __current", "true AS __old")
    new = newest.selectExpr(
        *names,
        f"CAST(NULL AS STRING) AS {FILE}",
        f"CAST(NULL AS BIGINT) AS {PLACE}",
        f"{TO} AS __to",
        f"{CURRENT} AS __current",
        "false AS __old",
    )
    by_key = ", ".join(map(quote, keys))
    same_version = f"PARTITION BY {by_key}, {SEQUENCE}"
    # A change with the same content from a later place wins too: a third change from in between must lose to it.
    ranked = (
        old.unionByName(new)
        .selectExpr(
            "*",
            f"max(__old) OVER ({same_version}) AS __there",
            f"row_number() OVER ({same_version} ORDER BY {SOURCE} DESC, NOT __old) AS {RANK}",
        )
        .selectExpr("*", f"({RANK} = 1) AS __stands")
    )
    following = f"(PARTITION BY {by_key}, __stands ORDER BY {SEQUENCE})"
    with_next = ranked.selectExpr(
        "*",
        f"IF(__stands, lead({FROM}) OVER {following}, NULL) AS __until",
        f"IF(__stands, lead({SEQUENCE}) OVER {following} IS NULL, false) AS __last",
        f"max(IF(__old AND NOT {DELETED}, 1, 0)) OVER ({same_version}) = 1 AS __was_alive",
        f"max(IF(__stands AND NOT {DELETED}, 1, 0)) OVER ({same_version}) = 1 AS __is_alive",
    )
    with_current = with_next.selectExpr("*", f"(__last AND NOT {DELETED}) AS __now")
    differs = "(NOT (__until <=> __to) OR __now <> __current)"
    # A tombstone says when the version before it ended; its own end does not matter.
    decided = with_current.selectExpr(
        "*",
        f"({PLACE} IS NOT NULL AND (NOT __stands OR (NOT {DELETED} AND {differs}))) AS __goes",
        f"(__stands AND (NOT __old OR (NOT {DELETED} AND {differs}))) AS __comes",
    )
    old_row, new_row = row(columns), row(columns, {TO: "__until", CURRENT: "__now"})
    # Version by version: a row replaced under its own sequence is an update; all others are inserts or deletes.
    before = f"IF(__is_alive, {added_row('update_preimage', old_row)}, {added_row('delete', old_row)})"
    after = f"IF(__was_alive, {added_row('update_postimage', new_row)}, {added_row('insert', new_row)})"
    rows = [f"IF(__comes, IF({DELETED}, {added_row(TOMBSTONE, new_row)}, {added_row(None, new_row)}), NULL)"]
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
