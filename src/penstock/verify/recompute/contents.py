"""Compares the rows of a table and of its quarantine with its source, column by column; reads every page of their
files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import ArrayType, MapType, StructType, VariantType

from penstock.errors import PenstockError
from penstock.formats.json import RESCUED
from penstock.maintenance.tables import maintained_tables
from penstock.operations.replay import kept_rows_condition
from penstock.plan.quarantine import quarantine_of
from penstock.sources.columns import SOURCE
from penstock.sources.files.types import spark_schema
from penstock.spark.jvm import java_column, penstock_class
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.spec.schema import column_key
from penstock.tables.expectations import FAILED, NOTHING_FAILED, RAW
from penstock.tables.new_fields import GrownSchema, adds_new_fields
from penstock.tables.pipeline import StagedPipeline
from penstock.tables.suppression import Suppression
from penstock.verify.data_files import LoggedFile, data_files, file_named_in, live_row_count, origin_of
from penstock.verify.ledger_walk import batches_up_to
from penstock.verify.recompute.context import conclude
from penstock.verify.recompute.diff import (
    DifferingRows,
    KeyDiff,
    Sides,
    collect_differences,
    compare_sides,
    contains_type,
    nondeterministic_columns,
)
from penstock.verify.recompute.source_rows import (
    GREW,
    NUMBER,
    changed_upstream,
    covered_rows,
    numbered_arrivals,
    read_files,
    source_rows,
)
from penstock.verify.report import COLLECTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from penstock.plan.model import TablePlan
    from penstock.plan.stages import DedupePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.source_rows import SourceRows
    from penstock.verify.report import Proof

# Rows of a table that got columns from its records, in a form that does not depend on when it got them: a field that
# held nothing yet (null, {} or []) was rescued or left out, and has a column since another record brought a value for
# it.


FIELDS = "new fields"
"""No column can have this name."""


@dataclass(frozen=True)
class GrownColumns:
    """Columns whose values are compared as the fields that they hold, together."""

    names: frozenset[str]

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows with these fields as one text column."""
        if not self._matching(rows.columns):
            return rows
        field_names = [name for name in self._matching(rows.columns) if name != RESCUED]
        texts = [f"to_json(struct({', '.join(map(quote, field_names))}))"] if field_names else []
        texts += [RESCUED] if RESCUED in self._matching(rows.columns) else []
        leaves = penstock_class(rows.sparkSession, "Leaves")
        parts = [F.coalesce(JvmColumn(leaves.column(java_column(F.expr(text)))), F.expr("array()")) for text in texts]
        fields = F.array_sort(F.array_distinct(F.concat(*parts)))
        return rows.withColumn(FIELDS, F.nullif(F.array_join(fields, ", "), F.lit("")))

    def values(self, names: Sequence[str]) -> list[str]:
        """Names of columns to compare, with the text instead of these."""
        matching = self._matching(names)
        return [*(name for name in names if name not in matching), *([FIELDS] if matching else [])]

    def _matching(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if column_key(name) in self.names]


def grown_columns(context: RecomputeContext, actual: DataFrame) -> GrownColumns:
    """The grown columns of a table; none if it does not grow, or if its transform may have made anything of them."""
    table = context.table
    if table.stages is None or table.stages.transform is not None:
        return GrownColumns(frozenset())
    if (files := table.files) is not None:
        if files.new_fields != "add" or files.format != "json":
            return GrownColumns(frozenset())
        declared = spark_schema(files.schema) if files.schema is not None else StructType()
        schema = StructType(
            [field for field in actual.schema.fields if isinstance(field.dataType, StructType | ArrayType)]
        )
        rescued: list[str] = []
    elif table.stages.decode is not None and adds_new_fields(table) and table.stages.decode.new_fields == "add":
        grown = GrownSchema(table, context.store)
        declared, schema, rescued = grown.declared, grown.require().schema, [RESCUED]
    else:
        return GrownColumns(frozenset())
    declared_types = {column_key(field.name): field.dataType for field in declared.fields}
    penstock_columns = {column_key(name) for name in ("_source", "_sequence")}
    names = [
        column_key(field.name)
        for field in schema.fields
        if declared_types.get(column_key(field.name)) != field.dataType
    ]
    return GrownColumns(frozenset({*names, *rescued} - penstock_columns))


# With --deep: the rows of a table against what its current definition makes of its source, column by column.
#
# Rows are matched by their coordinates, or by their content if they have none. For a table with `dedupe` it is checked
# which record of a key was kept: the one that came first, and no other.


_SAME, _TIMES = "__content", "__times"


def check_contents(context: RecomputeContext, content: Content) -> list[Proof]:
    table, version = context.table, context.version_read(content)
    check = context.new_check("contents", f"what {_source_name(context)} gives now", "rows")
    if version is None:
        return [context.nothing_read(check)]
    with context.reading(version):
        source = source_rows(context, content)
        actual = context.table_rows()
        kept_condition = kept_rows_condition(table, source.replay_input)
        if kept_condition is not None:
            kept_count = actual.where(kept_condition).count()
            actual = actual.where(f"NOT ({kept_condition})")
            check.remarks.append(f"not compared: {kept_count:,} rows of which the source no longer has the records")
        excuses = [*content.excuses, *source.excuses]
        sides, diff = _compare_rows(context, excuses, actual, source)
        check = conclude(context, check, diff, excuses, loose=sides.nondeterministic)
        dedupe = table.stages.dedupe if table.stages is not None else None
        if dedupe is None:
            return [check]
        return [check, _check_duplicates(context, excuses, actual, source, dedupe)]


def _compare_rows(
    context: RecomputeContext, excuses: list[str], actual: DataFrame, source: SourceRows
) -> tuple[Sides, KeyDiff]:
    """Fields that were not columns yet excuse a difference only if none is left without the records that have such a
    field."""
    sides = _build_sides(context, actual, source)
    diff = compare_sides(sides)
    if not diff.differing or source.reshaped is None:
        return sides, diff
    unaffected = replace(source, rows=source.rows.join(source.reshaped, SOURCE, "left_anti"))
    unaffected_sides = _build_sides(context, actual.join(source.reshaped, SOURCE, "left_anti"), unaffected)
    unaffected_diff = compare_sides(unaffected_sides)
    if unaffected_diff.differing:
        return unaffected_sides, unaffected_diff
    excuses.append(GREW)
    return sides, diff


def _source_name(context: RecomputeContext) -> str:
    return "the broker" if context.table.topics is not None else context.upstream


def _coordinate_expressions(table: TablePlan, actual: DataFrame) -> dict[str, str]:
    """Expressions that identify the rows of the table, by the names used here; empty if it has none."""
    if SOURCE in actual.columns and table.input.stable:
        fields = actual.select(f"{SOURCE}.*").columns
        return {f"record_{name}": f"{SOURCE}.{quote(name)}" for name in fields}
    if table.columns and table.stages is None:
        return {f"record_{name}": quote(table.columns[name]) for name in ("topic", "partition", "offset")}
    return {}


def _build_sides(context: RecomputeContext, actual: DataFrame, source: SourceRows) -> Sides:
    """The two sides to compare, with the same column names on both."""
    table = context.table
    grown = grown_columns(context, actual)
    actual, rows = grown.of(actual), grown.of(source.rows)
    source_columns = {name.casefold() for name in rows.columns}
    excluded = {SOURCE, *([table.columns["ingestion_timestamp"]] if _has_batch_time(table) else [])}
    shared = [
        name for name in actual.columns if name.casefold() in source_columns and name not in excluded and name != FIELDS
    ]
    values = grown.values(shared)
    coordinates = _coordinate_expressions(table, actual)
    dedupe = table.stages is not None and table.stages.dedupe is not None
    if not coordinates or (table.stages is not None and table.stages.transform is not None):
        return _count_contents(actual, rows, values, coordinates, dedupe)
    keys = list(coordinates)
    names = [*(f"{expression} AS {key}" for key, expression in coordinates.items()), *map(quote, values)]
    expected = rows.selectExpr(*names)
    compared = actual.selectExpr(*names)
    if dedupe:
        expected = expected.join(compared.select(*keys), keys, "left_semi")
    return Sides(compared, [expected], keys, values, nondeterministic_columns(actual, values))


def _has_batch_time(table: TablePlan) -> bool:
    """Whether its rows have the time of their batch."""
    return table.topics is not None and "ingestion_timestamp" in table.columns


def _count_contents(
    actual: DataFrame, expected: DataFrame, values: list[str], coordinates: Mapping[str, str], dedupe: bool
) -> Sides:
    """How often each content is there, for rows that may be many per record or have no coordinates."""
    types = {field.name.casefold(): field.dataType for field in actual.schema.fields}
    keys = list(coordinates)

    def count_rows(rows: DataFrame) -> DataFrame:
        cast = rows.select(
            *(F.expr(expression).alias(key) for key, expression in coordinates.items()),
            *(F.col(quote(name)).cast(sql_type(types[name.casefold()])).alias(name) for name in values),
        )
        parts = [
            part for name in values for part in (f"{quote(name)} IS NULL", _hash_input(name, types[name.casefold()]))
        ]
        hashed = cast.selectExpr(*keys, f"xxhash64({', '.join(parts) or '0'}) AS {_SAME}")
        return hashed.groupBy(*keys, _SAME).agg(F.count(F.lit(1)).alias(_TIMES))

    actual_counts, expected_counts = count_rows(actual), count_rows(expected)
    if dedupe and keys:
        expected_counts = expected_counts.join(actual_counts.select(*keys).distinct(), keys, "left_semi")
    elif dedupe:  # which of them were left out is unknown: each that is there must be among them
        actual_counts, expected_counts = (
            counts.withColumn(_TIMES, F.lit(1)) for counts in (actual_counts, expected_counts)
        )
        expected_counts = expected_counts.join(actual_counts.select(_SAME), _SAME, "left_semi")
    return Sides(actual_counts, [expected_counts], [*keys, _SAME], [_TIMES])


def _hash_input(name: str, data_type: DataType) -> str:
    """Spark hashes no maps and no variants."""
    return (
        f"to_json(named_struct('v', {quote(name)}))" if contains_type(data_type, MapType, VariantType) else quote(name)
    )


def _check_duplicates(
    context: RecomputeContext, excuses: list[str], actual: DataFrame, source: SourceRows, plan: DedupePlan
) -> Proof:
    """Check that each record that was left out has one with its keys in the table that came before it."""
    check = context.new_check("duplicates", f"the records of {_source_name(context)} with the same keys", "records")
    if SOURCE not in actual.columns or not context.table.input.stable:
        check.outcome = "unverifiable"
        check.said = "which record of a key was kept is unknown: its rows do not say where they came from"
        return check
    names = list(dict.fromkeys([*plan.keys, *([plan.time] if plan.time else [])]))
    fields = [*map(quote, names), SOURCE]
    rows = source.rows.select(*fields)
    table_rows = actual.select(*fields)
    left_out = rows.join(table_rows.select(SOURCE).distinct(), SOURCE, "left_anti").select(*fields)
    conditions = [f"l.{quote(key)} = k.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        distance = f"abs(unix_micros(l.{quote(plan.time)}) - unix_micros(k.{quote(plan.time)}))"
        conditions.append(f"{distance} <= {(plan.within_ms or 0) * 1000}L")
    try:
        add_arrival = numbered_arrivals(context)
    except PenstockError as error:
        check.remarks.append(f"whether the first of them was kept is not looked at: {error.message}")
    else:
        left_out, table_rows = add_arrival(left_out), add_arrival(table_rows)
        order = f"named_struct('n', {{0}}.{NUMBER}, 'p', {{0}}.{SOURCE})"
        conditions.append(f"{order.format('k')} < {order.format('l')}")
    unmatched = left_out.alias("l").join(table_rows.alias("k"), F.expr(" AND ".join(conditions)), "left_anti")
    missing = collect_differences("missing", unmatched, _texts(names))
    doubled = _doubled_keys(table_rows, plan) if plan.time is None else DifferingRows(missing.names)
    listed = (*missing.listed, *doubled.listed)[:COLLECTED]
    diff = KeyDiff(left_out.count() + doubled.count, missing.count + doubled.count, 0, 0, listed)
    return conclude(context, check, diff, excuses)


def _texts(names: Sequence[str] = ()) -> dict[str, str]:
    """What identifies a record: these columns, and where it came from; each as text."""
    return {**{name: f"CAST({quote(name)} AS STRING)" for name in names}, "record": f"to_json({SOURCE})"}


def _doubled_keys(table_rows: DataFrame, plan: DedupePlan) -> DifferingRows:
    keys = [quote(key) for key in plan.keys]
    complete_rows = table_rows.where(" AND ".join(f"{key} IS NOT NULL" for key in keys))
    doubled = complete_rows.groupBy(*keys).agg(F.count(F.lit(1)).alias(_TIMES), F.max(SOURCE).alias(SOURCE))
    return collect_differences("doubled", doubled.where(f"{_TIMES} > 1"), _texts(plan.keys))


# With --deep: the records in a table's quarantine against those of its source, byte by byte. A redrive lands what the
# quarantine holds.


_COMPARED = [name for name in RAW if name != "ingestion_timestamp"]
"""Without the time of reading, which is not the record's own."""


def has_records(table: TablePlan) -> bool:
    """Whether its quarantine holds records of a topic, or lines of files, each with its coordinates."""
    keeps_records = table.staged and (table.stages is None or table.stages.transform is None or table.write.source)
    stable = table.input.stable and (table.input.origin == "kafka" or table.files is not None)
    return table.may_reject and keeps_records and stable and table.aggregate is None and table.stream is None


def check_rejected(context: RecomputeContext, content: Content) -> list[Proof]:
    table, entry = context.table, content.entry
    quarantine = quarantine_of(table.name, table.uri)
    if entry is None:
        return []
    check = context.new_check("quarantine", "the records of its source", "rows")
    check.held = quarantine.table
    with context.reading(-1):
        rejected = context.companion_rows(quarantine.uri)
        if rejected is None:
            return []
        rejected = rejected.where(batches_up_to(entry)).where(f"{SOURCE} IS NOT NULL")
        if table.files is not None:
            files = read_files(context, entry, table.files)
            source, stages, join = files.rows, files.stages, "left"
            rejected = rejected.where(f"{SOURCE}.row IS NOT NULL").where(F.col(f"{SOURCE}.file").isin(files.names))
        else:
            source = Suppression(table, context.store).drop_suppressed_input(covered_rows(context, entry).rows)
            stages, join = StagedPipeline(table), "inner"  # a topic may have lost its oldest records
        coordinates = rejected.selectExpr(SOURCE, f"{NOTHING_FAILED} AS {FAILED}")
        source_records = stages.records_of(source, entry.pins, coordinates)
        equal_condition = " AND ".join(f"q.{name} <=> s.{name}" for name in _COMPARED)
        joined = rejected.alias("q").join(source_records.alias("s"), F.expr(f"q.{SOURCE} = s.{SOURCE}"), join)
        matches = joined.groupBy(f"q.{SOURCE}").agg(F.expr(f"bool_or({equal_condition})").alias("same")).persist()
        try:
            compared = matches.count()
            altered = collect_differences("altered", matches.where("NOT same"), _texts())
        finally:
            matches.unpersist()
    diff = KeyDiff(compared, altered.count, 0, 0, altered.listed)
    return [conclude(context, check, diff, changed_upstream(context))]


# Every page of every file of a table, its quarantine and its tombstones: read and compared with its own checksum.


_FILE, _ROWS, _HASH = "__file", "__rows", "__hash"


def check_pages(context: RecomputeContext) -> list[Proof]:
    table = context.table
    proofs = [_read_pages(context, table.name, table.uri, context.version)]
    for place in maintained_tables(table):
        if place.kind in ("quarantine", "tombstones") and context.store.names(f"{place.uri}/_delta_log"):
            proofs.append(_read_pages(context, place.name, place.uri, None))
    return proofs


def _read_pages(context: RecomputeContext, name: str, uri: str, version: int | None) -> Proof:
    check = context.new_check("pages", "what Delta's log says of them", "files")
    files = data_files(uri, version)
    check.held, check.of = f"every page of {name}", len(files)
    reader = context.spark.read.format("delta")
    try:
        with context.reading(context.version):
            rows = (reader if version is None else reader.option("versionAsOf", version)).load(uri)
            rows_by_file = _rows_by_file(rows)
    except PenstockError as error:
        file = file_named_in(files, error.message)
        subject = f"its file {origin_of(context.store, uri, file)}" if file else "it"
        check.outcome, check.said = "differs", f"{subject} cannot be read: {error.message}"
        return check
    mismatches = []
    for file in files:
        row_count = rows_by_file.get(file.name, 0)
        logged_rows = file.rows if row_count == file.rows else live_row_count(context.store, uri, file, version)
        if logged_rows is not None and row_count != logged_rows:
            mismatches.append(
                f"{origin_of(context.store, uri, file)} has {row_count:,} rows, the log says {logged_rows:,}"
            )
    check.compared = len(files)
    if mismatches:
        check.outcome, check.differing = "differs", len(mismatches)
        more = [f"and {len(mismatches) - 10:,} more files"] if len(mismatches) > 10 else []
        check.said = "; ".join([*mismatches[:10], *more])
        return check
    check.outcome, check.said = "same", f"all pages of {len(files):,} files of {name} can be read"
    return check


def _rows_by_file(rows: DataFrame) -> dict[str, int]:
    """How many rows each file has. All columns are decoded to count them."""
    parts = [_hash_input(field.name, field.dataType) for field in rows.schema.fields]
    hashed = rows.selectExpr("_metadata.file_path AS " + _FILE, f"xxhash64({', '.join(parts) or '0'}) AS {_HASH}")
    counts = hashed.groupBy(_FILE).agg(F.count(F.lit(1)).alias(_ROWS), F.expr(f"bit_xor({_HASH})").alias(_HASH))
    return {LoggedFile.name_of(row[_FILE]): int(row[_ROWS]) for row in counts.collect()}
