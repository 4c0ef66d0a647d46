"""A merged table and its tombstones against its changes, folded once more by plain queries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.errors import Terminal
from penstock.ledger.position import parse_version
from penstock.plan.quarantine import quarantine_of, tombstones_of
from penstock.sources.columns import SOURCE, alive
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type
from penstock.spec.schema import column_key
from penstock.spec.table_kinds import OWN, SINCE, VALID
from penstock.tables.merge.changes import values_of
from penstock.tables.merge.truncate import KEPT
from penstock.verify.document import rows_query
from penstock.verify.recompute.contents import FIELDS, grown_columns
from penstock.verify.recompute.context import Comparison, answer
from penstock.verify.recompute.diff import KeyDiff, Sides, hashable, hold, shown, unsteady
from penstock.verify.recompute.source_rows import source_rows
from penstock.verify.report import COLLECTED, Differing

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.plan.stages import MergePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.diff import KeySample
    from penstock.verify.report import Kind, Proof

# The rows of a merged table that everybody sees, without what it remembers of deleted ones.


def living_rows(rows: DataFrame) -> DataFrame:
    return alive(rows)


def own_values(columns: Sequence[str], merge: MergePlan) -> list[str]:
    """Columns that its changes give: neither its keys nor those that the merge adds."""
    return values_of(columns, merge)


# The tombstones of a merged table against the deletes of its source.
#
# A tombstone that is missing would let a late change bring its row back; one that no delete has made would keep out
# changes that are still to come.


_SEQUENCE, _DELETED = OWN[:2]


def check_tombstones(around: RecomputeContext, content: Content, changes: DataFrame, sample: KeySample) -> Proof | None:
    """`changes` are those of the source: their keys, `s` and `p`, their place in the order, `dead`: whether each
    deletes, and `all`: whether it is about every row. None where no tombstone decides anything: the newest extract
    does."""
    merge, entry = around.table.write.merge, content.entry
    assert merge is not None
    if merge.snapshot is not None or entry is None or not merge.deletes:
        return None
    check = around.begun("tombstones", "the deletes of its source", "tombstones")
    check.held = tombstones_of(around.table.name, around.table.uri).table
    tombstones = _tombstones(around, entry, merge)
    kinds = {field.name: sql_type(field.dataType) for field in tombstones.schema.fields}
    columns = [F.col(quote(name)).cast(kinds[name]).alias(name) for name in (*merge.keys, "s", "p")]
    changes = changes.select(*columns, "dead", "all")
    if not around.table.input.stable:  # read again, a change has another place
        nowhere = F.lit(None).cast(kinds["p"])
        changes, tombstones = changes.withColumn("p", nowhere), tombstones.withColumn("p", nowhere).distinct()
    changes = _sampled(changes, merge, sample)
    tombstones = _sampled(tombstones, merge, sample)
    found = _tombstone_sample("extra", _strays(tombstones, changes, merge), merge)
    if lacks_old_ones(around, merge):
        check.remarks.append("deletes whose tombstone `keep_deleted` may have removed were not looked for")
    else:
        found += _tombstone_sample("missing", _missing(tombstones, changes, merge), merge)
    compared = tombstones.count() + sum(one.kind == "missing" for one in found)
    check.of = compared
    held = KeyDiff(compared, len(found), 0, 0, tuple(found[:COLLECTED]))
    return answer(around, check, Comparison(held, sample), replace(content, excuses=list(content.excuses)), [])


def _tombstones(around: RecomputeContext, entry: Entry, merge: MergePlan) -> DataFrame:
    """Of the batches up to the entry: those of a batch that is being written are there before its rows."""
    uri = tombstones_of(around.table.name, around.table.uri).uri
    columns = [*(f"{quote(key)} AS {quote(key)}" for key in merge.keys), f"{_SEQUENCE} AS s", f"{SOURCE} AS p"]
    among_rows = around.there().where(_DELETED).selectExpr(*columns)  # as tables made before have them
    if not around.store.names(f"{uri}/_delta_log"):
        return among_rows.distinct()
    until = f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"
    beside = around.spark.read.format("delta").load(uri).where(until).selectExpr(*columns)
    return beside.unionByName(among_rows).distinct()


def _sampled(rows: DataFrame, merge: MergePlan, sample: KeySample) -> DataFrame:
    if sample.whole:
        return rows
    hashed = [hashable(quote(key), rows.schema[key].dataType.simpleString()) or "NULL" for key in merge.keys]
    return rows.where(f"{sample.condition(hashed)}{' OR all' if 'all' in rows.columns else ''}")


def lacks_old_ones(around: RecomputeContext, merge: MergePlan) -> bool:
    """The table is there for longer than a tombstone is kept."""
    if merge.keep_deleted_ms is None or not merge.deletes:
        return False
    detail = around.spark.sql(f"DESCRIBE DETAIL delta.{quote(around.table.uri)}")
    made = detail.selectExpr("unix_millis(createdAt) AS at").first()
    assert made is not None
    return bool(made["at"] is None or made["at"] <= time.time() * 1000 - merge.keep_deleted_ms)


def _strays(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Those that neither a delete of the source has made nor a truncate."""
    place = "t.s <=> c.s AND t.p <=> c.p"
    deletes, truncates = changes.where("dead AND NOT all"), changes.where("all")
    left = tombstones.alias("t").join(deletes.alias("c"), F.expr(f"{_same(merge)} AND {place}"), "left_anti")
    if merge.truncate is None:
        return left
    return left.alias("t").join(truncates.alias("c"), F.expr(place), "left_anti")


def _missing(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Deletes that decide, since the last truncate, what a key is, or of a history what a version is. Of two changes
    that claim the same place it is open which of them does."""
    if merge.truncate is not None:
        last = changes.where("all").agg(F.expr("max(struct(s, p))").alias("last"))
        changes = changes.crossJoin(F.broadcast(last)).where("last IS NULL OR struct(s, p) > last").drop("last")
    alone = changes.where("NOT all")
    groups = [*map(quote, merge.keys), *(["s"] if merge.history == "scd2" else [])]
    window = f"(PARTITION BY {', '.join(groups)} ORDER BY s DESC, p DESC)"
    newest = alone.selectExpr("*", f"rank() OVER {window} AS rank").where("rank = 1")
    decided = newest.groupBy(*map(quote, merge.keys), "s", "p").agg(F.expr("bool_and(dead)").alias("dead"))
    same = F.expr(f"{_same(merge)} AND t.s <=> c.s AND t.p <=> c.p")
    return decided.where("dead").alias("t").join(tombstones.alias("c"), same, "left_anti")


def _same(merge: MergePlan) -> str:
    return " AND ".join(f"t.{quote(key)} <=> c.{quote(key)}" for key in merge.keys)


def _tombstone_sample(kind: Kind, rows: DataFrame, merge: MergePlan) -> list[Differing]:
    names = [*merge.keys, "s"]
    texts = [f"{shown(quote(name), rows.schema[name].dataType)} AS k{n}" for n, name in enumerate(names)]
    told = [*merge.keys, _SEQUENCE]
    found = rows.select(*map(quote, names)).distinct().limit(COLLECTED).selectExpr(*texts).collect()
    return [Differing(kind, {name: row[f"k{n}"] for n, name in enumerate(told)}) for row in found]


# A merged table against its changes, folded once more by plain queries: which change of a key is the newest, what it
# says, and until when it holds. Nothing of the code that merges has a part in it.
#
# Sampled by a hash of the keys, or with --deep all of them. That no key, and no version of a key, is there twice is
# looked at for all rows in any case.


SEQUENCE = OWN[0]
FROM, TO, CURRENT = VALID
_S, _P, _T, _DEAD, _ALL, _RANK = "__s", "__p", "__t", "__dead", "__all", "__rank"


@dataclass(frozen=True)
class Folded:
    """What the table should hold: `keys` tell its rows apart, `values` are compared."""

    rows: DataFrame
    keys: list[str]
    values: list[str]
    there: DataFrame
    remarks: tuple[str, ...] = ()
    excuses: tuple[str, ...] = ()
    """Why the table may rightly hold other rows than these."""


def check_merged(around: RecomputeContext, content: Content) -> list[Proof]:
    merge, entry = around.table.write.merge, content.entry
    assert merge is not None
    check = around.begun("merge", f"the changes of {around.upstream}", "rows")
    check.commands = rows_query(around.table, around.version)
    nothing = entry is None or (around.table.topics is None and _unread(entry.after))
    with around.reading(_version(around, content)):
        there = living_rows(around.there())
        check.of = around.report.rows
        doubled = doubled_keys(there, merge)
        if nothing:
            check.outcome, check.said = ("not made" if around.report.rows else "same"), "nothing was read yet"
            return [check]
        try:
            made = source_rows(around, content)
            if not made.covered.whole:
                raise Terminal("its source no longer has everything that the table was made of", where="")
        except Terminal as error:
            return [_unproven(check, doubled, error.message)]
        values = [name for name in own_values(there.columns, merge) if _has(made.rows, name)]
        rows = made.rows
        if not merge.ignore_nulls:  # there a value may be older than the rest of its row
            grown = grown_columns(around, there)
            rows, there, values = grown.of(rows), grown.of(there), grown.values(values)
        changes = changes_of(rows, merge, values)
        folded = _fold(around, there, changes, merge, values)
        check.remarks += folded.remarks
        loose = [name for name in folded.values if unsteady(folded.there.schema[name].dataType)]
        sides = Sides(folded.there, [folded.rows], folded.keys, folded.values, loose, merge.keys)
        sample = around.sample(sides, check.of)
        held = hold(sides, sample)
        if held.ambiguous:
            check.remarks.append(f"not compared: {held.ambiguous:,} keys of which two changes claim the same place")
        content.excuses += [*made.excuses, *folded.excuses]
        if _came_back(around, merge, held, changes):
            content.excuses.append("rows came back after `keep_deleted` had removed what remembered their delete")
        told = answer(around, check, Comparison(with_doubled(held, doubled), sample), content, loose)
        tombstones = check_tombstones(around, content, ordered_keys(changes, merge), sample)
        return [told, *([tombstones] if tombstones is not None else [])]


def _unread(after: tuple[str, ...]) -> bool:
    return parse_version(after[0]).read_up_to < 0


def _version(around: RecomputeContext, content: Content) -> int:
    if content.entry is None or around.table.topics is not None:
        return -1
    return parse_version(content.entry.after[0]).read_up_to


def doubled_keys(there: DataFrame, merge: MergePlan) -> list[Differing]:
    """Keys, or versions of them, that more than one row has, of all rows."""
    keys = [*merge.keys, *([SEQUENCE] if merge.history == "scd2" else [])]
    twice = there.groupBy(*map(quote, keys)).count().where("count > 1")
    return _doubled_sample(twice, keys) + (_two_current(there, merge) if merge.history == "scd2" else [])


def _two_current(there: DataFrame, merge: MergePlan) -> list[Differing]:
    current = there.where(CURRENT).groupBy(*map(quote, merge.keys)).count().where("count > 1")
    return _doubled_sample(current, list(merge.keys))


def _doubled_sample(rows: DataFrame, keys: Sequence[str]) -> list[Differing]:
    found = rows.limit(COLLECTED).selectExpr(*(f"CAST({quote(key)} AS STRING) AS k{n}" for n, key in enumerate(keys)))
    return [Differing("doubled", {key: row[f"k{n}"] for n, key in enumerate(keys)}) for row in found.collect()]


def _unproven(check: Proof, doubled: list[Differing], why: str) -> Proof:
    """Keys that are there twice are wrong whatever the source has."""
    check.outcome, check.said = "unverifiable", f"not folded again: {why}"
    if doubled:
        check.outcome, check.said = "differs", f"{len(doubled):,} keys are there more than once"
        check.differing, check.differences = len(doubled), doubled
    return check


def _came_back(around: RecomputeContext, merge: MergePlan, held: KeyDiff, changes: DataFrame) -> bool:
    """All that differs are rows too many, each of them was deleted once, and its tombstone may be gone by now."""
    extra = [tuple(one.keys[key] for key in merge.keys) for one in held.differences if one.kind == "extra"]
    if not held.differing or len(extra) < held.differing or not lacks_old_ones(around, merge):
        return False
    if not changes.where(_ALL).isEmpty():
        return True
    names = [f"k{n}" for n in range(len(merge.keys))]
    rows = around.spark.createDataFrame(extra, ", ".join(f"{name} STRING" for name in names))
    kinds = {field.name.casefold(): field.dataType for field in around.there().schema.fields}
    texts = [
        F.expr(shown(quote(key), kinds[key.casefold()])).alias(name)
        for name, key in zip(names, merge.keys, strict=True)
    ]
    return rows.join(changes.where(_DEAD).select(*texts).distinct(), names, "left_anti").isEmpty()


def with_doubled(held: KeyDiff, doubled: list[Differing]) -> KeyDiff:
    """The same, and the keys that are there twice outside of the sample."""
    known = {tuple(one.keys.items()) for one in held.differences}
    more = [one for one in doubled if tuple(one.keys.items()) not in known]
    if not more:
        return held
    told = (*held.differences, *more)[:COLLECTED]
    return KeyDiff(held.compared, held.differing + len(more), held.unsteady, held.ambiguous, told)


def _fold(
    around: RecomputeContext, there: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]
) -> Folded:
    instead = grown_columns(around, there).names if FIELDS in values else frozenset()
    others = [name for name in own_values(there.columns, merge) if column_key(name) not in instead]
    lacking = [name for name in others if name not in values]
    remarks = (f"not compared, the changes have no such column: {', '.join(lacking)}",) if lacking else ()
    placed = around.table.input.stable and SOURCE in there.columns  # else a change that is read again has another place
    if merge.snapshot is not None:
        found = _newest_extract(around, there, changes, merge, values)
    elif merge.ignore_nulls:
        found = _patched(there, changes, merge, values, placed=placed)
    elif merge.history == "scd2":
        found = _versions(there, changes, merge, values, placed=placed)
    else:
        found = _newest(there, changes, merge, values)
    place = [SOURCE] if placed and merge.snapshot is None else []
    return replace(found, values=[*found.values, *place], remarks=(*remarks, *found.remarks))


def _has(rows: DataFrame, name: str) -> bool:
    return name.casefold() in {one.casefold() for one in rows.columns}


def ordered_keys(changes: DataFrame, merge: MergePlan) -> DataFrame:
    """What tombstones are compared with: of each change its keys, its place in the order and whether it deletes."""
    marks = [f"{mine} AS {name}" for mine, name in ((_S, "s"), (_P, "p"), (_DEAD, "dead"), (_ALL, "all"))]
    return changes.selectExpr(*(f"{quote(key)} AS {quote(key)}" for key in merge.keys), *marks)


def changes_of(rows: DataFrame, merge: MergePlan, values: list[str]) -> DataFrame:
    """Each with its place in the order (__s, __p), whether it deletes, and whether it is about all rows."""
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
    """The changes of rows that no later truncate has ended."""
    alone = changes.where(f"NOT {_ALL}")
    if merge.truncate is None:
        return alone
    last = changes.where(_ALL).agg(F.expr(f"max(named_struct('s', {_S}, 'p', {_P}))").alias("__last"))
    later = f"__last IS NULL OR named_struct('s', {_S}, 'p', {_P}) > __last"
    return alone.crossJoin(F.broadcast(last)).where(later).drop("__last")


def _ranked(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Not numbered: of two changes with the same place nobody can say which is the newer, and both stay."""
    window = f"(PARTITION BY {', '.join(map(quote, keys))} ORDER BY {_S} DESC, {_P} DESC)"
    return changes.selectExpr("*", f"rank() OVER {window} AS {_RANK}").where(f"{_RANK} = 1").drop(_RANK).distinct()


def _newest(there: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]) -> Folded:
    newest = _ranked(_since_truncate(changes, merge), merge.keys).where(f"NOT {_DEAD}")
    rows = newest.selectExpr(*map(quote, merge.keys), *map(quote, values), f"{_S} AS {SEQUENCE}", f"{_P} AS {SOURCE}")
    return Folded(rows, list(merge.keys), [*values, SEQUENCE], there)


def _patched(there: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str], *, placed: bool) -> Folded:
    """NULL keeps what was there: each value is the last that was given since the last delete, and the row says by which
    change."""
    order = f"named_struct('s', {_S}, 'p', {_P})"
    keys = [*map(quote, merge.keys)]
    since = _since_truncate(changes, merge).selectExpr("*", f"{order} AS __o")
    ended = since.where(_DEAD).groupBy(*keys).agg(F.max("__o").alias("__ended"))
    same = " AND ".join(f"a.{key} <=> b.{key}" for key in keys)
    alive = since.where(f"NOT {_DEAD}").alias("a").join(ended.alias("b"), F.expr(same), "left")
    alive = alive.where("b.__ended IS NULL OR a.__o > b.__ended").select("a.*")
    parts = [
        F.expr(f"max_by(named_struct('v', {quote(v)}), IF({quote(v)} IS NULL, NULL, __o)).v").alias(v) for v in values
    ]
    known = there.select(f"{SINCE}.*").columns if SINCE in there.columns and placed else []
    given = {f"{SINCE}_{name}": name for name in values if name in known}
    parts += [F.expr(f"max(IF({quote(name)} IS NULL, NULL, __o))").alias(one) for one, name in given.items()]
    found = alive.groupBy(*keys).agg(F.max("__o").alias("__last"), *parts)
    last = [f"__last.s AS {SEQUENCE}", f"__last.p AS {SOURCE}"]
    rows = found.selectExpr(*keys, *map(quote, values), *last, *map(quote, given))
    there = there.withColumns({one: F.col(SINCE).getField(name) for one, name in given.items()})
    return Folded(rows, list(merge.keys), [*values, SEQUENCE, *given], there)


def _versions(there: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str], *, placed: bool) -> Folded:
    """Every version of a key, valid until the next one begins; a delete, or a truncate, ends the last. Of two changes
    with the same sequence the one with the later place stands; where places tell nothing, both do."""
    alone = changes.where(f"NOT {_ALL}")
    truncates = changes.where(_ALL).select(_S, _P, _T).distinct() if merge.truncate is not None else None
    ends = truncates.count() if truncates is not None else 0
    keys = [*map(quote, merge.keys)]
    if truncates is not None and ends:
        end = truncates.selectExpr(f"{_S} AS __es", f"{_P} AS __ep", f"{_T} AS __et")
        before = alone.crossJoin(F.broadcast(end)).where(
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
        alone = reduce(DataFrame.unionByName, [alone, deletes])
    stands = f"(PARTITION BY {', '.join(keys)}, {_S} ORDER BY {_P} DESC)"
    versions = alone
    if placed:
        versions = alone.selectExpr("*", f"row_number() OVER {stands} AS {_RANK}").where(f"{_RANK} = 1")
    following = f"(PARTITION BY {', '.join(keys)} ORDER BY {_S})"
    told = versions.selectExpr(
        "*", f"lead({_T}) OVER {following} AS __until", f"lead({_S}) OVER {following} IS NULL AS __last"
    ).where(f"NOT {_DEAD}")
    rows = told.selectExpr(
        *keys,
        *map(quote, values),
        f"{_S} AS {SEQUENCE}",
        f"{_P} AS {SOURCE}",
        f"{_T} AS {FROM}",
        f"__until AS {TO}",
        f"__last AS {CURRENT}",
    )
    excuses: tuple[str, ...] = ()
    if ends > KEPT:
        excuses = (f"{ends} truncates: what came late from before the last {KEPT} may be valid for too long",)
    compared = [*values, FROM, TO, CURRENT]
    return Folded(rows, [*merge.keys, SEQUENCE], compared, there, excuses=excuses)


def _newest_extract(
    around: RecomputeContext, there: DataFrame, changes: DataFrame, merge: MergePlan, values: list[str]
) -> Folded:
    """The newest extract says what there is. Rows that it did not change keep the extract that brought them."""
    last = changes.agg(F.max(_S).alias("__last"))
    newest = changes.crossJoin(F.broadcast(last)).where(f"{_S} = __last").drop("__last")
    rows = _ranked(newest, merge.keys).where(f"NOT {_DEAD}").select(*map(quote, merge.keys), *map(quote, values))
    compared = there.where(CURRENT) if merge.history == "scd2" else there
    remarks: tuple[str, ...] = (
        "the newest extract is compared with the rows that are there now, not with their history",
    )
    if _rejected(around, newest):
        names = [quote(key) for key in merge.keys]
        same = " AND ".join(f"a.{name} <=> b.{name}" for name in names)
        known = rows.select(*names).distinct()
        compared = compared.alias("a").join(known.alias("b"), F.expr(same), "left_semi")
        remarks += ("rows of the newest extract are in quarantine: rows that it lacks stay, and are not compared",)
    return Folded(rows, list(merge.keys), values, compared, remarks)


def _rejected(around: RecomputeContext, newest: DataFrame) -> bool:
    place = quarantine_of(around.table.name, around.table.uri)
    if not around.store.names(f"{place.uri}/_delta_log"):
        return False
    rejected = around.spark.read.format("delta").load(place.uri).selectExpr(f"{SOURCE}.file AS file").distinct()
    return not newest.selectExpr(f"{_P}.file AS file").distinct().join(rejected, "file").isEmpty()
