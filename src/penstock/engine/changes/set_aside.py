"""Changes that cannot be sent, in the quarantine of their sink: each once, as it is, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.changes.net import AMBIGUOUS_KEY, ASIDE, DELETED, NULL_KEY, VERSION
from penstock.engine.changes.shape import Shape
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.position import same
from penstock.engine.quarantine import Quarantine
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import literal
from penstock.engine.stages.rejects import FAILED, NOTHING_FAILED, RAW
from penstock.engine.targets.target import Refused, Sent

COORDINATES = "struct<version:bigint,deleted:boolean>"
"""Of a change: the version of the table that it is of, and whether the row is gone with it."""
_WHY = {
    NULL_KEY: "a column of its key is NULL",
    AMBIGUOUS_KEY: "more rows of this version have the same key",
}
_MATCHED = "__refused"


class SetAside:
    def __init__(self, quarantine: Quarantine, shape: Shape) -> None:
        self._quarantine, self._shape = quarantine, shape

    def keep(self, changes: DataFrame, entry: Entry, sent: Sent) -> int:
        """How many there are in the batch; they are written unless the quarantine has them."""
        if sent.aside == 0 and not sent.refused:
            return 0
        there = self._quarantine.of(entry)
        rows = self._explained(changes, sent.refused)
        if there is not None:
            if all(map(same, there.after, entry.after)):
                return self._quarantine.rows_of(entry).count()
            # The batch was longer or shorter when it was written: its checkpoint was lost in between.
            rows = _without(rows, self._quarantine.rows_of(entry))
        return self._quarantine.add(rows, entry)

    def _explained(self, changes: DataFrame, refused: Sequence[Refused]) -> DataFrame:
        keyless = " ".join(f"WHEN '{name}' THEN {literal(text)}" for name, text in _WHY.items())
        by_key = f"named_struct('reason', {ASIDE}, 'detail', CASE {ASIDE} {keyless} END)"
        if not refused:
            return self._raw(changes.where(f"{ASIDE} IS NOT NULL"), by_key)
        found = _local(changes.sparkSession, refused)
        joined = changes.join(F.broadcast(found), F.expr(f"{self._shape.key} = {_MATCHED}.row_key"), "left")
        told = joined.where(f"{ASIDE} IS NOT NULL OR {_MATCHED}.row_key IS NOT NULL")
        by_target = f"named_struct('reason', {_MATCHED}.reason, 'detail', {_MATCHED}.detail)"
        return self._raw(told, f"IF({ASIDE} IS NOT NULL, {by_key}, {by_target})")

    def _raw(self, rows: DataFrame, why: str) -> DataFrame:
        given = {"key": self._shape.key, "value": self._shape.value}
        kept = [f"CAST({given.get(name, 'NULL')} AS {kind}) AS {name}" for name, kind in RAW.items()]
        place = f"named_struct('version', {VERSION}, 'deleted', {DELETED}) AS {SOURCE}"
        return rows.selectExpr(*kept, place, f"{NOTHING_FAILED} AS {FAILED}", f"{why} AS why")


def _local(spark: SparkSession, refused: Sequence[Refused]) -> DataFrame:
    rows = [(one.key, one.reason, one.detail) for one in refused]
    return spark.createDataFrame(rows, "row_key STRING, reason STRING, detail STRING").alias(_MATCHED)


def _without(rows: DataFrame, there: DataFrame) -> DataFrame:
    known = there.selectExpr("key AS was_key", "value AS was_value", f"{SOURCE} AS was_{SOURCE}")
    equal = F.expr(f"key <=> was_key AND value <=> was_value AND {SOURCE} <=> was_{SOURCE}")
    return rows.join(known, equal, "left_anti")
