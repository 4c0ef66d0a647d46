"""The quarantine of a table that reads files: beside rejected rows it holds, by their names, files that cannot be
read."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.files.known import known_rows
from penstock.engine.protocol.entry import Entry
from penstock.engine.quarantine import Quarantine
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import reason
from penstock.engine.stages.rejects import FAILED, NOTHING_FAILED, RAW

UNREADABLE = "unreadable_file"


class FileQuarantine(Quarantine):
    aside: Mapping[str, str] = {}
    """File -> reason, of the batch that is being written."""

    def add(self, explained: DataFrame, entry: Entry, *, files: int = 1) -> int:
        rows = explained.unionByName(self._files(explained.sparkSession)) if self.aside else explained
        return super().add(rows, entry, files=files)

    def add_files(self, entry: Entry) -> None:
        """Where no row was rejected: nothing happens if the batch is there already."""
        if self.aside and not self.has(entry):
            super().add(self._files(self._spark), entry)

    def _files(self, spark: SparkSession) -> DataFrame:
        rows = [{"file": name, "detail": why} for name, why in self.aside.items()]
        named = known_rows(spark, "file: STRING, detail: STRING", rows)
        return named.selectExpr(
            *(f"CAST(NULL AS {kind}) AS {name}" for name, kind in RAW.items()),
            f"named_struct('file', file, 'row', CAST(NULL AS BIGINT)) AS {SOURCE}",
            f"{NOTHING_FAILED} AS {FAILED}",
            f"{reason(UNREADABLE, 'detail')} AS why",
        )
