"""What a batch of changes comes to: of every key the last row, or that it is gone.

A batch holds whole versions of the table, several of them perhaps, and many changes of one key. Within a version there
is no order: what is there at its end is what was inserted or updated, whatever else was deleted (an overwrite deletes
every row and inserts some again). The image before an update counts as a delete, which the image after it beats; only
where the update gave the row another key does it stay, and takes the old key away.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote

CHANGE, VERSION, TIME = "_change_type", "_commit_version", "_commit_timestamp"
"""What Delta's change feed adds to the columns of a table."""
DELETED, ASIDE = "__deleted", "__aside"
NULL_KEY, AMBIGUOUS_KEY = "null_key", "ambiguous_key"
_LIVE, _NUMBER, _NEXT = "__live", "__number", "__next"


def net(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The columns of the table and, of the change that decides, VERSION and TIME; DELETED, true or false; ASIDE, NULL,
    or why the row cannot be sent: its key has a NULL, or more rows of the same version have the same key, so that
    nobody can say which of them it names. A row whose key is NULL has never been sent, so its end is no news."""
    names = [F.col(quote(key)) for key in keys]
    no_key = " OR ".join(f"{quote(key)} IS NULL" for key in keys)
    known = changes.selectExpr("*", f"{CHANGE} IN ('insert', 'update_postimage') AS {_LIVE}")
    newest_first = Window.partitionBy(*names).orderBy(F.desc(VERSION), F.desc(_LIVE))
    ranked = known.withColumns(
        {
            _NUMBER: F.row_number().over(newest_first),
            _NEXT: F.lead(F.struct(VERSION, _LIVE)).over(newest_first),
        }
    )
    last = ranked.where(f"IF({no_key}, {_LIVE}, {_NUMBER} = 1)")
    aside = (
        f"CASE WHEN {no_key} THEN '{NULL_KEY}' "
        f"WHEN {_LIVE} AND {_NEXT}.{_LIVE} AND {_NEXT}.{VERSION} = {VERSION} THEN '{AMBIGUOUS_KEY}' END"
    )
    marked = last.selectExpr("*", f"NOT {_LIVE} AS {DELETED}", f"{aside} AS {ASIDE}")
    return marked.drop(CHANGE, _LIVE, _NUMBER, _NEXT)
