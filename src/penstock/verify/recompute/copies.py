"""Compares a table that follows the changes of another, or an audit table, with the change feed that it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import PenstockError
from penstock.ledger.position import parse_version
from penstock.ledger.source import ReplayRequest
from penstock.sources.columns import alive, with_source, without_tombstones
from penstock.sources.delta import at_version, inserted
from penstock.tables.merge.changes import CURRENT, values_of
from penstock.tables.pipeline import audit
from penstock.verify.document import copy_queries
from penstock.verify.recompute.context import conclude
from penstock.verify.recompute.diff import Sides, compare_sides, nondeterministic_columns, rows_with_keys
from penstock.verify.recompute.merged import add_doubled, changes_of, check_merged, check_tombstones, doubled_keys
from penstock.verify.recompute.source_rows import is_partial, rows_read, source_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.plan.stages import MergePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.diff import KeySample
    from penstock.verify.report import Proof

# A table that follows the changes of another, compared with that one as of the version that it has read.


def check_copy(context: RecomputeContext, content: Content) -> list[Proof]:
    entry, merge, version = content.entry, context.table.write.merge, context.version_read(content)
    assert merge is not None
    if merge.history == "scd2" and (history_proofs := _check_history(context, content)) is not None:
        return history_proofs
    if entry is None or version is None:
        return [context.nothing_read(context.new_check("copy", context.upstream, "rows"))]
    check = context.new_check("copy", f"{context.upstream} version {version}", "rows")
    check.commands = copy_queries(context.table, context.version, version)
    with context.reading(version):
        actual, upstream = alive(context.table_rows()), _followed_rows(context, version)
        if merge.history == "scd2":
            actual = actual.where(CURRENT)
            check.of = actual.count()
            check.remarks.append(
                f"only rows that are current are compared: {context.upstream} no longer has all changes"
            )
        values = _compared_values(check, actual, upstream, merge)
        keys = list(merge.keys)
        loose = nondeterministic_columns(actual, values)
        sides = Sides(actual, _expected_states(context, check, entry, upstream, keys), keys, values, loose)
        sample = context.sample(sides, check.of)
        diff = add_doubled(compare_sides(sides, sample), doubled_keys(actual, merge), keys)
        if diff.ambiguous:
            check.remarks.append(f"not compared: {diff.ambiguous:,} keys that more than one row of {check.against} has")
        tombstones = _check_tombstones(context, content, version, merge, sample)
        proof = conclude(context, check, diff, content.excuses, sample=sample, loose=loose)
        return [proof, *([tombstones] if tombstones is not None else [])]


def _check_tombstones(
    context: RecomputeContext, content: Content, version: int, merge: MergePlan, sample: KeySample
) -> Proof | None:
    """Compare the tombstones with the deletes in the change feed."""
    try:
        with context.reading(version):
            changes = changes_of(source_rows(context, content).rows, merge, [])
            return check_tombstones(context, content, changes, content.excuses, sample)
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
        proofs = check_merged(context, content)
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
    return [current, current.limit(0) if rows is None else rows_with_keys(current, rows, keys)]


# An audit table compared with the change feed that it follows: how many changes of each kind every version has.


_COUNT = "changes"


def check_changes(context: RecomputeContext, content: Content) -> list[Proof]:
    """Cheap: rows are counted, not compared."""
    entry, stages, version = content.entry, context.table.stages, context.version_read(content)
    assert stages is not None and stages.audit is not None
    if entry is None or version is None:
        return [context.nothing_read(context.new_check("changes", f"the changes of {context.upstream}", "counts"))]
    check = context.new_check("changes", f"the changes of {context.upstream} up to v{version}", "counts")
    check.of = 0
    check.remarks.append("changes are counted by version and kind; their contents are not compared")
    request = ReplayRequest(entry.after, context.start_position(entry), entry.topics)
    with context.reading(version):
        feed = context.reader().replay_input(context.spark, request).rows
        expected = audit(stages.audit)(with_source(feed, context.table.input), {}, 0)
        sides = Sides(
            _count_changes(context.table_rows()), [_count_changes(expected)], ["version", "change_type"], [_COUNT]
        )
        return [conclude(context, check, compare_sides(sides), content.excuses)]


def _count_changes(rows: DataFrame) -> DataFrame:
    return rows.groupBy("version", "change_type").agg(F.count(F.lit(1)).alias(_COUNT))
