"""A row per version: each change is kept, valid until the next one of its key.

Deletes are kept too, as tombstones beside the table: whatever comes late finds its place between the changes before and
after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from penstock.engine.identifiers import quote
from penstock.engine.merge.changes import CONTENT, CURRENT, FROM, TO
from penstock.engine.merge.exchange import FILE, PLACE
from penstock.engine.merge.scd1 import CONTRADICTED, RANK
from penstock.engine.merge.tombstones import DELETED, SEQUENCE
from penstock.engine.merge.turned import KIND, ROWS, TIE, TOMBSTONE, comes, row
from penstock.engine.stages.coordinates import SOURCE


def ranked(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """RANK 1 is what a key became by a sequence. CONTRADICTED marks a change that lost against another."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))}, {SEQUENCE} ORDER BY {SOURCE} DESC, {CONTENT} DESC)"
    return changes.selectExpr(
        "*",
        f"row_number() OVER {window} AS {RANK}",
        f"coalesce(lag({CONTENT}) OVER {window} <> {CONTENT}, false) AS {CONTRADICTED}",
    )


def turned(
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
