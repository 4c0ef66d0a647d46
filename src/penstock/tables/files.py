"""A batch of files as a batch of rows: which files are read and how, new fields, and files that cannot be read."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.errors import PenstockError, Terminal, Transient
from penstock.formats.base import reason
from penstock.ledger.checkpoint import KEPT
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import Pins
from penstock.ledger.row_counts import READ, REJECTED
from penstock.ledger.writer import BYTES_PER_FILE, BatchProcessor, PinnedInputs
from penstock.sources.columns import SOURCE
from penstock.sources.files.format import FormatChoice, Survey, Unfit
from penstock.sources.files.lines import NEW_FIELD
from penstock.sources.files.types import (
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    decoder_schema,
    lacking,
    merged,
    no_more_columns,
    size_of,
    told,
    usable,
)
from penstock.sources.files.unreadable import find_unreadable, is_about_files, story
from penstock.spark.expressions import known_rows
from penstock.tables.columns import settle_columns
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.merge.merge import table_schema
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.quarantine import Quarantine
from penstock.tables.staged import StagedProcessor
from penstock.tables.suppression import SuppressingRows
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.formats.base import Decoder
    from penstock.ledger.entry import Entry, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import Chosen
    from penstock.sources.files.source import FilesReader
    from penstock.sources.files.unreadable import Trouble
    from penstock.storage.stores import Store
    from penstock.tables.merge.tombstones import TombstoneTable
    from penstock.tables.suppression import Suppression

# How a batch reads its files: with which schema, and without which of them. Decided once, before its first write, so
# that a batch that runs again after a crash gives the same rows.
#
# It is kept in the lake by generation and batch, not beside the offsets: a checkpoint that is rebuilt would lose it.


@dataclass(frozen=True)
class FilesReading:
    look: FormatChoice
    given_up: Mapping[str, str] = field(default_factory=dict)
    """File -> why it cannot be read: it goes to quarantine by its name."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """File -> how often it was away so far."""


def store_reading(store: Store, folder: str, entry: Entry, reading: FilesReading) -> None:
    document = {
        "before": list(entry.before),
        "after": list(entry.after),
        "schema": reading.look.schema.jsonValue(),
        "left_out": list(reading.look.left_out),
        "watchful": reading.look.watchful,
        "given_up": dict(reading.given_up),
        "tries": dict(reading.tries),
    }
    store.write(_place(folder, entry.generation, entry.batch), json.dumps(document, ensure_ascii=False))
    if entry.batch > KEPT:
        store.delete(_place(folder, entry.generation, entry.batch - KEPT))


def read_reading(store: Store, folder: str, entry: Entry) -> FilesReading | None:
    """None if the batch was never begun, or planned anew over other files."""
    document: Any = json.loads(store.read(_place(folder, entry.generation, entry.batch)) or "null")
    if not isinstance(document, dict) or (document["before"], document["after"]) != (
        list(entry.before),
        list(entry.after),
    ):
        return None
    look = FormatChoice(StructType.fromJson(document["schema"]), tuple(document["left_out"]), document["watchful"])
    return FilesReading(look, document["given_up"], document["tries"])


def _place(folder: str, generation: int, batch: int) -> str:
    return f"{folder}/{generation}/{batch}.json"


# New fields in the files of a batch: what the project wants done with them is decided before a row is written.


_SHOWN_FIELDS = 20


def surveyed(reader: FilesReader, names: Sequence[str], look: FormatChoice, fields: StructType) -> FormatChoice:
    """By what the headers or footers of the files name."""
    if reader.files.new_fields not in ("add", "fail") or not look.watchful:
        return look
    grown = merged(look.schema, usable(fields))
    if grown == look.schema and not _strange(reader, fields, grown, look):
        return look
    if grown != look.schema and reader.files.format == "csv":  # a header names fields, and no types
        grown = merged(look.schema, usable(reader.schema.format.infer(names)))
    return _kept(reader, look, _grown(reader, look, grown, fields))


def met(reader: FilesReader, names: Sequence[str], look: FormatChoice) -> FormatChoice:
    """A read met a field that the schema does not name. What of it still has no place is left out from now on, by its
    path."""
    return _met(reader, look, reader.schema.format.new(names, look))


def redriven(reader: FilesReader, names: Sequence[str], look: FormatChoice, lines: Chosen) -> FormatChoice:
    """The same of lines that were rejected when their batch was read, and brought no column then."""
    if reader.files.new_fields != "add" or not look.watchful or not names:
        return look
    found = reader.schema.format.new(names, look, lines)
    return _met(reader, look, found) if found.fields else look


def _met(reader: FilesReader, look: FormatChoice, found: StructType) -> FormatChoice:
    made = _grown(reader, look, merged(look.schema, usable(found)), found)
    if made == look and reader.files.new_fields == "add":  # an object with more fields than are looked at
        reader.note("an object has more fields than can be columns: those beyond are left out")
        return replace(look, watchful=False)
    return _kept(reader, look, made)


def _grown(reader: FilesReader, look: FormatChoice, grown: StructType, found: StructType) -> FormatChoice:
    """By as many fields as a table may have; `found` are those of the files. With `fail` nothing is left out: it is
    told."""
    schema = grown
    if reader.files.new_fields == "add":
        room = MOST_ADDED - (size_of(look.schema) - reader.schema.declared_fields(look.schema))
        if size_of(grown) - size_of(look.schema) > room:
            schema = bounded(look.schema, grown, room)
    kept = (*look.left_out, *_strange(reader, found, schema, look))
    full = schema != grown or len(kept) > MOST_LEFT_OUT
    return replace(look, schema=schema, left_out=kept[:MOST_LEFT_OUT], watchful=look.watchful and not full)


def _kept(reader: FilesReader, look: FormatChoice, made: FormatChoice) -> FormatChoice:
    strange = made.left_out[len(look.left_out) :]
    if reader.files.new_fields == "fail":
        new = added(look.schema, made.schema)
        within = [path for path in lacking(made.schema, look.schema) if path not in new.names]
        what = ", ".join(filter(None, (told(new), *within, *strange))) or "more within an object than can be columns"
        raise Terminal(
            f"the files have fields that the table does not: {what}",
            where=reader.table,
            hint="write them into `schema`; or `new_fields: add` makes them columns, `rescue` keeps them as JSON",
        )
    reader.schema.keep(made)
    if strange:
        more = f" and {len(strange) - _SHOWN_FIELDS:,} more" if len(strange) > _SHOWN_FIELDS else ""
        shown = ", ".join(path[:80] for path in strange[:_SHOWN_FIELDS])
        reader.note(f"fields that cannot be columns are left out: {shown}{more}")
    if look.watchful and not made.watchful:
        reader.note(no_more_columns("files", "left out", MOST_ADDED))
    return made


def _strange(reader: FilesReader, found: StructType, schema: StructType, look: FormatChoice) -> list[str]:
    """The paths of fields without a column: their names are refused by Delta; of JSON also those that differ from
    another only in capitals, for there they are two fields."""
    exact = reader.files.format == "json"
    return sorted(path for path in lacking(found, schema, exact=exact) if path not in look.left_out)


# A batch of files could not be read: which of them is to blame, and how it is read then.


TRIES = 3
"""So often a file may be away before it is given up; between two tries the runner waits."""


def decide(
    reader: FilesReader,
    names: Sequence[str],
    reading: FilesReading,
    error: Exception,
    read: Callable[[Sequence[str]], DataFrame],
    keep: Callable[[FilesReading], None],
) -> FilesReading:
    """The next way to read the batch, kept before it is tried. Raises the error if no file is to blame, and Transient
    while one may come back."""
    if isinstance(error, Unfit):
        made = replace(reading, given_up={**reading.given_up, **error.reasons})
    elif isinstance(error, PenstockError):
        raise error
    elif NEW_FIELD in story(error):
        made = replace(reading, look=met(reader, names, reading.look))
    elif is_about_files(error):
        found = find_unreadable(names, read, reader.schema.format.probe, error, reader.files)
        if not found:
            raise error
        return _without(reader, reading, found, keep)
    else:
        raise error
    keep(made)
    return made


def _without(
    reader: FilesReader, reading: FilesReading, found: Mapping[str, Trouble], keep: Callable[[FilesReading], None]
) -> FilesReading:
    tries, given_up = dict(reading.tries), dict(reading.given_up)
    away: list[str] = []
    for name, trouble in found.items():
        tries[name] = tries.get(name, 0) + 1
        if trouble.kind != "away" or tries[name] >= TRIES:
            given_up[name] = trouble.reason
        else:
            away.append(name)
    made = replace(reading, given_up=given_up, tries=tries)
    keep(made)
    if away:
        raise Transient(f"{', '.join(away[:3])} cannot be read now: {found[away[0]].reason}", where=reader.table)
    return made


# The quarantine of a table that reads files: beside rejected rows it holds, by their names, files that cannot be
# read.


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


# A batch of files as a batch of rows: the files that its part of the manifest names are read, and their rows handed
# to the stages of the table.


_FILES_A_TASK = 500
_PACKED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_UNPACKED = 4
"""Bytes of text in a byte of a compressed file, roughly: it decides how many files are written."""
_DECISIONS = 50
_SHOWN_FILES = 5


@dataclass(frozen=True)
class ListedFiles:
    name: str
    size: int


def staged_table(table: TablePlan, reader: FilesReader, look: FormatChoice, survey: Survey) -> StagedPipeline:
    """The stages of the table for files with that schema."""

    def decoder(plan: DecodePlan, binary: str | None) -> Decoder:
        made = reader.schema.format.decoder(plan, binary, look, survey)
        assert made is not None
        return made

    return StagedPipeline(with_schema(table, look), decoder if reader.files.by_line else None)


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


def with_schema(table: TablePlan, look: FormatChoice) -> TablePlan:
    stages = table.stages
    assert stages is not None
    if stages.decode is None or not table.input.raw:
        return table
    return replace(table, stages=replace(stages, decode=replace(stages.decode, schema=decoder_schema(look.schema))))


class FilesProcessor(BatchProcessor):
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
        self._settled: FormatChoice | None = None
        self._inner: IsolatingProcessor | None = None
        self.remarks: tuple[str, ...] = ()
        """Of records that were set aside."""
        self._rows: DataFrame | None = None
        self._reading: FilesReading | None = None
        self._survey: Survey | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.look()
        return PinnedInputs(self._lookups.newest())

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        listed = _listed(batch)
        begun = read_reading(self._store, self._source.reads, entry)
        reading = begun or FilesReading(self._reader.schema.require())
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

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        if written and self._inner is not None and self._rows is not None and self._reading is not None:
            reading = self._reading
            self._quarantine.aside = dict(reading.given_up)
            row_counts = self._inner.complete(self._rows, entry, rows=rows, written=True)
            self.remarks = self._inner.remarks
            whole = True
        else:
            reading, row_counts, whole = self._again(batch, entry, rows)
        self._quarantine.add_files(entry)
        if written and reading.given_up:
            self._reader.note(_told(reading))
        if not row_counts or not whole:
            return {}
        count = len(reading.given_up)  # each file that was given up counts as a record that was rejected
        return {**row_counts, READ: row_counts[READ] + count, REJECTED: row_counts[REJECTED] + count}

    def done(self) -> None:
        self._let_go()
        self._suppression.let_go()
        self._quarantine.aside, self._reading, self.remarks = {}, None, ()

    def _prepare(self, listed: Sequence[ListedFiles], reading: FilesReading, entry: Entry) -> FilesReading:
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

    def _staged(self, look: FormatChoice, stages: StagedPipeline) -> IsolatingProcessor:
        table, suppression = with_schema(self._table, look), self._suppression
        staged = StagedProcessor(table, stages, self._lookups, self._quarantine, suppression, self._tombstones)
        return IsolatingProcessor(SuppressingRows(staged, suppression), staged, table, self._log)

    def _again(self, batch: DataFrame, entry: Entry, rows: int) -> tuple[FilesReading, RowCounts, bool]:
        """The good rows are in the table already. A file that has gone since then cannot tell any more what was
        rejected of it: that is said in its place."""
        listed = _listed(batch)
        reading = read_reading(self._store, self._source.reads, entry) or FilesReading(self._reader.schema.require())
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

    def _read(self, names: Sequence[str], look: FormatChoice) -> DataFrame:
        """As the batch reads them, to find out which cannot be read; only as text if it did not come so far."""
        if self._survey is None:
            return self._format.plain(names, look.schema)
        return self._format.rows(names, look, self._survey, _tasks([ListedFiles(name, 0) for name in names]))

    def _keep(self, entry: Entry, reading: FilesReading) -> None:
        if reading != self._reading:
            store_reading(self._store, self._source.reads, entry, reading)
            self._reading = reading

    def _names(self, listed: Sequence[ListedFiles], reading: FilesReading) -> list[str]:
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


def _listed(batch: DataFrame) -> list[ListedFiles]:
    """A batch of the manifest: as many names as `max_files` allows."""
    found = {row.path: ListedFiles(row.path, row.size) for row in batch.select("path", "size").collect()}
    return [found[name] for name in sorted(found)]


def _tasks(listed: Sequence[ListedFiles]) -> int:
    """How many tasks read the files, and how many files are written: a small batch costs one."""
    size = sum(file.size * (_UNPACKED if file.name.endswith(_PACKED) else 1) for file in listed)
    return max(1, math.ceil(size / BYTES_PER_FILE), math.ceil(len(listed) / _FILES_A_TASK))


def _told(reading: FilesReading) -> str:
    names = list(reading.given_up)
    more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
    what = "1 file" if len(names) == 1 else f"{len(names)} files"
    shown = "; ".join(f"{name} ({reading.given_up[name]})" for name in names[:_SHOWN_FILES])
    return f"{what} could not be read and went to quarantine: {shown}{more}"
