"""Full extracts as changes: new rows are inserts, rows that differ are updates, missing rows are deletes.

An extract is one file: a part of it alone would not show what is missing.
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
from penstock.tables.merge.changes import CONTENT, CURRENT
from penstock.tables.merge.truncate import deletes, from_exact_json, start_column, to_exact_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INDEX = "__index"


@dataclass(frozen=True)
class Extracts:
    """The extracts of a batch to apply, oldest first; `horizon` is the text of the newest one ever applied."""

    files: tuple[str, ...]
    horizon: str | None


def extracts(ranked: DataFrame, horizon: str | None, table: str, *, history: bool) -> Extracts:
    """The extracts to apply; without history only the newest. Raises if two files belong to one extract, or one file to
    several."""
    sequence_type = sql_type(ranked.schema[SEQUENCE].dataType)
    last_sequence = f"{from_exact_json(horizon, {'s': sequence_type})}.s" if horizon is not None else None
    file_rows = (
        ranked.groupBy(f"{SOURCE}.file")
        .agg(
            F.expr(f"CAST(min({SEQUENCE}) AS STRING)").alias("first"),
            F.expr(f"CAST(max({SEQUENCE}) AS STRING)").alias("last"),
            F.expr(f"min({SEQUENCE}) <> max({SEQUENCE})").alias("several"),
            F.expr(to_exact_json(f"named_struct('s', max({SEQUENCE}))")).alias("told"),
            F.expr(f"bool_and({SEQUENCE} > {last_sequence})" if last_sequence else "true").alias("newer"),
            F.expr(f"bool_or({SEQUENCE} = {last_sequence})" if last_sequence else "false").alias("known"),
            F.max(SEQUENCE).alias("__last"),
        )
        .orderBy("__last")
        .drop("__last")
        .collect()
    )
    for row in file_rows:
        if row["several"]:
            raise Terminal(
                f"{row['file']} holds rows of several extracts: {row['first']} to {row['last']}",
                where=table,
                hint="`from_snapshot` must be the same in all rows of a file: it says when the extract was taken",
            )
    names: dict[str, str] = {}
    for row in file_rows:
        if row["known"] or row["told"] in names:
            raise Terminal(
                f"{row['file']} is of the same extract as {names.get(row['told'], 'an earlier file')}: {row['last']}",
                where=table,
                hint="an extract is one file: from a part of it, what is missing is unknown. Write it as one, or give "
                "each its own time",
            )
        names[row["told"]] = row["file"]
    newer = [row for row in file_rows if row["newer"]]
    applied = newer if history else newer[-1:]
    return Extracts(tuple(row["file"] for row in applied), newer[-1]["told"] if newer else horizon)


def changes_of_extracts(
    newest: DataFrame,
    existing: DataFrame,
    files: Sequence[str],
    keys: Sequence[str],
    values: Sequence[str],
    time_ms: int,
    *,
    whole: bool,
) -> DataFrame:
    """What the extracts change. `newest` has one row per key and extract, `existing` the rows of the table with
    CONTENT. Only if the extracts are `whole` do missing rows count as deleted: else they may have been rejected."""
    living = existing.where(f"NOT {DELETED}")
    if CURRENT in newest.columns:
        living = living.where(CURRENT)
    file_index = newest.sparkSession.createDataFrame(list(enumerate(files, 1)), f"{_INDEX} INT, __name STRING")
    rows = newest.join(F.broadcast(file_index), F.expr(f"{SOURCE}.file = __name")).drop("__name")
    # Per extract: when it was taken, and a place for the deletes that follow from it.
    per_extract = rows.groupBy((F.col(_INDEX) - 1).alias(_INDEX)).agg(
        F.max(SEQUENCE).alias("__s"), F.max(SOURCE).alias("__p"), F.max(start_column(newest.columns)).alias("__t")
    )
    names = [*map(quote, keys), CONTENT, _INDEX]
    all_rows = living.selectExpr(*map(quote, keys), CONTENT, f"0 AS {_INDEX}").unionByName(rows.select(*names))
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_INDEX})"
    compared = all_rows.selectExpr(
        "*",
        f"coalesce(lag({_INDEX}) OVER {window} = {_INDEX} - 1 AND lag({CONTENT}) OVER {window} = {CONTENT}, false) "
        "AS __same",
        f"coalesce(lead({_INDEX}) OVER {window}, -1) <> {_INDEX} + 1 AS __ends",
    )
    changed_keys = compared.where(f"{_INDEX} > 0 AND NOT __same").select(*map(quote, keys), _INDEX)
    changed = rows.join(changed_keys, [*keys, _INDEX], "left_semi")
    if not whole:
        return changed.drop(_INDEX)
    missing = compared.where("__ends").join(F.broadcast(per_extract), _INDEX)
    return changed.drop(_INDEX).unionByName(deletes(missing, newest, keys, values, time_ms))
