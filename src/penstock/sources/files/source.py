"""A folder of files as the source of a table: a reader of its manifest, which is kept up to date by looking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.errors import DataLoss, Terminal
from penstock.ledger.position import Version, parse_version
from penstock.ledger.source import Move, ReplayInput, Start
from penstock.sources.delta import DeltaReader
from penstock.sources.delta_changes import table_id, unbroken
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

_CREATED = 0
"""The version of the manifest that holds no file yet."""


class FilesReader(DeltaReader):
    def __init__(self, spark: SparkSession, source: FilesSource, store: Store, table: str) -> None:
        """`look` finds the files, and asks for the table's run lock: two that look at once would list a file twice."""
        self.spark, self.store, self.files = spark, store, source
        self._lister = Lister(spark, store, source, table)
        self._one_look = threading.Lock()
        self._notes: list[str] = []
        self.schema = FileSchema(spark, store, source, table)
        super().__init__(source, store, table)

    @property
    def table(self) -> str:
        return self._table

    def look(self) -> list[str]:
        """New files into the manifest; what a person should know."""
        with self._one_look:
            return self._lister.look()

    def note(self, remark: str) -> None:
        """Said with the batch that is being written."""
        self._notes.append(remark)

    def start(self) -> Start:
        self.schema.require()
        self._versions = self._log.versions()
        identity = table_id(self._log, self._versions)
        if identity is None:
            raise Terminal(
                f"the id of the list of files, {self.files.uri}, is not in its log", where=self._table, hint=self._again
            )
        if self.files.starting.kind == "latest":
            at = Version(identity, self._versions[-1] + 1)
        elif unbroken(self._versions) <= _CREATED + 1:
            at = Version(identity, _CREATED + 1)
        else:  # commits have been cleaned up: what they added is read from the table as it is
            at = Version(identity, self._versions[-1], snapshot=True)
        said = "files that come from now on" if self.files.starting.kind == "latest" else "its first file"
        notes = tuple(self.schema.story())
        return Start((str(at),), {self._name: identity}, f"{said} in {self.files.folder}", notes)

    def follow(self, entry: Entry) -> Move | None:
        if dict(entry.subscription) == self.subscription:
            return None
        start = self.start()
        return Move(start.position, start.ids, f"reads the files in {self.files.folder}, no longer another source")

    def refuse_lost(self, entry: Entry) -> None:
        self._versions = self._log.versions()
        identity, at = table_id(self._log, self._versions), parse_version(entry.after[0])
        if identity is not None and identity != at.table_id:
            raise DataLoss(
                f"the list of files that were read, {self.files.uri}, was deleted or made again: nobody knows which "
                "files are in the table",
                where=self._table,
                hint=self._again,
            )
        super().refuse_lost(entry)

    @property
    def _again(self) -> str:
        return (
            f"put it back; or decide: `penstock checkpoints reset {self._table} --to latest` takes the files that are "
            "there now for read, `--to earliest` reads them all again"
        )

    def covered(self, spark: SparkSession, asked: ReplayRequest) -> ReplayInput:
        """A file that is no longer there cannot be read again."""
        listed = super().covered(spark, asked).rows
        there = {file.name for file in list_files(spark, self.files, self._table).files}
        gone = tuple(sorted({row.path for row in listed.select("path").collect()} - there))
        held = listed.where(~listed["path"].isin(list(gone))) if gone else listed
        return ReplayInput(held, gone=gone)

    def _began(self, asked: ReplayRequest) -> Version:
        """The first version of the list has no file."""
        began = super()._began(asked)
        return began if began.version > _CREATED + 1 else replace(began, version=0)

    def remarks(self, before: Position, after: Position) -> Iterator[str]:
        notes, self._notes = self._notes, []
        yield from notes


class FilesKind:
    def open(self, table: TablePlan, context: SourceContext) -> FilesReader:
        source = table.files
        assert source is not None
        return FilesReader(context.spark, source, context.open_store(source.uri), table.name)
