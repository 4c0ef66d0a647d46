"""One row per key: the newest change decides. `_sequence` and `_source` say which that is."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.merge.changes import CONTENT
from penstock.engine.merge.exchange import FILE, PLACE
from penstock.engine.merge.tombstones import DELETED, SEQUENCE
from penstock.engine.merge.turned import KIND, ROWS, TIE, TOMBSTONE, comes, row
from penstock.engine.stages.coordinates import SOURCE

CONTRADICTED, RANK = "__contradicted", "__rank"
_ORDER = f"{SEQUENCE} DESC, {SOURCE} DESC, {CONTENT} DESC"


def ranked(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
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


def turned(
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
