"""Records with fields that the schema does not name: `new_fields` of a table that decodes them.

A batch is read once, by a decoder that ends the read at such a field, before anything is written. Only then the batch
is read a second time for what the fields hold. The extended schema is stored in the lake, then the table gets its
columns, then the batch is written with them. After a crash anywhere in between, the next start finds the stored schema
and does the rest. The types depend only on the batch's records, not on their order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import Terminal
from penstock.formats.json import JsonDecoder
from penstock.formats.registry import open_decoder
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.writer import PinnedInputs
from penstock.sources.files.format import FormatChoice
from penstock.sources.files.lines import NEW_FIELD, RefusingJson, WatchfulJson, infer_json
from penstock.sources.files.types import (
    ANY_JSON,
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    decoder_schema,
    merged,
    missing_fields,
    mixed,
    no_more_columns,
    size_of,
    spark_schema,
    usable,
)
from penstock.sources.files.unreadable import error_text
from penstock.spec.schema import column_key
from penstock.spec.table_kinds import MERGE_COLUMNS, VALID
from penstock.tables.columns import settle_columns
from penstock.tables.failing_rows import is_committed
from penstock.tables.merge.merge import table_schema
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.suppression import TableProcessor
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.formats.base import Decoder
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import BatchProcessor
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DecodePlan
    from penstock.storage.stores import Store
    from penstock.tables.suppression import Suppression

_MAX_DECISIONS = 20
_SHOWN = 10
_MAX_TRIED = 50
"""How many new columns are tried one by one if they do not fit together."""


def adds_new_fields(table: TablePlan) -> bool:
    """Whether new fields of the table's records become columns, or stop it."""
    decode = table.stages.decode if table.stages else None
    return decode is not None and decode.new_fields in ("add", "fail")


class GrownSchema:
    """The declared columns of a table and those that its records added, stored in the lake."""

    def __init__(self, table: TablePlan, store: Store) -> None:
        assert table.stages is not None and table.stages.decode is not None
        assert table.stages.decode.schema is not None
        self._store, self._path = store, table.added_columns_path
        self.declared = spark_schema(table.stages.decode.schema)
        self._adds = table.stages.decode.new_fields == "add"

    def require(self) -> FormatChoice:
        document: Any = json.loads(self._store.read(self._path) or "null") if self._adds else None
        if not isinstance(document, dict):
            return FormatChoice(self.declared)
        stored = StructType.fromJson(document["schema"])
        return FormatChoice(merged(self.declared, stored), tuple(document["left_out"]), not document.get("full", False))

    def keep(self, choice: FormatChoice) -> None:
        """Stores the schema; called before anything is written with it."""
        self._store.write(self._path, json.dumps(choice.document, indent=1, ensure_ascii=False))


def stages_for(table: TablePlan, choice: FormatChoice, how: Literal["watch", "look", "judge"]) -> StagedPipeline:
    """The stages of the table with the chosen schema. `watch` ends a read at a field that is neither in it nor left
    out, `look` continues. `judge` is for records that run again: where new fields stop the table, it rejects them."""

    def decoder(plan: DecodePlan, binary: str | None) -> Decoder:
        inner = open_decoder(plan, binary)
        if isinstance(inner, JsonDecoder):  # no other format may add columns: format_rules
            inner = replace(inner, expected=choice.left_out, deep=plan.new_fields == "add")
        if how == "watch":
            return WatchfulJson(inner)
        return RefusingJson(inner) if how == "judge" and plan.new_fields == "fail" else inner

    return StagedPipeline(_with_columns(table, choice), decoder)


def _with_columns(table: TablePlan, choice: FormatChoice) -> TablePlan:
    stages = table.stages
    assert stages is not None and stages.decode is not None
    decode = stages.decode
    if decode.new_fields != "add":
        return table
    return replace(table, stages=replace(stages, decode=replace(decode, schema=decoder_schema(choice.schema))))


class GrowingTableProcessor(TableProcessor):
    """The processor of a table whose records may have new fields."""

    def __init__(
        self,
        spark: SparkSession,
        table: TablePlan,
        store: Store,
        suppression: Suppression,
        build: Callable[[StagedPipeline], BatchProcessor] | None = None,
    ) -> None:
        """`build` makes the table's processor from its stages; without it nothing is written."""
        assert table.stages is not None and table.stages.decode is not None
        self._spark, self._table, self._decode = spark, table, table.stages.decode
        self._lookups, self._suppression, self._build = Lookups(table, store), suppression, build
        self._schema = GrownSchema(table, store)
        self._log = DeltaLog(store, table.uri, table.name)
        self._choice: FormatChoice | None = None
        self._settled: StructType | None = None
        self._inner: BatchProcessor | None = None
        self._notes: list[str] = []

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.read_list()
        return PinnedInputs(self._lookups.newest())

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        choice = self._current_choice()
        if write_target.replaces_all:  # a rebuild cannot change its columns on the way, so it is examined first
            choice = self._choice_for_rebuild(batch, entry, choice, write_target)
        for _ in range(_MAX_DECISIONS):
            if not write_target.replaces_all:
                self._settle_columns(batch, entry, choice)
            inner = self._open_inner(choice, watch=choice.stops_at_new_fields and not write_target.replaces_all)
            try:
                inner.write(batch, entry, write_target, files=files)
                return
            except Exception as error:
                self._release()
                if NEW_FIELD not in error_text(error) or is_committed(self._log, entry):
                    raise
            choice = self._grow(batch, entry, choice)
        raise AssertionError(f"{_MAX_DECISIONS} decisions about the fields of one batch")

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        inner = self._inner if written else None
        if inner is None:
            inner, written = self._open_inner(self._current_choice(), watch=False), False
        row_counts = inner.complete(batch, entry, rows=rows, written=written)
        self._notes += inner.remarks
        return row_counts

    def release(self) -> None:
        self._release()
        self._suppression.release()
        self._notes = []

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for the user on the batch that was written."""
        return tuple(self._notes)

    def extend_by_rejected(self, batch: DataFrame, entry: Entry) -> FormatChoice:
        """The schema with the fields of records that were rejected when their batch was read, and so added no column
        then; the table gets the columns."""
        choice = self._current_choice()
        if self._decode.new_fields == "add" and choice.stops_at_new_fields:
            choice = self._grow(batch, entry, choice)
            self._settle_columns(batch, entry, choice)
        return choice

    def _current_choice(self) -> FormatChoice:
        """The current schema. Only this process writes the table, so it is read once."""
        if self._choice is None:
            self._choice = self._schema.require()
        return self._choice

    def _settle_columns(self, batch: DataFrame, entry: Entry, choice: FormatChoice) -> None:
        """Adds missing columns to the table, under its commit lock."""
        if self._decode.new_fields != "add" or self._settled == choice.schema:
            return
        if evolved := settle_columns(self._spark, self._table, self._columns(batch, entry, choice)):
            self._notes.append(evolved)
        self._settled = choice.schema

    def _columns(self, batch: DataFrame, entry: Entry, choice: FormatChoice) -> StructType:
        lookups = self._lookups.read(batch.sparkSession, entry.pins)
        result = stages_for(self._table, choice, "look").run(batch, entry.pins, lookups)
        return table_schema(self._table, result.rows)

    def _choice_for_rebuild(
        self, batch: DataFrame, entry: Entry, choice: FormatChoice, write_target: WriteTarget
    ) -> FormatChoice:
        grown = self._grow(batch, entry, choice) if choice.stops_at_new_fields else choice
        if grown.schema != choice.schema and write_target.columns is not None:
            write_target.columns(self._columns(batch, entry, grown))
        return grown

    def _grow(self, batch: DataFrame, entry: Entry, choice: FormatChoice) -> FormatChoice:
        """The schema extended by the good records of the batch that have an unknown field; stored before it is used."""
        records = self._suppression.drop_suppressed_input(batch)
        new = stages_for(self._table, choice, "look").with_unknown(records, entry.pins)
        if self._decode.new_fields == "fail":
            names = [str(row[0]) for row in new.select("unknown").distinct().limit(_SHOWN + 1).collect()]
            if names:
                raise _unknown_fields_error(self._table.name, names)
            return replace(choice, stops_at_new_fields=False)
        inferred, _ = infer_json(new.select("text"))
        grown, without_column = self._fit_fields(batch, entry, choice, inferred)
        if (grown.schema, grown.left_out) == (choice.schema, choice.left_out):  # all that can be done is to rescue it
            return replace(choice, stops_at_new_fields=False)
        self._note_changes(choice, grown, without_column)
        self._schema.keep(grown)
        self._choice = grown
        return grown

    def _fit_fields(
        self, batch: DataFrame, entry: Entry, choice: FormatChoice, inferred: StructType
    ) -> tuple[FormatChoice, list[str]]:
        """The schema with the fields that can be columns, and the paths of those that cannot."""
        reserved, existing = self._reserved_names(), self._existing_columns(choice)
        schema, candidates = choice.schema, StructType()
        room = MOST_ADDED - (size_of(choice.schema) - size_of(self._schema.declared))
        for _ in range(3):
            fields = [field for field in usable(inferred).fields if column_key(field.name) not in reserved]
            candidates = StructType([with_column_type(field, existing.get(column_key(field.name))) for field in fields])
            schema = bounded(choice.schema, candidates, room)
            if (clash := self._clashing_columns(batch, entry, choice, schema)) is None:
                break
            reserved |= clash
        else:
            schema, candidates = choice.schema, StructType()
        without_column = [path for path in missing_fields(inferred, schema) if path not in choice.left_out]
        left_out = (*choice.left_out, *without_column)
        wanted = bounded(choice.schema, candidates, sys.maxsize)
        full = size_of(wanted) > size_of(schema) or len(left_out) > MOST_LEFT_OUT
        return FormatChoice(schema, left_out[:MOST_LEFT_OUT], not full), without_column

    def _existing_columns(self, choice: FormatChoice) -> dict[str, DataType]:
        """The types of columns that the table has but the stored schema lacks, from another process or an older
        definition: a column has one type."""
        if self._table.stages is None or self._table.stages.transform is not None:
            return {}
        columns = self._spark.read.format("delta").load(self._table.uri).schema
        return {column_key(field.name): field.dataType for field in added(choice.schema, columns).fields}

    def _reserved_names(self) -> set[str]:
        """Names of columns that the table has from elsewhere."""
        names = {*self._decode.keep, *((*MERGE_COLUMNS, *VALID) if self._table.write.merge else ())}
        return {column_key(name) for name in names}

    def _clashing_columns(
        self, batch: DataFrame, entry: Entry, choice: FormatChoice, schema: StructType
    ) -> set[str] | None:
        """New columns whose names the transform gives to others, or that make it or Spark fail; all of them if it is
        unknown which: a producer must not stop the table by a name. None if they fit."""
        new = added(choice.schema, schema).fields
        if not new or self._fits(batch, entry, replace(choice, schema=schema)):
            return None
        self._columns(batch, entry, choice)  # raises what is wrong without them
        failing = {
            field.name
            for field in new[:_MAX_TRIED]
            if not self._fits(batch, entry, replace(choice, schema=StructType([*choice.schema.fields, field])))
        }
        return {column_key(name) for name in failing or {field.name for field in new}}

    def _fits(self, batch: DataFrame, entry: Entry, choice: FormatChoice) -> bool:
        try:
            names = [column_key(name) for name in self._columns(batch, entry, choice).names]
        except PySparkException:
            return False
        return len(set(names)) == len(names)

    def _note_changes(self, choice: FormatChoice, grown: FormatChoice, without_column: Sequence[str]) -> None:
        new = mixed(added(choice.schema, grown.schema))
        self._notes += [
            f"{name} has values of several kinds ({types}): it holds their JSON text" for name, types in new.items()
        ]
        if without_column:
            more = f" and {len(without_column) - _SHOWN:,} more" if len(without_column) > _SHOWN else ""
            shown = ", ".join(name[:80] for name in without_column[:_SHOWN])
            self._notes.append(f"fields that cannot be columns are kept in _rescued: {shown}{more}")
        if choice.stops_at_new_fields and not grown.stops_at_new_fields:
            self._notes.append(no_more_columns("records", "kept in _rescued", MOST_ADDED))

    def _open_inner(self, choice: FormatChoice, *, watch: bool) -> BatchProcessor:
        assert self._build is not None
        self._release()
        self._inner = self._build(stages_for(self._table, choice, "watch" if watch else "look"))
        return self._inner

    def _release(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.release()


def with_column_type(field: StructField, column_type: DataType | None) -> StructField:
    """The field with the type of its existing column; a text column takes other values as JSON text."""
    if column_type is None or column_type == field.dataType:
        return field
    if isinstance(column_type, StructType) and isinstance(field.dataType, StructType):
        return StructField(field.name, merged(column_type, field.dataType))
    metadata = {ANY_JSON: field.dataType.simpleString()} if isinstance(column_type, StringType) else {}
    return StructField(field.name, column_type, metadata=metadata)


def _unknown_fields_error(table: str, names: Sequence[str]) -> Terminal:
    more = ", and others" if len(names) > _SHOWN else ""
    return Terminal(
        f"the records have fields that the schema does not name: {', '.join(sorted(names[:_SHOWN]))}{more}",
        where=table,
        hint="nothing of the batch was written. Write them into the schema; or `new_fields: add` makes them columns, "
        "`rescue` keeps them as JSON",
    )
