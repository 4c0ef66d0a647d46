"""Full extracts as changes: what is in one and not in the table came, what differs changed, what is missing is gone.

An extract is one file: with a part of it alone nobody could say what is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import Terminal
from penstock.sources.columns import DELETED, SEQUENCE, SOURCE
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.tables.merge.changes import CONTENT, CURRENT, FROM
from penstock.tables.merge.truncate import deletes, exactly, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INDEX = "__index"


@dataclass(frozen=True)
class Extracts:
    """Those of a batch that count, oldest first; `horizon` is the text of the newest that was ever applied."""

    files: tuple[str, ...]
    horizon: str | None


def extracts(ranked: DataFrame, horizon: str | None, table: str, *, history: bool) -> Extracts:
    """Raises where an extract cannot be told from another. Without history only the newest counts."""
    kind = sql_type(ranked.schema[SEQUENCE].dataType)
    last = f"{read(horizon, {'s': kind})}.s" if horizon is not None else None
    found = (
        ranked.groupBy(f"{SOURCE}.file")
        .agg(
            F.expr(f"CAST(min({SEQUENCE}) AS STRING)").alias("first"),
            F.expr(f"CAST(max({SEQUENCE}) AS STRING)").alias("last"),
            F.expr(f"min({SEQUENCE}) <> max({SEQUENCE})").alias("several"),
            F.expr(exactly(f"named_struct('s', max({SEQUENCE}))")).alias("told"),
            F.expr(f"bool_and({SEQUENCE} > {last})" if last else "true").alias("newer"),
            F.expr(f"bool_or({SEQUENCE} = {last})" if last else "false").alias("known"),
            F.max(SEQUENCE).alias("__last"),
        )
        .orderBy("__last")
        .drop("__last")
        .collect()
    )
    for one in found:
        if one["several"]:
            raise Terminal(
                f"{one['file']} holds rows of several extracts: {one['first']} to {one['last']}",
                where=table,
                hint="`from_snapshot` must be the same in all rows of a file: it says when the extract was taken",
            )
    said: dict[str, str] = {}
    for one in found:
        if one["known"] or one["told"] in said:
            raise Terminal(
                f"{one['file']} is of the same extract as {said.get(one['told'], 'an earlier file')}: {one['last']}",
                where=table,
                hint="an extract is one file: of a part of it nobody can say what is missing. Write it as one, or give "
                "each its own time",
            )
        said[one["told"]] = one["file"]
    counts = [one for one in found if one["newer"]]
    used = counts if history else counts[-1:]
    return Extracts(tuple(one["file"] for one in used), counts[-1]["told"] if counts else horizon)


def as_changes(
    newest: DataFrame,
    there: DataFrame,
    files: Sequence[str],
    keys: Sequence[str],
    values: Sequence[str],
    time_ms: int,
    *,
    whole: bool,
) -> DataFrame:
    """`newest` has one row per key and extract, `there` the rows of the table with CONTENT. What an extract does not
    change is left out. Unless they are `whole`, what they lack may be there all the same."""
    alive = there.where(f"NOT {DELETED}")
    if CURRENT in newest.columns:
        alive = alive.where(CURRENT)
    listed = newest.sparkSession.createDataFrame(list(enumerate(files, 1)), f"{_INDEX} INT, __name STRING")
    rows = newest.join(F.broadcast(listed), F.expr(f"{SOURCE}.file = __name")).drop("__name")
    # Each extract as a whole: when it was taken, and a place for the deletes that follow from it.
    taken = rows.groupBy((F.col(_INDEX) - 1).alias(_INDEX)).agg(
        F.max(SEQUENCE).alias("__s"), F.max(SOURCE).alias("__p"), F.max(_since(newest)).alias("__t")
    )
    names = [*map(quote, keys), CONTENT, _INDEX]
    known = alive.selectExpr(*map(quote, keys), CONTENT, f"0 AS {_INDEX}").unionByName(rows.select(*names))
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_INDEX})"
    steps = known.selectExpr(
        "*",
        f"coalesce(lag({_INDEX}) OVER {window} = {_INDEX} - 1 AND lag({CONTENT}) OVER {window} = {CONTENT}, false) "
        "AS __same",
        f"coalesce(lead({_INDEX}) OVER {window}, -1) <> {_INDEX} + 1 AS __ends",
    )
    said = steps.where(f"{_INDEX} > 0 AND NOT __same").select(*map(quote, keys), _INDEX)
    changed = rows.join(said, [*keys, _INDEX], "left_semi")
    if not whole:
        return changed.drop(_INDEX)
    gone = steps.where("__ends").join(F.broadcast(taken), _INDEX)
    return changed.drop(_INDEX).unionByName(deletes(gone, newest, keys, values, time_ms))


def _since(newest: DataFrame) -> str:
    return FROM if FROM in newest.columns else SEQUENCE
