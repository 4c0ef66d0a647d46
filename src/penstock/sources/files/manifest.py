"""The manifest of a table: each file that was found, once, by its path. The stream reads it; a lister keeps it up to
date."""

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
from penstock.sources.files.listing import File, list_files
from penstock.spark.expressions import known_rows
from penstock.spec.lake import is_remote
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.sources import FilesSource
    from penstock.storage.stores import Store

# The manifest is a small Delta table that the stream reads.
#
# Each of its data files lists at most as many files as a batch may read, and the stream takes one data file at a time.


COLUMNS = "path STRING, size BIGINT, modified TIMESTAMP"
_PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointInterval": "100",
    # Each scan that finds files adds a small data file; uncompacted, every scan would read them one by one.
    "delta.autoOptimize.autoCompact": "true",
}
_DATA_FILES_PER_COMMIT = 64
_MAX_LOOKED_UP = 10_000
"""Up to this many names are looked up in Spark; with more of them the whole manifest is read."""


class Manifest:
    def __init__(self, spark: SparkSession, store: Store, uri: str, table: str) -> None:
        self._spark, self._uri, self._table = spark.newSession(), uri, table
        self._log = DeltaLog(store, uri, table)

    def create(self) -> None:
        """Creates the manifest unless it exists."""
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
        """Those of the files that the manifest has, as they were when they were listed."""
        listed = self._spark.read.format("delta").option("versionAsOf", version).load(self._uri)
        if len(names) <= _MAX_LOOKED_UP:
            requested = known_rows(self._spark, "path: STRING", [{"path": name} for name in names])
            listed = listed.join(F.broadcast(requested), "path", "left_semi")
        rows = listed.selectExpr("path", "size", "unix_millis(modified) AS modified")
        requested_names = set(names)
        files = (File(row.path, row.size, row.modified) for row in rows.toLocalIterator())
        return {file.name: file for file in files if file.name in requested_names}

    def add(self, files: Sequence[File], max_files: int, version: int, *, alone: bool) -> None:
        """Adds files, the oldest first. `version` is the version that they were compared with: unless this process is
        `alone`, the mark of the write lets only one of two processes add to the same version."""
        ordered = sorted(files, key=lambda file: (file.modified_ms, file.name))
        step = max_files * _DATA_FILES_PER_COMMIT
        for start in range(0, len(ordered), step):
            chunk = ordered[start : start + step]
            rows = reduce(
                DataFrame.union,
                (self._data_file(chunk[index : index + max_files]) for index in range(0, len(chunk), max_files)),
            )
            mark = {} if alone else self._transaction_mark(version)
            rows.write.format("delta").mode("append").options(**mark).save(self._uri)
            if not alone:
                return  # the rest is found again, and compared with the next version

    def _transaction_mark(self, version: int) -> dict[str, str]:
        """The number after the last one in that version, not the version itself: a compaction advances the version, and
        a process that saw the compaction but not what was added after it would add the same files again."""
        application = f"penstock:files:{self._table}"
        return {
            "txnAppId": application,
            "txnVersion": str(next_number(self._spark, self._uri, application, version)),
        }

    def _data_file(self, files: Sequence[File]) -> DataFrame:
        rows = [{"path": file.name, "size": file.size, "modified": file.modified_ms} for file in files]
        frame = known_rows(self._spark, "path: STRING, size: BIGINT, modified: BIGINT", rows)
        return frame.selectExpr("path", "size", "timestamp_millis(modified) AS modified")


# Looking for new files: those in the folder that the manifest does not have are added to it, in one commit.


_MAX_LISTED = 5
_MAX_REPORTED = 10_000
_MAX_CONFLICTS = 20


class Lister:
    """The lister of one table. On a local lake the table's run lock makes it the only one."""

    def __init__(self, spark: SparkSession, store: Store, source: FilesSource, table: str) -> None:
        self._spark, self._store, self._source, self._table = spark, store, source, table
        self._alone = not is_remote(source.uri)
        self.manifest = Manifest(spark, store, source.uri, table)
        self.manifest.create()
        self._listed: dict[str, File] = {}
        """The files of the last scan, as they were first listed: other files are looked up in the manifest."""
        self._strange: set[str] = set()

    def scan(self) -> list[str]:
        """Adds new files to the manifest; returns remarks for the user."""
        listing = list_files(self._spark, self._source, self._table)
        candidates = [file for file in listing.files if file.name not in self._listed]
        if candidates:
            self._listed |= self._add(candidates)
        # Files that no longer exist are dropped: they would only fill the memory, and the manifest has them.
        self._listed = {file.name: self._listed[file.name] for file in listing.files}
        return [*self._report_changed(listing.files), *self._report_strange(listing.undecodable_names)]

    def _add(self, candidates: list[File]) -> dict[str, File]:
        """The candidates as the manifest has them, after adding those that it did not have."""
        by_name = {file.name: file for file in candidates}
        for _ in range(_MAX_CONFLICTS):
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

    def _report_changed(self, files: Iterable[File]) -> Iterable[str]:
        """Remarks about files that changed after they were listed, each once, by the first run that sees the change."""
        changed = [file for file in files if self._listed[file.name] != file]
        if not changed:
            return
        path = f"{self._source.reads}/changed.json"
        reported = json.loads(self._store.read(path) or "{}")
        new = [file for file in changed if reported.get(file.name) != [file.size, file.modified_ms]]
        if not new:
            return
        reported |= {file.name: [file.size, file.modified_ms] for file in new}
        self._store.write(path, json.dumps(dict(list(reported.items())[-_MAX_REPORTED:])))
        yield (
            f"{counted(len(new), 'file')} changed after {'it was' if len(new) == 1 else 'they were'} listed, which is "
            f"not read again: {_joined([file.name for file in new])}. New rows belong in a new file"
        )

    def _report_strange(self, names: Iterable[str]) -> Iterable[str]:
        new = [name for name in names if name not in self._strange]
        self._strange.update(new)
        if new:
            yield f"{counted(len(new), 'file')} cannot be read, for their names are not UTF-8: {_joined(new)}"


def _joined(names: list[str]) -> str:
    more = f" and {len(names) - _MAX_LISTED:,} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more
