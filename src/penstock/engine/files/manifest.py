"""The manifest of a table: every file that was found, once by its path. A small Delta table; the stream reads it.

One data file of it names at most as many files as a batch may read, and the stream takes one data file at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.files.known import known_rows
from penstock.engine.files.listing import File
from penstock.engine.protocol.commit import next_number
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.making import create_table
from penstock.engine.store import Store

COLUMNS = "path STRING, size BIGINT, modified TIMESTAMP"
_PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointInterval": "100",
    # Each look that finds something adds a small file; without it they would be read one by one at every look.
    "delta.autoOptimize.autoCompact": "true",
}
_DATA_FILES_A_COMMIT = 64
_FEW = 10_000
"""Names that Spark looks for; with more of them the whole list is read."""


class Manifest:
    def __init__(self, spark: SparkSession, store: Store, uri: str, table: str) -> None:
        self._spark, self._uri, self._table = spark.newSession(), uri, table
        self._log = DeltaLog(store, uri, table)

    def create(self) -> None:
        """Nothing happens if it is there."""
        if self._log.versions():
            return
        schema = cast(StructType, StructType.fromDDL(COLUMNS))
        try:
            create_table(self._spark, self._log, self._uri, schema, _PROPERTIES)
        except Exception:
            if not self._log.versions():  # else another process, on a store without locks, was faster
                raise

    def newest(self) -> int:
        return self._log.versions()[-1]

    def known(self, names: Sequence[str], version: int) -> dict[str, File]:
        """Those of the names that it has, as they were when they were listed."""
        there = self._spark.read.format("delta").option("versionAsOf", version).load(self._uri)
        if len(names) <= _FEW:
            wanted = known_rows(self._spark, "path: STRING", [{"path": name} for name in names])
            there = there.join(F.broadcast(wanted), "path", "left_semi")
        rows = there.selectExpr("path", "size", "unix_millis(modified) AS modified")
        asked = set(names)
        found = (File(row.path, row.size, row.modified) for row in rows.toLocalIterator())
        return {file.name: file for file in found if file.name in asked}

    def add(self, files: Sequence[File], most: int, version: int, *, alone: bool) -> None:
        """The oldest first. `version` is what it was compared with: unless this process is `alone` with it, the mark of
        the write lets only one of two processes add to the same version."""
        ordered = sorted(files, key=lambda file: (file.modified_ms, file.name))
        step = most * _DATA_FILES_A_COMMIT
        for start in range(0, len(ordered), step):
            some = ordered[start : start + step]
            rows = reduce(DataFrame.union, (self._one(some[i : i + most]) for i in range(0, len(some), most)))
            mark = {} if alone else self._mark(version)
            rows.write.format("delta").mode("append").options(**mark).save(self._uri)
            if not alone:
                return  # what is left is found again, and compared with what is there then

    def _mark(self, version: int) -> dict[str, str]:
        """The number after the last that was there then, not one made of the version: a compaction moves that on, and a
        process that has seen it and not what was added after it would add the same again."""
        application = f"penstock:files:{self._table}"
        return {
            "txnAppId": application,
            "txnVersion": str(next_number(self._spark, self._uri, application, version)),
        }

    def _one(self, files: Sequence[File]) -> DataFrame:
        rows = [{"path": file.name, "size": file.size, "modified": file.modified_ms} for file in files]
        made = known_rows(self._spark, "path: STRING, size: BIGINT, modified: BIGINT", rows)
        return made.selectExpr("path", "size", "timestamp_millis(modified) AS modified")
