"""Reads a batch of files as rows: with which schema, with which new fields, and without files that cannot be read."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from penstock.errors import PenstockError, Terminal, Transient
from penstock.formats.base import reason
from penstock.ledger.checkpoint import BATCH_FILES_KEPT
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.row_counts import READ, REJECTED
from penstock.ledger.writer import BYTES_PER_FILE, PinnedInputs
from penstock.sources.files.format import FormatChoice, Survey, UnfitFiles
from penstock.sources.files.lines import NEW_FIELD
from penstock.sources.files.types import (
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    decoder_schema,
    merged,
    missing_fields,
    no_more_columns,
    schema_text,
    size_of,
    usable,
)
from penstock.sources.files.unreadable import error_text, find_unreadable, is_about_files
from penstock.spark.expressions import known_rows
from penstock.tables.columns import settle_columns
from penstock.tables.expectations import as_rejected
from penstock.tables.failing_rows import is_committed
from penstock.tables.isolation import IsolatingProcessor
from penstock.tables.merge.merge import table_schema
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.quarantine import Quarantine
from penstock.tables.staged import StagedProcessor
from penstock.tables.suppression import SuppressingRows, TableProcessor
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.formats.base import Decoder
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import RowFilter
    from penstock.sources.files.source import FilesReader
    from penstock.sources.files.unreadable import UnreadableFile
    from penstock.storage.stores import Store
    from penstock.tables.merge.tombstones import TombstoneTable
    from penstock.tables.suppression import Suppression

# How a batch reads its files: with which schema, and without which files. This is decided once, before the first write,
# so that a batch that runs again after a crash gives the same rows.
#
# It is stored in the lake by generation and batch, not beside the offsets: a rebuilt checkpoint would lose it.


@dataclass(frozen=True)
class FilesReading:
    choice: FormatChoice
    given_up: Mapping[str, str] = field(default_factory=dict)
    """File -> why it cannot be read; its name goes to quarantine."""
    tries: Mapping[str, int] = field(default_factory=dict)
    """File -> how often it was unavailable so far."""


def store_reading(store: Store, folder: str, entry: Entry, reading: FilesReading) -> None:
    document = {
        "before": list(entry.before),
        "after": list(entry.after),
        "schema": reading.choice.schema.jsonValue(),
        "left_out": list(reading.choice.left_out),
        "watchful": reading.choice.stops_at_new_fields,
        "given_up": dict(reading.given_up),
        "tries": dict(reading.tries),
    }
    store.write(_reading_path(folder, entry.generation, entry.batch), json.dumps(document, ensure_ascii=False))
    if entry.batch > BATCH_FILES_KEPT:
        store.delete(_reading_path(folder, entry.generation, entry.batch - BATCH_FILES_KEPT))


def read_reading(store: Store, folder: str, entry: Entry) -> FilesReading | None:
    """The stored reading; None if the batch was never begun, or was planned again with other files."""
    document: Any = json.loads(store.read(_reading_path(folder, entry.generation, entry.batch)) or "null")
    if not isinstance(document, dict) or (document["before"], document["after"]) != (
        list(entry.before),
        list(entry.after),
    ):
        return None
    choice = FormatChoice(StructType.fromJson(document["schema"]), tuple(document["left_out"]), document["watchful"])
    return FilesReading(choice, document["given_up"], document["tries"])


def _reading_path(folder: str, generation: int, batch: int) -> str:
    return f"{folder}/{generation}/{batch}.json"


# New fields in the files of a batch. They are handled as the project says before a row is written.


_SHOWN_FIELDS = 20


def extend_by_survey(
    reader: FilesReader, names: Sequence[str], choice: FormatChoice, fields: StructType
) -> FormatChoice:
    """The choice extended by the fields that the files' headers or footers name."""
    if reader.files.new_fields not in ("add", "fail") or not choice.stops_at_new_fields:
        return choice
    grown = merged(choice.schema, usable(fields))
    if grown == choice.schema and not _fields_without_column(reader, fields, grown, choice):
        return choice
    if grown != choice.schema and reader.files.format == "csv":  # a header names fields but no types
        grown = merged(choice.schema, usable(reader.schema.format.infer(names)))
    return _record_choice(reader, choice, _grow_choice(reader, choice, grown, fields))


def extend_by_new_fields(reader: FilesReader, names: Sequence[str], choice: FormatChoice) -> FormatChoice:
    """The choice after a read met a field that the schema does not name. Paths that still have no column are left out
    from now on."""
    return _extend_choice(reader, choice, reader.schema.format.new_fields(names, choice))


def extend_by_rejected_lines(
    reader: FilesReader, names: Sequence[str], choice: FormatChoice, lines: RowFilter
) -> FormatChoice:
    """The same for lines that were rejected when their batch was read, and so added no column then."""
    if reader.files.new_fields != "add" or not choice.stops_at_new_fields or not names:
        return choice
    new_fields = reader.schema.format.new_fields(names, choice, lines)
    return _extend_choice(reader, choice, new_fields) if new_fields.fields else choice


def _extend_choice(reader: FilesReader, choice: FormatChoice, new_fields: StructType) -> FormatChoice:
    extended = _grow_choice(reader, choice, merged(choice.schema, usable(new_fields)), new_fields)
    if extended == choice and reader.files.new_fields == "add":  # an object with more fields than are examined
        reader.note("an object has more fields than can be columns: those beyond are left out")
        return replace(choice, stops_at_new_fields=False)
    return _record_choice(reader, choice, extended)


def _grow_choice(reader: FilesReader, choice: FormatChoice, grown: StructType, file_fields: StructType) -> FormatChoice:
    """The choice extended by as many fields as a table may have. `file_fields` are those of the files. With `fail`
    nothing is left out: all of it is reported."""
    schema = grown
    if reader.files.new_fields == "add":
        room = MOST_ADDED - (size_of(choice.schema) - reader.schema.declared_fields(choice.schema))
        if size_of(grown) - size_of(choice.schema) > room:
            schema = bounded(choice.schema, grown, room)
    left_out = (*choice.left_out, *_fields_without_column(reader, file_fields, schema, choice))
    full = schema != grown or len(left_out) > MOST_LEFT_OUT
    return replace(
        choice,
        schema=schema,
        left_out=left_out[:MOST_LEFT_OUT],
        stops_at_new_fields=choice.stops_at_new_fields and not full,
    )


def _record_choice(reader: FilesReader, choice: FormatChoice, extended: FormatChoice) -> FormatChoice:
    without_column = extended.left_out[len(choice.left_out) :]
    if reader.files.new_fields == "fail":
        new = added(choice.schema, extended.schema)
        nested = [path for path in missing_fields(extended.schema, choice.schema) if path not in new.names]
        description = (
            ", ".join(filter(None, (schema_text(new), *nested, *without_column)))
            or "more within an object than can be columns"
        )
        raise Terminal(
            f"the files have fields that the table does not: {description}",
            where=reader.table,
            hint="write them into `schema`; or `new_fields: add` makes them columns, `rescue` keeps them as JSON",
        )
    reader.schema.keep(extended)
    if without_column:
        more = f" and {len(without_column) - _SHOWN_FIELDS:,} more" if len(without_column) > _SHOWN_FIELDS else ""
        shown = ", ".join(path[:80] for path in without_column[:_SHOWN_FIELDS])
        reader.note(f"fields that cannot be columns are left out: {shown}{more}")
    if choice.stops_at_new_fields and not extended.stops_at_new_fields:
        reader.note(no_more_columns("files", "left out", MOST_ADDED))
    return extended


def _fields_without_column(
    reader: FilesReader, file_fields: StructType, schema: StructType, choice: FormatChoice
) -> list[str]:
    """The paths of fields that cannot be columns: Delta refuses their names, or in JSON they differ from another
    field only in letter case, which makes them two fields."""
    exact = reader.files.format == "json"
    return sorted(path for path in missing_fields(file_fields, schema, exact=exact) if path not in choice.left_out)


# What to do when a batch of files cannot be read: find the files to blame, and read it without them.


TRIES = 3
"""How often a file may be unavailable before it is given up; between two tries the runner waits."""
_FILL_PAUSE = 2.0
"""Seconds between two tries of a replay. The runner cannot wait for it: each repetition has a generation of its own,
which would begin to count again."""


def decide(
    reader: FilesReader,
    names: Sequence[str],
    reading: FilesReading,
    error: Exception,
    read: Callable[[Sequence[str]], DataFrame],
    keep: Callable[[FilesReading], None],
    pause: float | None = None,
) -> FilesReading:
    """The next reading of the batch to try, stored first. Raises the error if no file is to blame. While a file may
    become available again it waits for `pause` seconds, or raises Transient without one."""
    if isinstance(error, UnfitFiles):
        next_reading = replace(reading, given_up={**reading.given_up, **error.reasons})
    elif isinstance(error, PenstockError):
        raise error
    elif NEW_FIELD in error_text(error):
        next_reading = replace(reading, choice=extend_by_new_fields(reader, names, reading.choice))
    elif is_about_files(error):
        troubles = find_unreadable(names, read, reader.schema.format.probe, error, reader.files)
        if not troubles:
            raise error
        return _give_up_files(reader, reading, troubles, keep, pause)
    else:
        raise error
    keep(next_reading)
    return next_reading


def _give_up_files(
    reader: FilesReader,
    reading: FilesReading,
    troubles: Mapping[str, UnreadableFile],
    keep: Callable[[FilesReading], None],
    pause: float | None,
) -> FilesReading:
    tries, given_up = dict(reading.tries), dict(reading.given_up)
    unavailable: list[str] = []
    for name, trouble in troubles.items():
        tries[name] = tries.get(name, 0) + 1
        if trouble.kind != "away" or tries[name] >= TRIES:
            given_up[name] = trouble.reason
        else:
            unavailable.append(name)
    next_reading = replace(reading, given_up=given_up, tries=tries)
    keep(next_reading)
    if unavailable and pause is None:
        raise Transient(
            f"{', '.join(unavailable[:3])} cannot be read now: {troubles[unavailable[0]].reason}", where=reader.table
        )
    if unavailable and pause is not None:
        time.sleep(pause)
    return next_reading


# The quarantine of a table that reads files: besides rejected rows it holds the names of files that cannot be read.


UNREADABLE = "unreadable_file"


class FileQuarantine(Quarantine):
    unreadable_files: Mapping[str, str] = {}
    """File -> reason, for the batch that is being written."""

    def add(self, explained: DataFrame, entry: Entry, *, files: int = 1) -> int:
        rows = explained.unionByName(self._file_rows(explained.sparkSession)) if self.unreadable_files else explained
        return super().add(rows, entry, files=files)

    def add_files(self, entry: Entry) -> None:
        """Adds the files of a batch without rejected rows, unless the quarantine has the batch already."""
        if self.unreadable_files and not self.has(entry):
            super().add(self._file_rows(self._spark), entry)

    def _file_rows(self, spark: SparkSession) -> DataFrame:
        rows = [{"file": name, "detail": why} for name, why in self.unreadable_files.items()]
        frame = known_rows(spark, "file: STRING, detail: STRING", rows)
        return as_rejected(
            frame, {}, "named_struct('file', file, 'row', CAST(NULL AS BIGINT))", reason(UNREADABLE, "detail")
        )


# A batch of files as a batch of rows: reads the files that its part of the manifest names, and hands their rows to the
# stages of the table.


_FILES_PER_TASK = 500
_COMPRESSED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_EXPANSION = 4
"""Rough bytes of text per byte of a compressed file; it decides how many files are written."""
_MAX_DECISIONS = 50
_SHOWN_FILES = 5


@dataclass(frozen=True)
class ListedFiles:
    name: str
    size: int


def staged_table(table: TablePlan, reader: FilesReader, choice: FormatChoice, survey: Survey) -> StagedPipeline:
    """The stages of the table for files with the chosen schema."""

    def decoder(plan: DecodePlan, binary: str | None) -> Decoder:
        line_decoder = reader.schema.format.decoder(plan, binary, choice, survey)
        assert line_decoder is not None
        return line_decoder

    return StagedPipeline(with_schema(table, choice), decoder if reader.files.by_line else None)


def with_schema(table: TablePlan, choice: FormatChoice) -> TablePlan:
    stages = table.stages
    assert stages is not None
    if stages.decode is None or not table.input.raw:
        return table
    return replace(table, stages=replace(stages, decode=replace(stages.decode, schema=decoder_schema(choice.schema))))


class FilesProcessor(TableProcessor):
    remarks: tuple[str, ...] = ()
    """On records that were set aside."""

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
        self._rows: DataFrame | None = None
        self._reading: FilesReading | None = None
        self._survey: Survey | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.read_list()
        return PinnedInputs(self._lookups.newest())

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        listed = _listed(batch)
        stored = read_reading(self._store, self._source.reads, entry)
        reading = stored or FilesReading(self._reader.schema.require())
        for _ in range(_MAX_DECISIONS):
            try:
                reading = self._prepare(listed, reading, entry)
                assert self._inner is not None and self._rows is not None
                self._inner.write(self._rows, entry, write_target, files=_task_count(listed))
                return
            except Exception as error:
                self._release()
                if is_committed(self._log, entry):  # what was raised after the commit is not about the files
                    raise
                names = self._file_names(listed, reading)
                read = partial(self._read_files, choice=reading.choice)
                store, pause = partial(self._store_reading, entry), _FILL_PAUSE if entry.kind == "fill" else None
                reading = decide(self._reader, names, reading, error, read, store, pause)
        raise AssertionError(f"{_MAX_DECISIONS} decisions about one batch of files")

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        if written and self._inner is not None and self._rows is not None and self._reading is not None:
            reading = self._reading
            self._quarantine.unreadable_files = dict(reading.given_up)
            row_counts = self._inner.complete(self._rows, entry, rows=rows, written=True)
            self.remarks = self._inner.remarks
            is_complete = True
        else:
            reading, row_counts, is_complete = self._complete_written(batch, entry, rows)
        self._quarantine.add_files(entry)
        if written and reading.given_up:
            self._reader.note(_unreadable_note(reading))
        if not row_counts or not is_complete:
            return {}
        count = len(reading.given_up)  # each file given up counts as one rejected record
        return {**row_counts, READ: row_counts[READ] + count, REJECTED: row_counts[REJECTED] + count}

    def release(self) -> None:
        self._release()
        self._suppression.release()
        self._quarantine.unreadable_files, self._reading, self.remarks = {}, None, ()

    def _prepare(self, listed: Sequence[ListedFiles], reading: FilesReading, entry: Entry) -> FilesReading:
        """Sets up the rows of the batch and their stages, and adds new columns to the table."""
        names = self._file_names(listed, reading)
        if not self._source.by_line and (empty := [f.name for f in listed if not f.size and f.name in names]):
            raise UnfitFiles(dict.fromkeys(empty, _EMPTY))
        self._survey = None
        survey = self._survey = self._format.survey(names, reading.choice.schema) if names else Survey()
        choice = extend_by_survey(self._reader, names, reading.choice, survey.fields)
        reading = replace(reading, choice=choice)
        self._store_reading(entry, reading)
        stages = staged_table(self._table, self._reader, choice, survey)
        self._rows = self._format.rows(names, choice, survey, _task_count(listed))
        if self._source.new_fields == "add" and self._settled != choice:
            result = stages.run(self._rows, entry.pins, self._lookups.read(self._rows.sparkSession, entry.pins))
            if evolved := settle_columns(self._spark, self._table, table_schema(self._table, result.rows)):
                self._reader.note(evolved)
            self._settled = choice
        self._inner = self._build_processor(choice, stages)
        return reading

    def _build_processor(self, choice: FormatChoice, stages: StagedPipeline) -> IsolatingProcessor:
        table, suppression = with_schema(self._table, choice), self._suppression
        staged = StagedProcessor(table, stages, self._lookups, self._quarantine, suppression, self._tombstones)
        return IsolatingProcessor(SuppressingRows(staged, suppression), staged, table, self._log)

    def _complete_written(self, batch: DataFrame, entry: Entry, rows: int) -> tuple[FilesReading, RowCounts, bool]:
        """Completes a batch whose good rows are in the table already. If a file has disappeared since, its rejected
        rows are lost, and the quarantine says so under its name."""
        listed = _listed(batch)
        reading = read_reading(self._store, self._source.reads, entry) or FilesReading(self._reader.schema.require())
        lost_files: dict[str, str] = {}
        while True:
            names = [name for name in self._file_names(listed, reading) if name not in lost_files]
            try:
                self._survey = None
                # Which files are readable was decided when the batch was written.
                survey = self._survey = self._format.survey(names, StructType()) if names else Survey()
                stages = staged_table(self._table, self._reader, reading.choice, survey)
                frame = self._format.rows(names, reading.choice, survey, _task_count(listed))
                self._quarantine.unreadable_files = {**reading.given_up, **lost_files}
                inner = self._build_processor(reading.choice, stages)
                return reading, inner.complete(frame, entry, rows=rows, written=False), not lost_files
            except Exception as error:
                if not is_about_files(error):
                    raise
                read = partial(self._read_files, choice=reading.choice)
                troubles = find_unreadable(names, read, self._format.probe, error, self._source)
                if not troubles:
                    raise
                lost_files |= {name: f"{_LOST}: {trouble.reason}" for name, trouble in troubles.items()}

    def _read_files(self, names: Sequence[str], choice: FormatChoice) -> DataFrame:
        """Reads files as the batch does, to find those that cannot be read; as plain text if there is no survey yet."""
        if self._survey is None:
            return self._format.plain(names, choice.schema)
        return self._format.rows(names, choice, self._survey, _task_count([ListedFiles(name, 0) for name in names]))

    def _store_reading(self, entry: Entry, reading: FilesReading) -> None:
        if reading != self._reading:
            store_reading(self._store, self._source.reads, entry, reading)
            self._reading = reading

    def _file_names(self, listed: Sequence[ListedFiles], reading: FilesReading) -> list[str]:
        return [file.name for file in listed if file.name not in reading.given_up]

    def _release(self) -> None:
        inner, self._inner, self._rows = self._inner, None, None
        if inner is not None:
            inner.release()


_EMPTY = "it is empty, so it is not a Parquet file"
_LOST = "its good rows are in the table; what was rejected of it can no longer be read"


def _listed(batch: DataFrame) -> list[ListedFiles]:
    """The files that a batch of the manifest lists, by name: at most `max_files`."""
    files_by_name = {row.path: ListedFiles(row.path, row.size) for row in batch.select("path", "size").collect()}
    return [files_by_name[name] for name in sorted(files_by_name)]


def _task_count(listed: Sequence[ListedFiles]) -> int:
    """The number of tasks that read the files, and of files written: one for a small batch."""
    size = sum(file.size * (_EXPANSION if file.name.endswith(_COMPRESSED) else 1) for file in listed)
    return max(1, math.ceil(size / BYTES_PER_FILE), math.ceil(len(listed) / _FILES_PER_TASK))


def _unreadable_note(reading: FilesReading) -> str:
    names = list(reading.given_up)
    more = f" and {len(names) - _SHOWN_FILES} more" if len(names) > _SHOWN_FILES else ""
    count = "1 file" if len(names) == 1 else f"{len(names)} files"
    shown = "; ".join(f"{name} ({reading.given_up[name]})" for name in names[:_SHOWN_FILES])
    return f"{count} could not be read and went to quarantine: {shown}{more}"
