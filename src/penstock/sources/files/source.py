"""A folder of files as the source of a table: reads its manifest, which scans of the folder keep up to date."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import DataLoss, Terminal
from penstock.ledger.position import Version, parse_version
from penstock.ledger.source import Move, ReplayInput, Start
from penstock.sources.delta import DeltaReader
from penstock.sources.delta_changes import oldest_unbroken, table_id
from penstock.sources.files.listing import list_files
from penstock.sources.files.manifest import Lister
from penstock.sources.files.schema import FileSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.entry import Entry
    from penstock.ledger.source import Position, ReplayRequest
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import FilesSource
    from penstock.sources.registry import SourceContext
    from penstock.storage.stores import Store

_EMPTY_VERSION = 0
"""The manifest's first version, which lists no file."""


class FilesReader(DeltaReader):
    def __init__(self, spark: SparkSession, source: FilesSource, store: Store, table: str) -> None:
        """`scan` finds the files and needs the table's run lock: two at the same time would list a file twice."""
        self.spark, self.store, self.files = spark, store, source
        self._lister = Lister(spark, store, source, table)
        self._scan_lock = threading.Lock()
        self._notes: list[str] = []
        self.schema = FileSchema(spark, store, source, table)
        super().__init__(source, store, table)

    @property
    def table(self) -> str:
        return self._table

    def scan(self) -> list[str]:
        """Adds new files to the manifest; returns remarks for the user."""
        with self._scan_lock:
            return self._lister.scan()

    def note(self, remark: str) -> None:
        """Reports the remark with the batch that is being written."""
        self._notes.append(remark)

    def start(self) -> Start:
        self.schema.require()
        self._versions = self._log.versions()
        identity = table_id(self._log, self._versions)
        if identity is None:
            raise Terminal(
                f"the id of the list of files, {self.files.uri}, is not in its log", where=self._table, hint=self._hint
            )
        if self.files.starting.kind == "latest":
            position = Version(identity, self._versions[-1] + 1)
        elif oldest_unbroken(self._versions) <= _EMPTY_VERSION + 1:
            position = Version(identity, _EMPTY_VERSION + 1)
        else:  # commits have been cleaned up: the files that they added are read from the table's current version
            position = Version(identity, self._versions[-1], snapshot=True)
        origin = "files that come from now on" if self.files.starting.kind == "latest" else "its first file"
        notes = tuple(self.schema.story())
        return Start((str(position),), {self._name: identity}, f"{origin} in {self.files.folder}", notes)

    def follow(self, entry: Entry) -> Move | None:
        if dict(entry.subscription) == self.subscription:
            return None
        start = self.start()
        return Move(start.position, start.ids, f"reads the files in {self.files.folder}, no longer another source")

    def refuse_lost(self, entry: Entry) -> None:
        self._versions = self._log.versions()
        identity, position = table_id(self._log, self._versions), parse_version(entry.after[0])
        if identity is not None and identity != position.table_id:
            raise DataLoss(
                f"the list of files that were read, {self.files.uri}, was deleted or recreated: which files are in "
                "the table is unknown",
                where=self._table,
                hint=self._hint,
            )
        super().refuse_lost(entry)

    @property
    def _hint(self) -> str:
        return (
            f"put it back; or decide: `penstock checkpoints reset {self._table} --to latest` takes the files that are "
            "there now for read, `--to earliest` reads them all again"
        )

    def replay_input(self, spark: SparkSession, request: ReplayRequest) -> ReplayInput:
        """Files that no longer exist cannot be read again, and are reported as gone."""
        listed = super().replay_input(spark, request).rows
        existing = {file.name for file in list_files(spark, self.files, self._table).files}
        missing = tuple(sorted({row.path for row in listed.select("path").collect()} - existing))
        readable = listed.where(~listed["path"].isin(list(missing))) if missing else listed
        return ReplayInput(readable, missing_files=missing)

    def _stream_start(self, request: ReplayRequest) -> Version:
        """A stream that started with the first file counts as started at 0: the first version lists no file."""
        start = super()._stream_start(request)
        return start if start.version > _EMPTY_VERSION + 1 else replace(start, version=0)

    def remarks(self, before: Position, after: Position) -> Iterator[str]:
        notes, self._notes = self._notes, []
        yield from notes


class FilesKind:
    def open(self, table: TablePlan, context: SourceContext) -> FilesReader:
        source = table.files
        assert source is not None
        return FilesReader(context.spark, source, context.open_store(source.uri), table.name)
