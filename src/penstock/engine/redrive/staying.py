"""The rows of a quarantine that stay there after a redrive."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.protocol.entry import Entry
from penstock.engine.stages.coordinates import SOURCE

PARTLY = "partly_landed"
_PARTLY = (
    "rows of this record are in the table already, or of another with its place, if the topic was made again; so it "
    "cannot be run again alone: replay the table"
)
_WHY = "__why"


def staying(
    rejected: DataFrame,
    again: DataFrame,
    entry: Entry,
    unsure: DataFrame,
    landed: DataFrame | None,
) -> DataFrame:
    """`again` has the records that were rejected once more, with `why`. `unsure` are coordinates that the table had
    before: of another row of the record, or of another record, of a topic that was made again since. They were not run,
    and what is not known to have landed does not go. `landed`, of a redrive that was cut off: the coordinates that the
    table has now; what is in none of these stays as it was."""
    why = again.groupBy(SOURCE).agg(F.first("why").alias(_WHY))
    told = rejected.join(why, SOURCE)
    stay = _with_reason(told, F.col(f"{_WHY}.reason"), F.col(f"{_WHY}.detail"), entry).drop(_WHY)
    partly = rejected.join(unsure, SOURCE)
    stay = stay.unionByName(_with_reason(partly, F.lit(PARTLY), F.lit(_PARTLY), entry))
    if landed is not None:
        settled = landed.union(unsure).distinct()
        rest = rejected.join(settled, SOURCE, "left_anti").join(why, SOURCE, "left_anti")
        stay = stay.unionByName(rest)
    return stay


def _with_reason(rows: DataFrame, reason: object, detail: object, entry: Entry) -> DataFrame:
    return rows.withColumns(
        {
            "error_reason": reason,  # type: ignore[dict-item]
            "error_detail": detail,  # type: ignore[dict-item]
            "error_timestamp": F.expr(f"timestamp_millis({entry.pins.time_ms}L)"),
            "definition": F.lit(entry.pins.definition),
        }
    )
