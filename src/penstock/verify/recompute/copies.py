"""Compares a table that follows the changes of another, or an audit table, with the change feed that it follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.pending import start_position
from penstock.ledger.position import parse_version
from penstock.ledger.source import ReplayRequest
from penstock.sources.columns import with_source, without_tombstones
from penstock.sources.delta import at_version, inserted
from penstock.spark.sql_text import quote
from penstock.tables.merge.changes import CURRENT, values_of
from penstock.tables.pipeline import audit
from penstock.verify.document import copy_queries
from penstock.verify.recompute.context import Comparison, compare, conclude
from penstock.verify.recompute.diff import KeySample, Sides, compare_sides, is_nondeterministic
from penstock.verify.recompute.merged import (
    add_doubled,
    changes_of,
    check_merged,
    check_tombstones,
    doubled_keys,
    living_rows,
    ordered_keys,
)
from penstock.verify.recompute.source_rows import is_partial, rows_read, source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.stages import MergePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.report import Proof

# A table that follows the changes of another, compared with that one as of the version that it has read.


def check_copy(context: RecomputeContext, content: Content) -> list[Proof]:
    entry, merge = content.entry, context.table.write.merge
    assert merge is not None
    if merge.history == "scd2" and (history_proofs := _check_history(context, content)) is not None:
        return history_proofs
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        check = context.new_check("copy", context.upstream, "rows")
        text = "nothing was read yet"
        check.outcome, check.said = ("not made", text) if context.report.rows else ("same", text)
        return [check]
    version = parse_version(entry.after[0]).read_up_to
    check = context.new_check("copy", f"{context.upstream} version {version}", "rows")
    check.commands = copy_queries(context.table, context.version, version)
    with context.reading(version):
        actual, upstream = living_rows(context.table_rows()), _followed_rows(context, version)
        if merge.history == "scd2":
            actual = actual.where(CURRENT)
            check.of = actual.count()
            check.remarks.append(
                f"only rows that are current are compared: {context.upstream} no longer has all changes"
            )
        values = _compared_values(check, actual, upstream, merge)
        keys = list(merge.keys)
        loose = [name for name in values if is_nondeterministic(actual.schema[name].dataType)]
        states = _expected_states(context, check, entry, upstream, keys)
        comparison = compare(context, Sides(actual, states, keys, values, loose), check.of)
        comparison = Comparison(add_doubled(comparison.diff, doubled_keys(actual, merge)), comparison.sample)
        if comparison.diff.ambiguous:
            check.remarks.append(
                f"not compared: {comparison.diff.ambiguous:,} keys that more than one row of {check.against} has"
            )
        tombstones = _check_tombstones(context, content, entry, merge, comparison.sample)
        return [conclude(context, check, comparison, content, loose), *([tombstones] if tombstones is not None else [])]


def _check_tombstones(
    context: RecomputeContext, content: Content, entry: Entry, merge: MergePlan, sample: KeySample
) -> Proof | None:
    """Compare the tombstones with the deletes in the change feed."""
    try:
        with context.reading(parse_version(entry.after[0]).read_up_to):
            changes = ordered_keys(changes_of(source_rows(context, content).rows, merge, []), merge)
            return check_tombstones(context, content, changes, sample)
    except PenstockError as error:
        if context.own_file(error.message) is not None:
            raise
        check = context.new_check("tombstones", f"the changes of {context.upstream}", "tombstones")
        check.said = f"not compared: the deletes of {context.upstream} can no longer be read: {error.message}"
        return check


def _check_history(context: RecomputeContext, content: Content) -> list[Proof] | None:
    """Compare every version of a row with the changes that it follows. None if those are no longer all there, or if the
    snapshot that the table began with is only partly read."""
    if content.entry is not None and parse_version(content.entry.after[0]).snapshot:
        return None
    try:
        proofs = check_merged(context, replace(content, excuses=list(content.excuses)))
    except PenstockError as error:
        if context.own_file(error.message) is not None:
            raise
        return None
    return None if proofs[0].outcome == "unverifiable" else proofs


def _followed_rows(context: RecomputeContext, version: int) -> DataFrame:
    """The rows upstream without those that have no valid key: a copy sets them aside."""
    rows = at_version(context.spark, context.source.uri, version)
    if context.source.merged:
        rows = without_tombstones(rows)
    shaped, stages = inserted(rows, context.upstream_log, version), context.table.stages
    for expectation in stages.expect if stages is not None else ():
        shaped = shaped.where(f"coalesce({expectation.check}, false)")
    return shaped


def _compared_values(check: Proof, actual: DataFrame, upstream: DataFrame, merge: MergePlan) -> list[str]:
    columns, upstream_columns = values_of(actual.columns, merge), set(upstream.columns)
    if lacking := [name for name in columns if name not in upstream_columns]:
        check.remarks.append(f"not compared, {check.against} has no such column: {', '.join(lacking)}")
    return [name for name in columns if name in upstream_columns]


def _expected_states(
    context: RecomputeContext, check: Proof, entry: Entry, current: DataFrame, keys: list[str]
) -> list[DataFrame]:
    """The states that the copy may be in: as of the version, or with only those rows that have changed since it
    began."""
    if not is_partial(context, entry):
        return [current]
    rows = rows_read(context, entry, check)
    return [current, current.limit(0) if rows is None else _rows_with_keys(current, rows, keys)]


def _rows_with_keys(rows: DataFrame, other_rows: DataFrame, keys: list[str]) -> DataFrame:
    """The rows whose key is in `other_rows`."""
    other_keys = other_rows.select(*(F.col(quote(key)).alias(f"__{n}") for n, key in enumerate(keys))).distinct()
    condition = " AND ".join(f"a.{quote(key)} <=> b.`__{n}`" for n, key in enumerate(keys))
    return rows.alias("a").join(other_keys.alias("b"), F.expr(condition), "left_semi")


# An audit table compared with the change feed that it follows: how many changes of each kind every version has.


_COUNT = "changes"


def check_changes(context: RecomputeContext, content: Content) -> Proof:
    """Cheap: rows are counted, not compared."""
    entry, stages = content.entry, context.table.stages
    assert stages is not None and stages.audit is not None
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        check = context.new_check("changes", f"the changes of {context.upstream}", "counts")
        check.outcome, check.said = ("not made" if context.report.rows else "same"), "nothing was read yet"
        return check
    version = parse_version(entry.after[0]).read_up_to
    check = context.new_check("changes", f"the changes of {context.upstream} up to v{version}", "counts")
    check.of = 0
    check.remarks.append("changes are counted by version and kind; their contents are not compared")
    start_positions = start_position(DeltaLog(context.store, context.table.uri, context.table.name), entry)
    with context.reading(version):
        feed = (
            context.reader().replay_input(context.spark, ReplayRequest(entry.after, start_positions, entry.topics)).rows
        )
        expected = audit(stages.audit)(with_source(feed, context.table.input), {}, 0)
        sides = Sides(
            _count_changes(context.table_rows()), [_count_changes(expected)], ["version", "change_type"], [_COUNT]
        )
        return conclude(context, check, Comparison(compare_sides(sides, KeySample()), KeySample()), content, [])


def _count_changes(rows: DataFrame) -> DataFrame:
    return rows.groupBy("version", "change_type").agg(F.count(F.lit(1)).alias(_COUNT))
