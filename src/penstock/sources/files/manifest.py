"""The manifest of a table: every file that was found, once by its path. The stream reads it; a lister keeps it up
to date."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.errors import Conflict
from penstock.ledger.commit import next_number
from penstock.ledger.create import create_table
from penstock.ledger.delta_log import DeltaLog
from penstock.sources.files.listing import File, is_remote, list_files
from penstock.spark.expressions import known_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.storage.stores import Store

# The manifest of a table: every file that was found, once by its path. A small Delta table; the stream reads it.
#
# One data file of it names at most as many files as a batch may read, and the stream takes one data file at a time.


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


# Looking for new files: what the folder holds and the manifest does not is added to it, in one commit.


_SHOWN = 5
_MOST_CHANGED = 10_000
_CONFLICTS = 20


class Lister:
    """Of one table. On a local lake the table's run lock makes it the only one."""

    def __init__(self, spark: SparkSession, store: Store, source: FilesSource, table: str) -> None:
        self._spark, self._store, self._source, self._table = spark, store, source, table
        self._alone = not is_remote(source.uri)
        self.manifest = Manifest(spark, store, source.uri, table)
        self.manifest.create()
        self._listed: dict[str, File] = {}
        """The files of the last look, as they were listed: what it does not have is looked up in the manifest."""
        self._strange: set[str] = set()

    def look(self) -> list[str]:
        """What a person should know of what was found."""
        listing = list_files(self._spark, self._source, self._table)
        candidates = [file for file in listing.files if file.name not in self._listed]
        if candidates:
            self._listed |= self._add(candidates)
        # What is no longer there is forgotten: it would only fill the memory, and the manifest has it.
        self._listed = {file.name: self._listed[file.name] for file in listing.files}
        return [*self._changed(listing.files), *self._strange_names(listing.strange)]

    def _add(self, candidates: list[File]) -> dict[str, File]:
        """The candidates as the manifest has them, after those that it did not have were added."""
        by_name = {file.name: file for file in candidates}
        for _ in range(_CONFLICTS):
            version = self.manifest.newest()
            known = self.manifest.known(list(by_name), version)
            new = [file for name, file in by_name.items() if name not in known]
            if not new:
                return known
            try:
                self.manifest.add(new, self._source.most, version, alone=self._alone)
            except Exception as error:
                if "DELTA_CONCURRENT" not in str(error):
                    raise
                continue
            if self._alone:
                return {**known, **{file.name: file for file in new}}
        raise Conflict(f"others list the files of {self._source.folder} at the same time", where=self._table)

    def _changed(self, files: Iterable[File]) -> Iterable[str]:
        """Files that are not what was listed, each told once: by whichever run sees it first."""
        now = [file for file in files if self._listed[file.name] != file]
        if not now:
            return
        place = f"{self._source.reads}/changed.json"
        told = json.loads(self._store.read(place) or "{}")
        new = [file for file in now if told.get(file.name) != [file.size, file.modified_ms]]
        if not new:
            return
        told |= {file.name: [file.size, file.modified_ms] for file in new}
        self._store.write(place, json.dumps(dict(list(told.items())[-_MOST_CHANGED:])))
        yield (
            f"{_files(len(new))} changed after {'it was' if len(new) == 1 else 'they were'} listed, which is not read "
            f"again: {_names([file.name for file in new])}. New rows belong in a new file"
        )

    def _strange_names(self, names: Iterable[str]) -> Iterable[str]:
        new = [name for name in names if name not in self._strange]
        self._strange.update(new)
        if new:
            yield f"{_files(len(new))} cannot be read, for their names are not UTF-8: {_names(new)}"


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count:,} files"


def _names(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
