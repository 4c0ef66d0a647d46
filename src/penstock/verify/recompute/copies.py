"""A table that follows the changes of another, and an audit table, against the change feed they follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.pending import began_of
from penstock.ledger.position import parse_version
from penstock.ledger.source import ReplayRequest
from penstock.sources.columns import living, with_source
from penstock.sources.delta import at_version, inserted
from penstock.spark.sql_text import quote
from penstock.tables.merge.changes import CURRENT, values_of
from penstock.tables.pipeline import audit
from penstock.verify.document import copy_queries
from penstock.verify.recompute.context import Comparison, answer, compare
from penstock.verify.recompute.diff import KeySample, Sides, hold, unsteady
from penstock.verify.recompute.merged import (
    changes_of,
    check_merged,
    check_tombstones,
    doubled_keys,
    living_rows,
    ordered_keys,
    with_doubled,
)
from penstock.verify.recompute.source_rows import is_partial, rows_read, source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.stages import MergePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.report import Proof

# A table that follows the changes of another, against that one as of the version that it has read.


def check_copy(around: RecomputeContext, content: Content) -> list[Proof]:
    entry, merge = content.entry, around.table.write.merge
    assert merge is not None
    if merge.history == "scd2" and (whole := _check_history(around, content)) is not None:
        return whole
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        check = around.begun("copy", around.upstream, "rows")
        outcome = "nothing was read yet"
        check.outcome, check.said = ("not made", outcome) if around.report.rows else ("same", outcome)
        return [check]
    version = parse_version(entry.after[0]).read_up_to
    check = around.begun("copy", f"{around.upstream} version {version}", "rows")
    check.commands = copy_queries(around.table, around.version, version)
    with around.reading(version):
        there, upstream = living_rows(around.there()), _followed(around, version)
        if merge.history == "scd2":
            there = there.where(CURRENT)
            check.of = there.count()
            check.remarks.append(
                f"only rows that are current are compared: {around.upstream} no longer has all changes"
            )
        values = _values(check, there, upstream, merge)
        keys = list(merge.keys)
        loose = [name for name in values if unsteady(there.schema[name].dataType)]
        states = _states(around, check, entry, upstream, keys)
        found = compare(around, Sides(there, states, keys, values, loose), check.of)
        found = Comparison(with_doubled(found.held, doubled_keys(there, merge)), found.sample)
        if found.held.ambiguous:
            check.remarks.append(
                f"not compared: {found.held.ambiguous:,} keys that more than one row of {check.against} has"
            )
        tombstones = _check_tombstones(around, content, entry, merge, found.sample)
        return [answer(around, check, found, content, loose), *([tombstones] if tombstones is not None else [])]


def _check_tombstones(
    around: RecomputeContext, content: Content, entry: Entry, merge: MergePlan, sample: KeySample
) -> Proof | None:
    """Against the deletes in the change feed."""
    try:
        with around.reading(parse_version(entry.after[0]).read_up_to):
            changes = ordered_keys(changes_of(source_rows(around, content).rows, merge, []), merge)
            return check_tombstones(around, content, changes, sample)
    except PenstockError as error:
        if around.own_file(error.message) is not None:
            raise
        check = around.begun("tombstones", f"the changes of {around.upstream}", "tombstones")
        check.said = f"not compared: the deletes of {around.upstream} can no longer be read: {error.message}"
        return check


def _check_history(around: RecomputeContext, content: Content) -> list[Proof] | None:
    """Every version of a row against the changes that it follows; None if those are no longer all there, or if only a
    part of the table is read that was there when it began."""
    if content.entry is not None and parse_version(content.entry.after[0]).snapshot:
        return None
    try:
        found = check_merged(around, replace(content, excuses=list(content.excuses)))
    except PenstockError as error:
        if around.own_file(error.message) is not None:
            raise
        return None
    return None if found[0].outcome == "unverifiable" else found


def _followed(around: RecomputeContext, version: int) -> DataFrame:
    """Its rows, less those that no key names: a copy sets them aside."""
    rows = at_version(around.spark, around.source.uri, version)
    if around.source.merged:
        rows = living(rows)
    shaped, stages = inserted(rows, around.upstream_log, version), around.table.stages
    for one in stages.expect if stages is not None else ():
        shaped = shaped.where(f"coalesce({one.check}, false)")
    return shaped


def _values(check: Proof, there: DataFrame, upstream: DataFrame, merge: MergePlan) -> list[str]:
    ours, theirs = values_of(there.columns, merge), set(upstream.columns)
    if lacking := [name for name in ours if name not in theirs]:
        check.remarks.append(f"not compared, {check.against} has no such column: {', '.join(lacking)}")
    return [name for name in ours if name in theirs]


def _states(around: RecomputeContext, check: Proof, entry: Entry, now: DataFrame, keys: list[str]) -> list[DataFrame]:
    """What the copy may be: as of the version, or with only those rows that have changed since it began."""
    if not is_partial(around, entry):
        return [now]
    rows = rows_read(around, entry, check)
    return [now, now.limit(0) if rows is None else _with_keys(now, rows, keys)]


def _with_keys(rows: DataFrame, others: DataFrame, keys: list[str]) -> DataFrame:
    """The rows that have a key of others."""
    wanted = others.select(*(F.col(quote(key)).alias(f"__{n}") for n, key in enumerate(keys))).distinct()
    same = " AND ".join(f"a.{quote(key)} <=> b.`__{n}`" for n, key in enumerate(keys))
    return rows.alias("a").join(wanted.alias("b"), F.expr(same), "left_semi")


# An audit table against the change feed that it follows: how many changes of each kind every version has.


_COUNT = "changes"


def check_changes(around: RecomputeContext, content: Content) -> Proof:
    """Cheap: rows are counted, not compared."""
    entry, stages = content.entry, around.table.stages
    assert stages is not None and stages.audit is not None
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        check = around.begun("changes", f"the changes of {around.upstream}", "counts")
        check.outcome, check.said = ("not made" if around.report.rows else "same"), "nothing was read yet"
        return check
    version = parse_version(entry.after[0]).read_up_to
    check = around.begun("changes", f"the changes of {around.upstream} up to v{version}", "counts")
    check.of = 0
    check.remarks.append("changes are counted by version and kind; their contents are not compared")
    began = began_of(DeltaLog(around.store, around.table.uri, around.table.name), entry)
    with around.reading(version):
        read = around.reader().covered(around.spark, ReplayRequest(entry.after, began, entry.topics)).rows
        told = audit(stages.audit)(with_source(read, around.table.input), {}, 0)
        sides = Sides(_counted(around.there()), [_counted(told)], ["version", "change_type"], [_COUNT])
        return answer(around, check, Comparison(hold(sides, KeySample()), KeySample()), content, [])


def _counted(rows: DataFrame) -> DataFrame:
    return rows.groupBy("version", "change_type").agg(F.count(F.lit(1)).alias(_COUNT))
