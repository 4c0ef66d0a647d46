"""Compares a merged table and its tombstones with its changes, folded again by plain queries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import Terminal
from penstock.plan.quarantine import quarantine_of, tombstones_of
from penstock.sources.columns import SOURCE, alive
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.spec.schema import column_key
from penstock.spec.table_kinds import MERGE_COLUMNS, SINCE, VALID
from penstock.tables.merge.changes import values_of
from penstock.tables.merge.truncate import MAX_TRUNCATES
from penstock.verify.document import rows_query
from penstock.verify.ledger_walk import batches_up_to
from penstock.verify.recompute.contents import FIELDS, grown_columns
from penstock.verify.recompute.context import conclude
from penstock.verify.recompute.diff import (
    DifferingRows,
    KeyDiff,
    Sides,
    collect_differences,
    compare_sides,
    hashable,
    nondeterministic_columns,
    rows_with_keys,
    text_of,
)
from penstock.verify.recompute.source_rows import source_rows
from penstock.verify.report import COLLECTED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.stages import MergePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.diff import KeySample
    from penstock.verify.report import Kind, Proof

SEQUENCE, _DELETED = MERGE_COLUMNS[:2]
FROM, TO, CURRENT = VALID
_S, _P, _T, _DEAD, _ALL, _RANK = "__s", "__p", "__t", "__dead", "__all", "__rank"

# The tombstones of a merged table compared with the deletes of its source.
#
# A missing tombstone would let a late change bring its row back; one that no delete has made would keep out changes
# that are still to come.


def check_tombstones(
    context: RecomputeContext, content: Content, changes: DataFrame, excuses: Sequence[str], sample: KeySample
) -> Proof | None:
    """`changes` are those of the source. None where tombstones decide nothing: the newest extract does."""
    merge, entry = context.table.write.merge, content.entry
    assert merge is not None
    if merge.snapshot is not None or entry is None or not merge.deletes:
        return None
    check = context.new_check("tombstones", "the deletes of its source", "tombstones")
    check.held = tombstones_of(context.table.name, context.table.uri).table
    tombstones = _read_tombstones(context, entry, merge)
    types = {field.name: sql_type(field.dataType) for field in tombstones.schema.fields}
    columns = [F.col(quote(name)).cast(types[name]).alias(name) for name in (*merge.keys, _S, _P)]
    changes = changes.select(*columns, _DEAD, _ALL)
    if not context.table.input.stable:  # read again, a change has another place
        null_place = F.lit(None).cast(types[_P])
        changes, tombstones = changes.withColumn(_P, null_place), tombstones.withColumn(_P, null_place).distinct()
    changes = _sample_rows(changes, merge, sample)
    tombstones = _sample_rows(tombstones, merge, sample)
    extra = _collect_tombstones("extra", _stray_tombstones(tombstones, changes, merge), merge)
    missing = DifferingRows(extra.names)
    if may_lack_old_tombstones(context, merge):
        check.remarks.append("deletes whose tombstone `keep_deleted` may have removed were not looked for")
    else:
        missing = _collect_tombstones("missing", _missing_deletes(tombstones, changes, merge), merge)
    check.of = tombstones.count() + missing.count
    listed = (*extra.listed, *missing.listed)[:COLLECTED]
    diff = KeyDiff(check.of, extra.count + missing.count, 0, 0, listed)
    return conclude(context, check, diff, excuses, sample=sample)


def _read_tombstones(context: RecomputeContext, entry: Entry, merge: MergePlan) -> DataFrame:
    """Tombstones of the batches up to the entry: those of a batch that is being written are there before its rows."""
    columns = [*(f"{quote(key)} AS {quote(key)}" for key in merge.keys), f"{SEQUENCE} AS {_S}", f"{SOURCE} AS {_P}"]
    among_rows = context.table_rows().where(_DELETED).selectExpr(*columns)  # as older tables have them
    tombstones = context.companion_rows(tombstones_of(context.table.name, context.table.uri).uri)
    if tombstones is None:
        return among_rows.distinct()
    return tombstones.where(batches_up_to(entry)).selectExpr(*columns).unionByName(among_rows).distinct()


def _sample_rows(rows: DataFrame, merge: MergePlan, sample: KeySample) -> DataFrame:
    if sample.whole:
        return rows
    hashed = [hashable(quote(key), rows.schema[key].dataType.simpleString()) or "NULL" for key in merge.keys]
    return rows.where(f"{sample.condition(hashed)}{f' OR {_ALL}' if _ALL in rows.columns else ''}")


def may_lack_old_tombstones(context: RecomputeContext, merge: MergePlan) -> bool:
    """Whether the table has existed for longer than a tombstone is kept."""
    if merge.keep_deleted_ms is None or not merge.deletes:
        return False
    detail = context.spark.sql(f"DESCRIBE DETAIL delta.{quote(context.table.uri)}")
    created = detail.selectExpr("unix_millis(createdAt) AS at").first()
    assert created is not None
    return bool(created["at"] is None or created["at"] <= time.time() * 1000 - merge.keep_deleted_ms)


def _stray_tombstones(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Tombstones that neither a delete of the source nor a truncate has made."""
    deletes, truncates = changes.where(f"{_DEAD} AND NOT {_ALL}"), changes.where(_ALL)
    strays = tombstones.alias("t").join(deletes.alias("c"), _same_place(merge.keys), "left_anti")
    if merge.truncate is None:
        return strays
    return strays.alias("t").join(truncates.alias("c"), _same_place(), "left_anti")


def _missing_deletes(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Deletes without a tombstone that decide, since the last truncate, the state of a key, or of a version in a
    history. Of two changes that claim the same place, either may decide."""
    groups = [*merge.keys, *([_S] if merge.history == "scd2" else [])]
    newest = _newest_changes(_since_truncate(changes, merge), groups)
    decided = newest.groupBy(*map(quote, merge.keys), _S, _P).agg(F.expr(f"bool_and({_DEAD})").alias(_DEAD))
    return decided.where(_DEAD).alias("t").join(tombstones.alias("c"), _same_place(merge.keys), "left_anti")


def _same_place(keys: Sequence[str] = ()) -> Column:
    return F.expr(" AND ".join(f"t.{name} <=> c.{name}" for name in (*map(quote, keys), _S, _P)))


def _collect_tombstones(kind: Kind, rows: DataFrame, merge: MergePlan) -> DifferingRows:
    names = {**{key: key for key in merge.keys}, SEQUENCE: _S}
    texts = {shown: text_of(quote(name), rows.schema[name].dataType) for shown, name in names.items()}
    return collect_differences(kind, rows.select(*map(quote, names.values())).distinct(), texts)


# A merged table compared with its changes, folded again by plain queries: which change of a key is the newest, what it
# says, and until when it holds. The code that merges is not used for this.
#
# Sampled by a hash of the keys, or with --deep all of them. Duplicates of a key, or of a version of a key, are looked
# for in all rows in any case.


@dataclass(frozen=True)
class Folded:
    """What the table should hold: `keys` identify its rows, `values` are compared."""

    rows: DataFrame
    keys: list[str]
    values: list[str]
    there: DataFrame
    remarks: tuple[str, ...] = ()
    excuses: tuple[str, ...] = ()
    """Why the table may rightly hold other rows than these."""


def check_merged(context: RecomputeContext, content: Content) -> list[Proof]:
    merge, version = context.table.write.merge, context.version_read(content)
    assert merge is not None
    check = context.new_check("merge", f"the changes of {context.upstream}", "rows")
    check.commands = rows_query(context.table, context.version)
    with context.reading(-1 if version is None else version):
        actual = alive(context.table_rows())
        doubled = doubled_keys(actual, merge)
        if version is None:
            return [context.nothing_read(check)]
        try:
            source = source_rows(context, content)
            if not source.replay_input.complete:
                raise Terminal("its source no longer has everything that the table was made of", where="")
        except Terminal as error:
            return [_unproven(check, doubled, error.message)]
        source_columns = {name.casefold() for name in source.rows.columns}
        values = [name for name in values_of(actual.columns, merge) if name.casefold() in source_columns]
        rows = source.rows
        if not merge.ignore_nulls:  # with it, a value may be older than the rest of its row
            grown = grown_columns(context, actual)
            rows, actual, values = grown.of(rows), grown.of(actual), grown.values(values)
        changes = changes_of(rows, merge, values)
        folded = _fold(context, actual, changes, merge, values)
        check.remarks += folded.remarks
        loose = nondeterministic_columns(folded.there, folded.values)
        sides = Sides(folded.there, [folded.rows], folded.keys, folded.values, loose, merge.keys)
        sample = context.sample(sides, check.of)
        diff = compare_sides(sides, sample)
        if diff.ambiguous:
            check.remarks.append(f"not compared: {diff.ambiguous:,} keys of which two changes claim the same place")
        excuses = [*content.excuses, *source.excuses, *folded.excuses]
        if _may_have_come_back(context, merge, diff, changes):
            excuses.append("rows came back after `keep_deleted` had removed what remembered their delete")
        diff = add_doubled(diff, doubled, folded.keys)
        proof = conclude(context, check, diff, excuses, sample=sample, loose=loose)
        tombstones = check_tombstones(context, content, changes, excuses, sample)
        return [proof, *([tombstones] if tombstones is not None else [])]


def doubled_keys(actual: DataFrame, merge: MergePlan) -> list[DifferingRows]:
    """Keys, versions of keys, or keys of current rows, that more than one row has, among all rows."""
    if merge.history != "scd2":
        return [_collect_doubled(actual, merge.keys)]
    return [_collect_doubled(actual, [*merge.keys, SEQUENCE]), _collect_doubled(actual.where(CURRENT), merge.keys)]


def _collect_doubled(rows: DataFrame, keys: Sequence[str]) -> DifferingRows:
    types = {field.name.casefold(): field.dataType for field in rows.schema.fields}
    doubled = rows.groupBy(*map(quote, keys)).agg(F.count(F.lit(1)).alias("__times")).where("__times > 1")
    return collect_differences("doubled", doubled, {key: text_of(quote(key), types[key.casefold()]) for key in keys})


def _unproven(check: Proof, doubled: list[DifferingRows], reason: str) -> Proof:
    """Mark the check as unverifiable; but keys that are there twice are wrong whatever the source has."""
    check.outcome, check.said = "unverifiable", f"not folded again: {reason}"
    diff = add_doubled(KeyDiff(0, 0, 0), doubled, ())
    if diff.differing:
        check.outcome, check.said = "differs", f"{diff.differing:,} keys are there more than once"
        check.differing, check.differences = diff.differing, list(diff.differences)
    return check


def _may_have_come_back(context: RecomputeContext, merge: MergePlan, diff: KeyDiff, changes: DataFrame) -> bool:
    """Whether all differences are extra rows, each was deleted once, and its tombstone may be gone by now."""
    extra = [
        tuple(difference.keys[key] for key in merge.keys)
        for difference in diff.differences
        if difference.kind == "extra"
    ]
    if not diff.differing or len(extra) < diff.differing or not may_lack_old_tombstones(context, merge):
        return False
    if not changes.where(_ALL).isEmpty():
        return True
    names = [f"k{n}" for n in range(len(merge.keys))]
    rows = context.spark.createDataFrame(extra, ", ".join(f"{name} STRING" for name in names))
    types = {field.name.casefold(): field.dataType for field in context.table_rows().schema.fields}
    texts = [
        F.expr(text_of(quote(key), types[key.casefold()])).alias(name)
        for name, key in zip(names, merge.keys, strict=True)
    ]
    return rows.join(changes.where(_DEAD).select(*texts).distinct(), names, "left_anti").isEmpty()


def add_doubled(diff: KeyDiff, doubled: Sequence[DifferingRows], keys: Sequence[str]) -> KeyDiff:
    """The diff, with what is doubled among all rows. Of what is identified by `keys`, as the diff is, it already has
    those of the sample."""
    known_keys = {tuple(difference.keys.items()) for difference in diff.differences}
    listed = [item for part in doubled for item in part.listed if tuple(item.keys.items()) not in known_keys]
    added = sum(part.count - (diff.doubled if part.names == tuple(keys) else 0) for part in doubled)
    return replace(diff, differing=diff.differing + added, differences=(*diff.differences, *listed)[:COLLECTED])


def _fold(
    context: RecomputeContext, actual: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]
) -> Folded:
    grown_names = grown_columns(context, actual).names if FIELDS in values else frozenset()
    own_columns = [name for name in values_of(actual.columns, merge) if column_key(name) not in grown_names]
    lacking = [name for name in own_columns if name not in values]
    remarks = (f"not compared, the changes have no such column: {', '.join(lacking)}",) if lacking else ()
    # Otherwise a change that is read again has another place.
    placed = context.table.input.stable and SOURCE in actual.columns
    if merge.snapshot is not None:
        folded = _fold_extract(context, actual, changes, merge, values)
    elif merge.ignore_nulls:
        folded = _fold_partial(actual, changes, merge, values, placed=placed)
    elif merge.history == "scd2":
        folded = _fold_versions(actual, changes, merge, values, placed=placed)
    else:
        folded = _fold_newest(actual, changes, merge, values)
    place = [SOURCE] if placed and merge.snapshot is None else []
    return replace(folded, values=[*folded.values, *place], remarks=(*remarks, *folded.remarks))


def changes_of(rows: DataFrame, merge: MergePlan, values: list[str]) -> DataFrame:
    """The changes, each with its place in the order (__s, __p), whether it deletes, and whether it is about all
    rows."""
    if merge.ignore is not None:
        rows = rows.where(f"NOT coalesce({merge.ignore}, false)")
    truncate = f"coalesce({merge.truncate}, false)" if merge.truncate is not None else "false"
    return rows.selectExpr(
        *map(quote, merge.keys),
        *map(quote, values),
        f"({merge.sequence}) AS {_S}",
        f"{SOURCE} AS {_P}",
        f"({merge.time if merge.time is not None else merge.sequence}) AS {_T}",
        f"coalesce({merge.deleted}, false) AS {_DEAD}",
        f"{truncate} AS {_ALL}",
    )


def _since_truncate(changes: DataFrame, merge: MergePlan) -> DataFrame:
    """The changes of rows since the last truncate."""
    row_changes = changes.where(f"NOT {_ALL}")
    if merge.truncate is None:
        return row_changes
    last = changes.where(_ALL).agg(F.expr(f"max(named_struct('s', {_S}, 'p', {_P}))").alias("__last"))
    later = f"__last IS NULL OR named_struct('s', {_S}, 'p', {_P}) > __last"
    return row_changes.crossJoin(F.broadcast(last)).where(later).drop("__last")


def _newest_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The newest changes of each key, by rank and not by number: of two changes with the same place neither is known to
    be newer, and both stay."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_S} DESC, {_P} DESC)"
    return changes.selectExpr("*", f"rank() OVER {window} AS {_RANK}").where(f"{_RANK} = 1").drop(_RANK).distinct()


def _fold_newest(actual: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]) -> Folded:
    newest = _newest_changes(_since_truncate(changes, merge), merge.keys).where(f"NOT {_DEAD}")
    rows = newest.selectExpr(*map(quote, merge.keys), *map(quote, values), f"{_S} AS {SEQUENCE}", f"{_P} AS {SOURCE}")
    return Folded(rows, list(merge.keys), [*values, SEQUENCE], actual)


def _fold_partial(
    actual: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str], *, placed: bool
) -> Folded:
    """NULL keeps the old value: each value is the last one given since the last delete, and the row says by which
    change."""
    order = f"named_struct('s', {_S}, 'p', {_P})"
    keys = [*map(quote, merge.keys)]
    recent_changes = _since_truncate(changes, merge).selectExpr("*", f"{order} AS __o")
    deletes = recent_changes.where(_DEAD).groupBy(*keys).agg(F.max("__o").alias("__ended"))
    condition = " AND ".join(f"a.{key} <=> b.{key}" for key in keys)
    live_changes = recent_changes.where(f"NOT {_DEAD}").alias("a").join(deletes.alias("b"), F.expr(condition), "left")
    live_changes = live_changes.where("b.__ended IS NULL OR a.__o > b.__ended").select("a.*")
    parts = [
        F.expr(f"max_by(named_struct('v', {quote(v)}), IF({quote(v)} IS NULL, NULL, __o)).v").alias(v) for v in values
    ]
    since_fields = actual.select(f"{SINCE}.*").columns if SINCE in actual.columns and placed else []
    since_columns = {f"{SINCE}_{name}": name for name in values if name in since_fields}
    parts += [
        F.expr(f"max(IF({quote(name)} IS NULL, NULL, __o))").alias(column) for column, name in since_columns.items()
    ]
    latest = live_changes.groupBy(*keys).agg(F.max("__o").alias("__last"), *parts)
    last = [f"__last.s AS {SEQUENCE}", f"__last.p AS {SOURCE}"]
    rows = latest.selectExpr(*keys, *map(quote, values), *last, *map(quote, since_columns))
    actual = actual.withColumns({column: F.col(SINCE).getField(name) for column, name in since_columns.items()})
    return Folded(rows, list(merge.keys), [*values, SEQUENCE, *since_columns], actual)


def _fold_versions(
    actual: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str], *, placed: bool
) -> Folded:
    """Every version of a key, valid until the next one begins; a delete or a truncate ends the last. Of two changes
    with the same sequence the one with the later place counts; where places tell nothing, both do."""
    row_changes = changes.where(f"NOT {_ALL}")
    truncates = changes.where(_ALL).select(_S, _P, _T).distinct() if merge.truncate is not None else None
    truncate_count = truncates.count() if truncates is not None else 0
    keys = [*map(quote, merge.keys)]
    if truncates is not None and truncate_count:
        truncate_ends = truncates.selectExpr(f"{_S} AS __es", f"{_P} AS __ep", f"{_T} AS __et")
        before = row_changes.crossJoin(F.broadcast(truncate_ends)).where(
            f"named_struct('s', {_S}, 'p', {_P}) < named_struct('s', __es, 'p', __ep)"
        )
        nulls = [F.lit(None).cast(changes.schema[name].dataType).alias(name) for name in values]
        deletes = before.select(*keys, "__es", "__ep", "__et").distinct()
        deletes = deletes.select(
            *keys,
            *nulls,
            F.col("__es").alias(_S),
            F.col("__ep").alias(_P),
            F.col("__et").alias(_T),
            F.lit(True).alias(_DEAD),
            F.lit(False).alias(_ALL),
        )
        row_changes = row_changes.unionByName(deletes)
    place_window = f"(PARTITION BY {', '.join(keys)}, {_S} ORDER BY {_P} DESC)"
    versions = row_changes
    if placed:
        versions = row_changes.selectExpr("*", f"row_number() OVER {place_window} AS {_RANK}").where(f"{_RANK} = 1")
    next_window = f"(PARTITION BY {', '.join(keys)} ORDER BY {_S})"
    valid_versions = versions.selectExpr(
        "*", f"lead({_T}) OVER {next_window} AS __until", f"lead({_S}) OVER {next_window} IS NULL AS __last"
    ).where(f"NOT {_DEAD}")
    rows = valid_versions.selectExpr(
        *keys,
        *map(quote, values),
        f"{_S} AS {SEQUENCE}",
        f"{_P} AS {SOURCE}",
        f"{_T} AS {FROM}",
        f"__until AS {TO}",
        f"__last AS {CURRENT}",
    )
    excuses: tuple[str, ...] = ()
    if truncate_count > MAX_TRUNCATES:
        excuses = (
            f"{truncate_count} truncates: what came late from before the last {MAX_TRUNCATES} may be valid for too "
            "long",
        )
    compared = [*values, FROM, TO, CURRENT]
    return Folded(rows, [*merge.keys, SEQUENCE], compared, actual, excuses=excuses)


def _fold_extract(
    context: RecomputeContext, actual: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]
) -> Folded:
    """The newest extract says what rows there are. Rows that it did not change keep the extract that brought them."""
    last = changes.agg(F.max(_S).alias("__last"))
    newest = changes.crossJoin(F.broadcast(last)).where(f"{_S} = __last").drop("__last")
    rows = (
        _newest_changes(newest, merge.keys).where(f"NOT {_DEAD}").select(*map(quote, merge.keys), *map(quote, values))
    )
    compared = actual.where(CURRENT) if merge.history == "scd2" else actual
    remarks: tuple[str, ...] = (
        "the newest extract is compared with the rows that are there now, not with their history",
    )
    if _has_rejected_rows(context, newest):
        compared = rows_with_keys(compared, rows, merge.keys)
        remarks += ("rows of the newest extract are in quarantine: rows that it lacks stay, and are not compared",)
    return Folded(rows, list(merge.keys), values, compared, remarks)


def _has_rejected_rows(context: RecomputeContext, newest: DataFrame) -> bool:
    quarantine = context.companion_rows(quarantine_of(context.table.name, context.table.uri).uri)
    if quarantine is None:
        return False
    rejected = quarantine.selectExpr(f"{SOURCE}.file AS file").distinct()
    return not newest.selectExpr(f"{_P}.file AS file").distinct().join(rejected, "file").isEmpty()
