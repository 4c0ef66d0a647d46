"""The rows of a table and of its quarantine against its source, column by column; and every page of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from penstock.errors import PenstockError
from penstock.formats.json import RESCUED, own_class
from penstock.ledger.position import parse_version
from penstock.maintenance.tables import places
from penstock.operations.replay import kept_rows
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import SOURCE
from penstock.sources.files.types import spark_schema
from penstock.spark.jvm import java_column
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.spec.schema import column_key
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW
from penstock.tables.new_fields import GrownSchema, grows
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.suppression import Suppression
from penstock.verify.data_files import LoggedFile, data_files, living_in, name_in, origin_of
from penstock.verify.recompute.context import Comparison, answer
from penstock.verify.recompute.diff import KeyDiff, KeySample, Sides, hold, holds, unsteady
from penstock.verify.recompute.diff import holds as holds_kind
from penstock.verify.recompute.source_rows import (
    GREW,
    NUMBER,
    changed_upstream,
    covered_rows,
    numbered_arrivals,
    read_files,
    source_rows,
)
from penstock.verify.report import COLLECTED, Differing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DedupePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.source_rows import (
        SourceRows,
    )
    from penstock.verify.report import Proof

# Rows of a table that got columns from its records, in a form that does not depend on when: a field that held nothing
# yet (null, {} or []) was rescued or left out, and has a column since another record brought a value for it.


FIELDS = "new fields"
"""No column can be called so."""


@dataclass(frozen=True)
class GrownColumns:
    """Columns whose values are compared as the fields that they hold, together."""

    names: frozenset[str]

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows with these fields as one text."""
        if not self._of(rows.columns):
            return rows
        own = [name for name in self._of(rows.columns) if name != RESCUED]
        texts = [f"to_json(struct({', '.join(map(quote, own))}))"] if own else []
        texts += [RESCUED] if RESCUED in self._of(rows.columns) else []
        leaves = own_class(rows.sparkSession, "Leaves")
        parts = [F.coalesce(JvmColumn(leaves.column(java_column(F.expr(text)))), F.expr("array()")) for text in texts]
        fields = F.array_sort(F.array_distinct(F.concat(*parts)))
        return rows.withColumn(FIELDS, F.nullif(F.array_join(fields, ", "), F.lit("")))

    def values(self, names: Sequence[str]) -> list[str]:
        """Names of columns to compare, with the text instead of these."""
        mine = self._of(names)
        return [*(name for name in names if name not in mine), *([FIELDS] if mine else [])]

    def _of(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if column_key(name) in self.names]


def grown_columns(around: RecomputeContext, there: DataFrame) -> GrownColumns:
    """None of a table that does not grow, or whose transform may have made anything of them."""
    table = around.table
    if table.stages is None or table.stages.transform is not None:
        return GrownColumns(frozenset())
    if (files := table.files) is not None:
        if files.new_fields != "add" or files.format != "json":
            return GrownColumns(frozenset())
        declared = spark_schema(files.schema) if files.schema is not None else StructType()
        found = StructType([one for one in there.schema.fields if isinstance(one.dataType, StructType | ArrayType)])
        rescued: list[str] = []
    elif table.stages.decode is not None and grows(table) and table.stages.decode.new_fields == "add":
        grown = GrownSchema(table, around.store)
        declared, found, rescued = grown.declared, grown.require().schema, [RESCUED]
    else:
        return GrownColumns(frozenset())
    known = {column_key(one.name): one.dataType for one in declared.fields}
    own = {column_key(name) for name in ("_source", "_sequence")}
    names = [column_key(one.name) for one in found.fields if known.get(column_key(one.name)) != one.dataType]
    return GrownColumns(frozenset({*names, *rescued} - own))


# The rows of a table against what its definition makes of its source now, column by column: with --deep.
#
# Rows are told apart by their coordinates; without any, by what they say. Of a table with `dedupe` it is looked at
# which record of a key was kept: the one that came first, and none besides.


_SAME, _TIMES = "__content", "__times"


def check_contents(around: RecomputeContext, content: Content) -> list[Proof]:
    table, entry = around.table, content.entry
    against = _against(around)
    check = around.begun("contents", f"what {against} gives now", "rows")
    if entry is None or (table.topics is None and parse_version(entry.after[0]).read_up_to < 0):
        check.outcome, check.said = ("not made" if around.report.rows else "same"), "nothing was read yet"
        return [check]
    version = -1 if table.topics is not None else parse_version(entry.after[0]).read_up_to
    with around.reading(version):
        made = source_rows(around, content)
        there = around.there()
        kept = kept_rows(table, made.covered)
        if kept is not None:
            left = there.where(kept).count()
            there = there.where(f"NOT ({kept})")
            check.remarks.append(f"not compared: {left:,} rows of which the source no longer has the records")
        content.excuses += made.excuses
        sides, held = _compared(around, content, there, made)
        check = answer(around, check, Comparison(held, KeySample()), content, list(sides.loose))
        dedupe = table.stages.dedupe if table.stages is not None else None
        if dedupe is None:
            return [check]
        return [check, _duplicates(around, content, there, made, dedupe)]


def _compared(around: RecomputeContext, content: Content, there: DataFrame, made: SourceRows) -> tuple[Sides, KeyDiff]:
    """A difference is excused by fields that were no columns yet only if none is left without the records that have
    such a field."""
    sides = _sides(around, there, made)
    held = hold(sides, KeySample())
    if not held.differing or made.reshaped is None:
        return sides, held
    rest = replace(made, rows=made.rows.join(made.reshaped, SOURCE, "left_anti"))
    others = _sides(around, there.join(made.reshaped, SOURCE, "left_anti"), rest)
    surely = hold(others, KeySample())
    if surely.differing:
        return others, surely
    content.excuses.append(GREW)
    return sides, held


def _against(around: RecomputeContext) -> str:
    return "the broker" if around.table.topics is not None else around.upstream


def _coordinates(table: TablePlan, there: DataFrame) -> dict[str, str]:
    """Expressions that tell the rows of the table apart, by what they are called here; none if it has none."""
    if SOURCE in there.columns and table.input.stable:
        fields = there.select(f"{SOURCE}.*").columns
        return {f"record_{name}": f"{SOURCE}.{quote(name)}" for name in fields}
    if table.columns and table.stages is None:
        return {f"record_{name}": quote(table.columns[name]) for name in ("topic", "partition", "offset")}
    return {}


def _sides(around: RecomputeContext, there: DataFrame, made: SourceRows) -> Sides:
    """What both sides are compared by, under names that are the same on both."""
    table = around.table
    grown = grown_columns(around, there)
    there, rows = grown.of(there), grown.of(made.rows)
    taken = {name.casefold() for name in rows.columns}
    unlike = {SOURCE, *([table.columns["ingestion_timestamp"]] if _stamps(table) else [])}
    same = [name for name in there.columns if name.casefold() in taken and name not in unlike and name != FIELDS]
    values = grown.values(same)
    places = _coordinates(table, there)
    dedupe = table.stages is not None and table.stages.dedupe is not None
    if not places or (table.stages is not None and table.stages.transform is not None):
        return _count_contents(there, rows, values, places, dedupe)
    keys = list(places)
    names = [*(f"{place} AS {key}" for key, place in places.items()), *map(quote, values)]
    should = rows.selectExpr(*names)
    here = there.selectExpr(*names)
    if dedupe:
        should = should.join(here.select(*keys), keys, "left_semi")
    loose = [name for name in values if unsteady(there.schema[name].dataType)]
    return Sides(here, [should], keys, values, loose)


def _stamps(table: TablePlan) -> bool:
    """Its rows have the time of their batch."""
    return table.topics is not None and "ingestion_timestamp" in table.columns


def _count_contents(
    there: DataFrame, should: DataFrame, values: list[str], places: Mapping[str, str], dedupe: bool
) -> Sides:
    """Rows that may be many of one record, or have no coordinates: how often each content is there."""
    kinds = {one.name.casefold(): one.dataType for one in there.schema.fields}
    keys = list(places)

    def told(rows: DataFrame) -> DataFrame:
        cast = rows.select(
            *(F.expr(place).alias(key) for key, place in places.items()),
            *(F.col(quote(name)).cast(sql_type(kinds[name.casefold()])).alias(name) for name in values),
        )
        parts = [
            part
            for name in values
            for part in (
                f"{quote(name)} IS NULL",
                f"to_json(named_struct('v', {quote(name)}))"
                if holds_kind(kinds[name.casefold()], MapType, VariantType)
                else quote(name),
            )
        ]
        hashed = cast.selectExpr(*keys, f"xxhash64({', '.join(parts) or '0'}) AS {_SAME}")
        return hashed.groupBy(*keys, _SAME).agg(F.count(F.lit(1)).alias(_TIMES))

    here, wanted = told(there), told(should)
    if dedupe and keys:
        wanted = wanted.join(here.select(*keys).distinct(), keys, "left_semi")
    elif dedupe:  # which of them were left out cannot be told: each that is there must be among them
        here, wanted = (one.withColumn(_TIMES, F.lit(1)) for one in (here, wanted))
        wanted = wanted.join(here.select(_SAME), _SAME, "left_semi")
    return Sides(here, [wanted], [*keys, _SAME], [_TIMES])


def _duplicates(
    around: RecomputeContext, content: Content, there: DataFrame, made: SourceRows, plan: DedupePlan
) -> Proof:
    """Each record that was left out must have one with its keys in the table that came before it."""
    check = around.begun("duplicates", f"the records of {_against(around)} with the same keys", "records")
    if SOURCE not in there.columns or not around.table.input.stable:
        check.outcome = "unverifiable"
        check.said = "which record of a key was kept cannot be told: its rows do not say where they came from"
        return check
    names = list(dict.fromkeys([*plan.keys, *([plan.time] if plan.time else [])]))
    there_fields = [*map(quote, names), SOURCE]
    rows = made.rows.select(*there_fields)
    kept = there.select(*there_fields)
    left = rows.join(kept.select(SOURCE).distinct(), SOURCE, "left_anti").select(*there_fields)
    try:
        arrived = numbered_arrivals(around)
    except PenstockError as error:
        arrived, why = None, error.message
    else:
        why = ""
    near = [f"l.{quote(key)} = k.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        apart = f"abs(unix_micros(l.{quote(plan.time)}) - unix_micros(k.{quote(plan.time)}))"
        near.append(f"{apart} <= {(plan.within_ms or 0) * 1000}L")
    if arrived is not None:
        left, kept = arrived(left), arrived(kept)
        order = f"named_struct('n', {{0}}.{NUMBER}, 'p', {{0}}.{SOURCE})"
        near.append(f"{order.format('k')} < {order.format('l')}")
    else:
        check.remarks.append(f"whether the first of them was kept is not looked at: {why}")
    alone = left.alias("l").join(kept.alias("k"), F.expr(" AND ".join(near)), "left_anti")
    wrong = [
        Differing("missing", _shown(row, names)) for row in alone.limit(COLLECTED).selectExpr(*_texts(names)).collect()
    ]
    count = alone.count() if len(wrong) == COLLECTED else len(wrong)
    twice = _twice(kept, plan, names) if plan.time is None else []
    compared = left.count()
    held = KeyDiff(compared + len(twice), count + len(twice), 0, 0, tuple([*wrong, *twice][:COLLECTED]))
    check.of = held.compared
    return answer(around, check, Comparison(held, KeySample()), replace(content, excuses=list(content.excuses)), [])


def _texts(names: list[str]) -> list[str]:
    return [*(f"CAST({quote(name)} AS STRING) AS k{n}" for n, name in enumerate(names)), f"to_json({SOURCE}) AS place"]


def _shown(row: object, names: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {name: row[f"k{n}"] for n, name in enumerate(names)}  # type: ignore[index]
    return {**found, "record": row["place"]}  # type: ignore[index]


def _twice(kept: DataFrame, plan: DedupePlan, names: list[str]) -> list[Differing]:
    keys = [quote(key) for key in plan.keys]
    known = kept.where(" AND ".join(f"{key} IS NOT NULL" for key in keys))
    found = known.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), F.max(SOURCE).alias(SOURCE)).where("n > 1")
    return [
        Differing("doubled", _shown(row, list(plan.keys)))
        for row in found.limit(COLLECTED).selectExpr(*_texts(list(plan.keys))).collect()
    ]


# The records in a table's quarantine against those of its source, byte by byte: with --deep. What a redrive lands is
# what the quarantine holds.


_COMPARED = [name for name in RAW if name != "ingestion_timestamp"]
"""When it was read is not the record's own."""


def has_records(table: TablePlan) -> bool:
    """Its quarantine holds records of a topic, or lines of files, each with its coordinates."""
    kept = table.staged and (table.stages is None or table.stages.transform is None or table.write.source)
    stable = table.input.stable and (table.input.origin == "kafka" or table.files is not None)
    return table.may_reject and kept and stable and table.aggregate is None and table.stream is None


def check_rejected(around: RecomputeContext, content: Content) -> list[Proof]:
    table, entry = around.table, content.entry
    place = quarantine_of(table.name, table.uri)
    if entry is None or not around.store.names(f"{place.uri}/_delta_log"):
        return []
    check = around.begun("quarantine", "the records of its source", "rows")
    check.held = place.table
    until = f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"
    with around.reading(-1):
        rejected = around.spark.read.format("delta").load(place.uri).where(until).where(f"{SOURCE} IS NOT NULL")
        if table.files is not None:
            files = read_files(around, entry, table.files)
            source, stages, join = files.rows, files.stages, "left"
            rejected = rejected.where(f"{SOURCE}.row IS NOT NULL").where(F.col(f"{SOURCE}.file").isin(files.names))
        else:
            source = Suppression(table, around.store).source(covered_rows(around, entry).rows)
            stages, join = StagedPipeline(table), "inner"  # a topic may have lost its oldest records
        places = rejected.selectExpr(SOURCE, f"{NOTHING_FAILED} AS {FAILED}")
        came = stages.records_of(source, entry.pins, places)
        same = " AND ".join(f"q.{name} <=> s.{name}" for name in _COMPARED)
        both = rejected.alias("q").join(came.alias("s"), F.expr(f"q.{SOURCE} = s.{SOURCE}"), join)
        judged = both.groupBy(f"q.{SOURCE}").agg(F.expr(f"bool_or({same})").alias("same")).persist()
        try:
            compared = judged.count()
            wrong = judged.where("NOT same").limit(COLLECTED).selectExpr(f"to_json({SOURCE}) AS place").collect()
        finally:
            judged.unpersist()
    check.of = compared
    held = KeyDiff(compared, len(wrong), 0, 0, tuple(Differing("altered", {"record": row["place"]}) for row in wrong))
    return [
        answer(around, check, Comparison(held, KeySample()), replace(content, excuses=changed_upstream(around)), [])
    ]


# Every page of every file of a table, its quarantine and its tombstones: read, and held against its own checksum.


_FILE, _ROWS, _HASH = "__file", "__rows", "__hash"


def check_pages(around: RecomputeContext) -> list[Proof]:
    table = around.table
    found = [_read(around, table.name, table.uri, around.version)]
    for place in places(table):
        if place.kind in ("quarantine", "tombstones") and around.store.names(f"{place.uri}/_delta_log"):
            found.append(_read(around, place.name, place.uri, None))
    return found


def _read(around: RecomputeContext, name: str, uri: str, version: int | None) -> Proof:
    check = around.begun("pages", "what Delta's log says of them", "files")
    files = data_files(uri, version)
    check.held, check.of = f"every page of {name}", len(files)
    reader = around.spark.read.format("delta")
    try:
        with around.reading(around.version):
            rows = (reader if version is None else reader.option("versionAsOf", version)).load(uri)
            counted = _rows_by_file(rows)
    except PenstockError as error:
        bad = name_in(files, error.message)
        where = f"its file {origin_of(around.store, uri, bad)} cannot be read" if bad else "it cannot be read"
        check.outcome, check.said = "differs", f"{where}: {error.message}"
        return check
    wrong = []
    for one in files:
        has = counted.get(one.name, 0)
        said = one.rows if has == one.rows else living_in(around.store, uri, one, version)
        if said is not None and has != said:
            wrong.append(f"{origin_of(around.store, uri, one)} has {has:,} rows, the log says {said:,}")
    check.compared = len(files)
    if wrong:
        check.outcome, check.differing = "differs", len(wrong)
        check.said = "; ".join(wrong[:10])
        return check
    check.outcome, check.said = "same", f"all pages of {len(files):,} files of {name} can be read"
    return check


def _rows_by_file(rows: DataFrame) -> dict[str, int]:
    """How many rows each file has. All columns are decoded for it."""
    parts = [
        f"to_json(named_struct('v', {quote(one.name)}))"
        if holds(one.dataType, MapType, VariantType)
        else quote(one.name)
        for one in rows.schema.fields
    ]
    hashed = rows.selectExpr("_metadata.file_path AS " + _FILE, f"xxhash64({', '.join(parts) or '0'}) AS {_HASH}")
    found = hashed.groupBy(_FILE).agg(F.count(F.lit(1)).alias(_ROWS), F.expr(f"bit_xor({_HASH})").alias(_HASH))
    return {LoggedFile.named(row[_FILE]): int(row[_ROWS]) for row in found.collect()}
