"""Looking for new files: what the folder holds and the manifest does not is added to it, in one commit."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pyspark.sql import SparkSession

from penstock.engine.files.listing import File, list_files
from penstock.engine.files.manifest import Manifest
from penstock.engine.files.names import is_remote
from penstock.engine.store import Store
from penstock.errors import Conflict
from penstock.plan.files import FilesSource

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
