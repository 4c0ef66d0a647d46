"""Records with fields that the schema does not name: `new_fields` of a table that decodes them.

A batch is read once, by a decoder that ends the read at such a field: nothing was written then. Only in that case the
batch is looked at a second time for what the fields hold. The schema that they make is kept in the lake, then the table
gets its columns, then the batch is written with them; killed anywhere between, the next start finds the kept schema and
does the rest. The types depend on the batch's records alone, not on their order.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import Terminal
from penstock.formats.base import case, reason
from penstock.formats.json import UNKNOWN, JsonDecoder
from penstock.formats.registry import open_decoder
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.writer import BatchProcessor, PinnedInputs
from penstock.sources.files.format import FormatChoice
from penstock.sources.files.lines import NEW_FIELD, infer_json
from penstock.sources.files.types import (
    ANY_JSON,
    MOST_ADDED,
    MOST_LEFT_OUT,
    added,
    bounded,
    decoder_schema,
    lacking,
    merged,
    mixed,
    no_more_columns,
    size_of,
    spark_schema,
    told,
    usable,
)
from penstock.sources.files.unreadable import story
from penstock.spark.sql_text import literal
from penstock.spec.schema import column_key
from penstock.spec.table_kinds import OWN, VALID
from penstock.tables.columns import settle_columns
from penstock.tables.merge.merge import table_schema
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.transform import Lookups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from penstock.formats.base import Decoded, Decoder
    from penstock.ledger.entry import Entry, Pins, RowCounts
    from penstock.ledger.write_target import WriteTarget
    from penstock.ledger.writer import BatchProcessor
    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DecodePlan
    from penstock.storage.stores import Store
    from penstock.tables.suppression import Suppression

_DECISIONS = 20
_SHOWN = 10
_TRIED = 50
"""New columns that are tried one by one if they do not fit."""


def grows(table: TablePlan) -> bool:
    """New fields of its records become columns, or stop it."""
    decode = table.stages.decode if table.stages else None
    return decode is not None and decode.new_fields in ("add", "fail")


class GrownSchema:
    """The declared columns of a table and those that its records brought; kept in the lake."""

    def __init__(self, table: TablePlan, store: Store) -> None:
        assert table.stages is not None and table.stages.decode is not None
        assert table.stages.decode.schema is not None
        self._store, self._place = store, table.grown
        self.declared = spark_schema(table.stages.decode.schema)
        self._adds = table.stages.decode.new_fields == "add"

    def require(self) -> FormatChoice:
        document: Any = json.loads(self._store.read(self._place) or "null") if self._adds else None
        if not isinstance(document, dict):
            return FormatChoice(self.declared)
        kept = StructType.fromJson(document["schema"])
        return FormatChoice(merged(self.declared, kept), tuple(document["left_out"]), not document.get("full", False))

    def keep(self, look: FormatChoice) -> None:
        """Before anything is written by it."""
        document = {
            "columns": told(look.schema),
            "left_out": list(look.left_out),
            "full": not look.watchful,
            "schema": look.schema.jsonValue(),
        }
        self._store.write(self._place, json.dumps(document, indent=1, ensure_ascii=False))


def stages_for(table: TablePlan, look: FormatChoice, how: Literal["watch", "look", "judge"]) -> StagedPipeline:
    """The stages of the table with that schema. `watch` ends a read at a field that is neither in it nor left out,
    `look` goes on. `judge` is for records that run again: where new fields stop the table, it rejects them."""

    def decoder(plan: DecodePlan, binary: str | None) -> Decoder:
        made = open_decoder(plan, binary)
        if isinstance(made, JsonDecoder):
            made = replace(made, expected=look.left_out, deep=plan.new_fields == "add")
        if how == "watch":
            return _Watching(made)
        return _Refusing(made) if how == "judge" and plan.new_fields == "fail" else made

    return StagedPipeline(_with_columns(table, look), decoder)


def _with_columns(table: TablePlan, look: FormatChoice) -> TablePlan:
    stages = table.stages
    assert stages is not None and stages.decode is not None
    decode = stages.decode
    if decode.new_fields != "add":
        return table
    return replace(table, stages=replace(stages, decode=replace(decode, schema=decoder_schema(look.schema))))


@dataclass(frozen=True)
class _Watching:
    """Records that are rejected bring no field."""

    inner: Decoder

    def decode(self, records: DataFrame) -> Decoded:
        made = self.inner.decode(records)
        new = f"IF({UNKNOWN} IS NOT NULL AND NOT {made.bad}, raise_error({literal(NEW_FIELD)}), false)"
        return replace(made, bad=f"({new} OR {made.bad})")


@dataclass(frozen=True)
class _Refusing:
    """A record with a field that nobody knows is rejected."""

    inner: Decoder

    def decode(self, records: DataFrame) -> Decoded:
        made = self.inner.decode(records)
        unknown = reason("unknown_field", f"concat({UNKNOWN}, ' is not in the schema')")
        known = f"{made.bad} OR {UNKNOWN} IS NULL"
        bad = f"({made.bad} OR ({UNKNOWN} IS NOT NULL AND NOT {made.gone}))"
        return replace(made, bad=bad, why=case([(known, made.why)], unknown))


class Growing(BatchProcessor):
    """The function of a table whose records may bring new fields."""

    def __init__(
        self,
        spark: SparkSession,
        table: TablePlan,
        store: Store,
        suppression: Suppression,
        build: Callable[[StagedPipeline], BatchProcessor] | None = None,
    ) -> None:
        """`build` makes the function of the table with the stages that are given; without it nothing is written."""
        assert table.stages is not None and table.stages.decode is not None
        self._spark, self._table, self._decode = spark, table, table.stages.decode
        self._lookups, self._suppression, self._build = Lookups(table, store), suppression, build
        self._schema = GrownSchema(table, store)
        self._log = DeltaLog(store, table.uri, table.name)
        self._look: FormatChoice | None = None
        self._settled: StructType | None = None
        self._inner: BatchProcessor | None = None
        self._notes: list[str] = []

    @property
    def outdated(self) -> bool:
        return self._suppression.grown

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> PinnedInputs:
        self._suppression.look()
        return PinnedInputs(self._lookups.newest())

    def write(self, batch: DataFrame, entry: Entry, into: WriteTarget, *, files: int) -> None:
        look = self._known()
        if into.anew:  # what is written anew cannot change its columns on the way: it is looked at first
            look = self._rebuilt(batch, entry, look, into)
        for _ in range(_DECISIONS):
            if not into.anew:
                self._settle(batch, entry, look)
            inner = self._opened(look, watch=look.watchful and not into.anew)
            try:
                inner.write(batch, entry, into, files=files)
                return
            except Exception as error:
                self._let_go()
                if NEW_FIELD not in story(error) or self._is_committed(entry):
                    raise
            look = self._grown(batch, entry, look)
        raise AssertionError(f"{_DECISIONS} decisions about the fields of one batch")

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> RowCounts:
        inner = self._inner if written else None
        if inner is None:
            inner, written = self._opened(self._known(), watch=False), False
        row_counts = inner.complete(batch, entry, rows=rows, written=written)
        self._notes += getattr(inner, "remarks", ())
        return row_counts

    def done(self) -> None:
        self._let_go()
        self._suppression.let_go()
        self._notes = []

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a person should know of the batch that was written."""
        return tuple(self._notes)

    def redriven(self, batch: DataFrame, entry: Entry) -> FormatChoice:
        """The schema with the fields of records that were rejected when their batch was read, and brought no column
        then; the table has the columns."""
        look = self._known()
        if self._decode.new_fields == "add" and look.watchful:
            look = self._grown(batch, entry, look)
            self._settle(batch, entry, look)
        return look

    def _known(self) -> FormatChoice:
        """Only this process writes the table, so it is read once."""
        if self._look is None:
            self._look = self._schema.require()
        return self._look

    def _settle(self, batch: DataFrame, entry: Entry, look: FormatChoice) -> None:
        """The columns of the table, under its commit lock; nothing happens if they are there."""
        if self._decode.new_fields != "add" or self._settled == look.schema:
            return
        if evolved := settle_columns(self._spark, self._table, self._columns(batch, entry, look)):
            self._notes.append(evolved)
        self._settled = look.schema

    def _columns(self, batch: DataFrame, entry: Entry, look: FormatChoice) -> StructType:
        lookups = self._lookups.read(batch.sparkSession, entry.pins)
        made = stages_for(self._table, look, "look").make(batch, entry.pins, lookups)
        return table_schema(self._table, made.rows)

    def _rebuilt(self, batch: DataFrame, entry: Entry, look: FormatChoice, into: WriteTarget) -> FormatChoice:
        made = self._grown(batch, entry, look) if look.watchful else look
        if made.schema != look.schema and hasattr(into, "columns"):
            into.columns(self._columns(batch, entry, made))
        return made

    def _grown(self, batch: DataFrame, entry: Entry, look: FormatChoice) -> FormatChoice:
        """By the good records of the batch that have a field which nobody knows; kept before it is used."""
        left_out = self._suppression.of_read(batch)
        records = batch if left_out is None else batch.where(~left_out)
        new = stages_for(self._table, look, "look").with_unknown(records, entry.pins)
        if self._decode.new_fields == "fail":
            names = [str(row[0]) for row in new.select("unknown").distinct().limit(_SHOWN + 1).collect()]
            if names:
                raise _unwanted(self._table.name, names)
            return replace(look, watchful=False)
        found, _ = infer_json(new.select("text"))
        made, strange = self._fitting(batch, entry, look, found)
        if (made.schema, made.left_out) == (look.schema, look.left_out):  # there is nothing to do but to rescue it
            return replace(look, watchful=False)
        self._tell(look, made, strange)
        self._schema.keep(made)
        self._look = made
        return made

    def _fitting(
        self, batch: DataFrame, entry: Entry, look: FormatChoice, found: StructType
    ) -> tuple[FormatChoice, list[str]]:
        """With the fields that can be columns, and the paths of the others."""
        taken, schema, free, there = self._taken(), look.schema, StructType(), self._there(look)
        room = MOST_ADDED - (size_of(look.schema) - size_of(self._schema.declared))
        for _ in range(3):
            fields = [field for field in usable(found).fields if column_key(field.name) not in taken]
            free = StructType([as_it_is(field, there.get(column_key(field.name))) for field in fields])
            schema = bounded(look.schema, free, room)
            if (clash := self._clash(batch, entry, look, schema)) is None:
                break
            taken |= clash
        else:
            schema, free = look.schema, StructType()
        strange = [path for path in lacking(found, schema) if path not in look.left_out]
        kept = (*look.left_out, *strange)
        full = size_of(bounded(look.schema, free, sys.maxsize)) > size_of(schema) or len(kept) > MOST_LEFT_OUT
        return FormatChoice(schema, kept[:MOST_LEFT_OUT], not full), strange

    def _there(self, look: FormatChoice) -> dict[str, DataType]:
        """The table may have a column already that the kept schema lacks, by another process or an older definition: a
        column has one type."""
        if self._table.stages is None or self._table.stages.transform is not None:
            return {}
        columns = self._spark.read.format("delta").load(self._table.uri).schema
        return {column_key(field.name): field.dataType for field in added(look.schema, columns).fields}

    def _taken(self) -> set[str]:
        """Names of columns that the table has by other ways."""
        names = {*self._decode.keep, *((*OWN, *VALID) if self._table.write.merge else ())}
        return {column_key(name) for name in names}

    def _clash(self, batch: DataFrame, entry: Entry, look: FormatChoice, schema: StructType) -> set[str] | None:
        """New columns whose names the transform gives to others, or that it or Spark fails with; all of them if nobody
        can say which: a producer must not stop the table by a name. None if they fit."""
        new = added(look.schema, schema).fields
        if not new or self._fits(batch, entry, replace(look, schema=schema)):
            return None
        self._columns(batch, entry, look)  # raises what is wrong without them
        alone = (replace(look, schema=StructType([*look.schema.fields, field])) for field in new[:_TRIED])
        wrong = {field.name for field, one in zip(new, alone, strict=False) if not self._fits(batch, entry, one)}
        return {column_key(name) for name in wrong or {field.name for field in new}}

    def _fits(self, batch: DataFrame, entry: Entry, look: FormatChoice) -> bool:
        try:
            names = [column_key(name) for name in self._columns(batch, entry, look).names]
        except PySparkException:
            return False
        return len(set(names)) == len(names)

    def _tell(self, look: FormatChoice, made: FormatChoice, strange: Sequence[str]) -> None:
        new = mixed(added(look.schema, made.schema))
        self._notes += [
            f"{name} has values of several kinds ({kinds}): it holds their JSON text" for name, kinds in new.items()
        ]
        if strange:
            more = f" and {len(strange) - _SHOWN:,} more" if len(strange) > _SHOWN else ""
            shown = ", ".join(name[:80] for name in strange[:_SHOWN])
            self._notes.append(f"fields that cannot be columns are kept in _rescued: {shown}{more}")
        if look.watchful and not made.watchful:
            self._notes.append(no_more_columns("records", "kept in _rescued", MOST_ADDED))

    def _opened(self, look: FormatChoice, *, watch: bool) -> BatchProcessor:
        assert self._build is not None
        self._let_go()
        self._inner = self._build(stages_for(self._table, look, "watch" if watch else "look"))
        return self._inner

    def _is_committed(self, entry: Entry) -> bool:
        since = -1 if entry.seen is None else entry.seen
        return any(commit.entry is not None and commit.entry.key == entry.key for commit in self._log.since(since))

    def _let_go(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.done()


def as_it_is(field: StructField, there: DataType | None) -> StructField:
    """The field with the type that its column has; a column of text takes what else was found as JSON text."""
    if there is None or there == field.dataType:
        return field
    if isinstance(there, StructType) and isinstance(field.dataType, StructType):
        return StructField(field.name, merged(there, field.dataType))
    mark = {ANY_JSON: field.dataType.simpleString()} if isinstance(there, StringType) else {}
    return StructField(field.name, there, metadata=mark)


def _unwanted(table: str, names: Sequence[str]) -> Terminal:
    more = ", and others" if len(names) > _SHOWN else ""
    return Terminal(
        f"the records have fields that the schema does not name: {', '.join(sorted(names[:_SHOWN]))}{more}",
        where=table,
        hint="nothing of the batch was written. Write them into the schema; or `new_fields: add` makes them columns, "
        "`rescue` keeps them as JSON",
    )
