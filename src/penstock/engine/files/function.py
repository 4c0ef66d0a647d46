"""A batch of files as a batch of rows: the files that its part of the manifest names are read, and their rows handed to
the stages of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.files.decide import decide
from penstock.engine.files.evolve import surveyed
from penstock.engine.files.format import Look, Survey, Unfit
from penstock.engine.files.quarantine import FileQuarantine
from penstock.engine.files.reader import FilesReader
from penstock.engine.files.reading import Reading, read_reading, store_reading
from penstock.engine.files.types import decoder_schema
from penstock.engine.files.unreadable import find_unreadable, is_about_files
from penstock.engine.forget.function import Forgetting
from penstock.engine.forget.suppression import Suppression
from penstock.engine.isolation.function import Isolating
from penstock.engine.lookups import Lookups
from penstock.engine.merge.merging import table_schema
from penstock.engine.merge.tombstone_table import TombstoneTable
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import READ, REJECTED, Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.write import BYTES_PER_FILE
from penstock.engine.schema import settle_columns
from penstock.engine.staged import Staged
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.decode import Decoder
from penstock.engine.stages.function import StagedTable
from penstock.engine.store import Store
from penstock.plan.model import TablePlan
from penstock.plan.stages import DecodePlan

_FILES_A_TASK = 500
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_UNPACKED = 4
"""Bytes of text in a byte of a compressed file, roughly: it decides how many files are written."""
_DECISIONS = 50
_SHOWN = 5


@dataclass(frozen=True)
class Listed:
    name: str
    size: int


def staged_table(table: TablePlan, reader: FilesReader, look: Look, survey: Survey) -> StagedTable:
    """The stages of the table for files with that schema."""

    def decoder(plan: DecodePlan, binary: str | None) -> Decoder:
        made = reader.schema.format.decoder(plan, binary, look, survey)
        assert made is not None
        return made

    return StagedTable(with_schema(table, look), decoder if reader.files.by_line else None)


def files_schema(table: TablePlan, store: Store, reader: FilesReader) -> tuple[StructType, str]:
    """The columns of the table, and the type of its rows' coordinates. Reads no row, unless a schema is inferred."""
    look = reader.schema.require()
    stages = staged_table(table, reader, look, Survey())
    empty = reader.schema.format.rows((), look, Survey(), 1)
    lookups = Lookups(table, store)
    pins = Pins(0, "", lookups.newest())
    beside = lookups.read(empty.sparkSession, pins)
    stages.refuse_chance(empty, beside)
    made = stages.make(empty, pins, beside)
    return table_schema(table, made.rows), made.judged[0].rejected().schema[SOURCE].dataType.simpleString()


def with_schema(table: TablePlan, look: Look) -> TablePlan:
    stages = table.stages
    assert stages is not None
    if stages.decode is None or not table.input.raw:
        return table
    return replace(table, stages=replace(stages, decode=replace(stages.decode, schema=decoder_schema(look.schema))))


class FilesFunction:
    def __init__(
        self,
        spark: SparkSession,
        table: TablePlan,
        store: Store,
        reader: FilesReader,
        quarantine: FileQuarantine,
        suppression: Suppression,
        tombstones: TombstoneTable | None = None,
    ) -> None:
        self._tombstones = tombstones
        self._spark, self._table, self._store, self._reader = spark, table, store, reader
        self._source, self._format = reader.files, reader.schema.format
        self._quarantine, self._lookups = quarantine, Lookups(table, store)
        self._suppression = suppression
        self._log = DeltaLog(store, table.uri, table.name)
        self._settled: Look | None = None
        self._inner: Isolating | None = None
        self.remarks: tuple[str, ...] = ()
        """Of records that were set aside."""
        self._rows: DataFrame | None = None
        self._reading: Reading | None = None
        self._survey: Survey | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        self._suppression.look()
        return Pinned(self._lookups.newest())

    @property
    def grown(self) -> bool:
        return self._suppression.grown

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        listed = _listed(batch)
        begun = read_reading(self._store, self._source.reads, entry)
        reading = begun or Reading(self._reader.schema.require())
        for _ in range(_DECISIONS):
            try:
                reading = self._prepare(listed, reading, entry)
                assert self._inner is not None and self._rows is not None
                self._inner.write(self._rows, entry, into, files=_tasks(listed))
                return
            except Exception as error:
                self._let_go()
                if self._is_committed(entry):  # what was raised then is no matter of the files
                    raise
                names = self._names(listed, reading)
                read = partial(self._read, look=reading.look)
                reading = decide(self._reader, names, reading, error, read, partial(self._keep, entry))
        raise AssertionError(f"{_DECISIONS} decisions about one batch of files")

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        if written and self._inner is not None and self._rows is not None and self._reading is not None:
            reading = self._reading
            self._quarantine.aside = dict(reading.given_up)
            fates = self._inner.complete(self._rows, entry, rows=rows, written=True)
            self.remarks = self._inner.remarks
            whole = True
        else:
            reading, fates, whole = self._again(batch, entry, rows)
        self._quarantine.add_files(entry)
        if written and reading.given_up:
            self._reader.note(_told(reading))
        if not fates or not whole:
            return {}
        count = len(reading.given_up)  # each file that was given up counts as a record that was rejected
        return {**fates, READ: fates[READ] + count, REJECTED: fates[REJECTED] + count}

    def done(self) -> None:
        self._let_go()
        self._suppression.let_go()
        self._quarantine.aside, self._reading, self.remarks = {}, None, ()

    def _prepare(self, listed: Sequence[Listed], reading: Reading, entry: Entry) -> Reading:
        """The rows of the batch, and the stages for them; columns that they bring are added to the table."""
        names = self._names(listed, reading)
        if not self._source.by_line and (empty := [f.name for f in listed if not f.size and f.name in names]):
            raise Unfit(dict.fromkeys(empty, _EMPTY))
        self._survey = None
        survey = self._survey = self._format.survey(names, reading.look.schema) if names else Survey()
        look = surveyed(self._reader, names, reading.look, survey.fields)
        reading = replace(reading, look=look)
        self._keep(entry, reading)
        stages = staged_table(self._table, self._reader, look, survey)
        self._rows = self._format.rows(names, look, survey, _tasks(listed))
        if self._source.new_fields == "add" and self._settled != look:
            made = stages.make(self._rows, entry.pins, self._lookups.read(self._rows.sparkSession, entry.pins))
            if evolved := settle_columns(self._spark, self._table, table_schema(self._table, made.rows)):
                self._reader.note(evolved)
            self._settled = look
        self._inner = self._staged(look, stages)
        return reading

    def _staged(self, look: Look, stages: StagedTable) -> Isolating:
        table, suppression = with_schema(self._table, look), self._suppression
        staged = Staged(table, stages, self._lookups, self._quarantine, suppression, self._tombstones)
        return Isolating(Forgetting(staged, suppression), staged, table, self._log)

    def _again(self, batch: DataFrame, entry: Entry, rows: int) -> tuple[Reading, Fates, bool]:
        """The good rows are in the table already. A file that has gone since then cannot tell any more what was
        rejected of it: that is said in its place."""
        listed = _listed(batch)
        reading = read_reading(self._store, self._source.reads, entry) or Reading(self._reader.schema.require())
        lost: dict[str, str] = {}
        while True:
            names = [name for name in self._names(listed, reading) if name not in lost]
            try:
                self._survey = None
                # Which files are fit was decided when the batch was written.
                survey = self._survey = self._format.survey(names, StructType()) if names else Survey()
                stages = staged_table(self._table, self._reader, reading.look, survey)
                frame = self._format.rows(names, reading.look, survey, _tasks(listed))
                self._quarantine.aside = {**reading.given_up, **lost}
                inner = self._staged(reading.look, stages)
                return reading, inner.complete(frame, entry, rows=rows, written=False), not lost
            except Exception as error:
                if not is_about_files(error):
                    raise
                read = partial(self._read, look=reading.look)
                found = find_unreadable(names, read, self._format.probe, error, self._source)
                if not found:
                    raise
                lost |= {name: f"{_LOST}: {trouble.reason}" for name, trouble in found.items()}

    def _read(self, names: Sequence[str], look: Look) -> DataFrame:
        """As the batch reads them, to find out which cannot be read; only as text if it did not come so far."""
        if self._survey is None:
            return self._format.plain(names, look.schema)
        return self._format.rows(names, look, self._survey, _tasks([Listed(name, 0) for name in names]))

    def _keep(self, entry: Entry, reading: Reading) -> None:
        if reading != self._reading:
            store_reading(self._store, self._source.reads, entry, reading)
            self._reading = reading

    def _names(self, listed: Sequence[Listed], reading: Reading) -> list[str]:
        return [file.name for file in listed if file.name not in reading.given_up]

    def _is_committed(self, entry: Entry) -> bool:
        since = -1 if entry.seen is None else entry.seen
        return any(commit.entry is not None and commit.entry.key == entry.key for commit in self._log.since(since))

    def _let_go(self) -> None:
        inner, self._inner, self._rows = self._inner, None, None
        if inner is not None:
            inner.done()


_EMPTY = "it is empty, so it is not a Parquet file"
_LOST = "its good rows are in the table; what was rejected of it can no longer be read"


def _listed(batch: DataFrame) -> list[Listed]:
    """A batch of the manifest: as many names as `max_files` allows."""
    found = {row.path: Listed(row.path, row.size) for row in batch.select("path", "size").collect()}
    return [found[name] for name in sorted(found)]


def _tasks(listed: Sequence[Listed]) -> int:
    """How many tasks read the files, and how many files are written: a small batch costs one."""
    size = sum(file.size * (_UNPACKED if file.name.endswith(_PACKED) else 1) for file in listed)
    return max(1, math.ceil(size / BYTES_PER_FILE), math.ceil(len(listed) / _FILES_A_TASK))


def _told(reading: Reading) -> str:
    names = list(reading.given_up)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    what = "1 file" if len(names) == 1 else f"{len(names)} files"
    shown = "; ".join(f"{name} ({reading.given_up[name]})" for name in names[:_SHOWN])
    return f"{what} could not be read and went to quarantine: {shown}{more}"
