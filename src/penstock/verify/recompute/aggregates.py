"""Compares the numbers of an aggregate with a plain query over its source; windows as they were when they closed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType

from penstock.errors import PenstockError
from penstock.ledger.entry import Watermark
from penstock.ledger.position import parse_version
from penstock.ledger.times import micros
from penstock.spark.sql_text import quote
from penstock.tables.aggregate import END, aggregate_groups, group_names, groups_of_batch, source_at
from penstock.verify.document import groups_query, rows_query
from penstock.verify.recompute.context import Comparison, compare, conclude
from penstock.verify.recompute.diff import Sides, compare_sides, is_nondeterministic, judge_keys, unsteady_metrics
from penstock.verify.recompute.source_rows import is_partial, rows_read
from penstock.verify.report import COLLECTED
from penstock.verify.upstream import is_read_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.stages import AggregatePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.diff import KeySample
    from penstock.verify.report import Differing, Proof

# Windows that are written once, when they close: each is compared as it was then.
#
# A row that came too late is in the source and not in its window. So windows are first computed from the current
# source, and those that differ are computed again, each as of the version that the batch which closed it had read.


def _micros(end: str, watermark: Watermark) -> str:
    return micros(end, TimestampNTZType()) if watermark.local else f"unix_micros(CAST({end} AS TIMESTAMP))"


@dataclass
class _WindowOutcome:
    """What became of the windows that differ from the current source."""

    wrong: int = 0
    stale: int = 0
    unknown: int = 0
    differences: list[Differing] = field(default_factory=list)
    why: dict[str, None] = field(default_factory=dict)

    def cannot(self, windows: int, reason: str) -> None:
        self.unknown += windows
        self.why[reason] = None


def check_windows(
    context: RecomputeContext, content: Content, check: Proof, actual: DataFrame, loose: list[str]
) -> Proof:
    plan, entry = context.table.aggregate, content.entry
    assert plan is not None and entry is not None
    closed_until = _watermark(entry).now
    expected = aggregate_groups(
        source_at(context.spark, context.source, parse_version(entry.after[0]).read_up_to), plan
    )
    expected = expected.where(
        "false" if closed_until is None else f"{_micros(END, _watermark(entry))} <= {closed_until}L"
    )
    check.remarks.append(_closed_remark(closed_until))
    sides = Sides(actual, [expected], group_names(plan), list(plan.metrics), loose)
    sample = context.sample(sides, check.of)
    first_diff = compare_sides(sides, sample)
    if not first_diff.differing:
        return conclude(context, check, Comparison(first_diff, sample), replace(content, excuses=[]), loose)
    outcome = _compare_at_close(context, content, sides, sample)
    diff = replace(first_diff, differing=outcome.wrong, differences=tuple(outcome.differences[:COLLECTED]))
    check = conclude(context, check, Comparison(diff, sample), replace(content, excuses=[]), loose)
    explained = first_diff.differing - outcome.wrong - outcome.unknown - outcome.stale
    if explained > 0:
        late = "1 window is as its" if explained == 1 else f"{explained:,} windows are as their"
        check.remarks.append(f"{late} source was at the close; rows that came later are in quarantine")
    if outcome.unknown or outcome.stale:
        check.remarks += outcome.why
        if check.outcome == "same":
            check.outcome = "unverifiable" if outcome.unknown else "stale"
            check.said += f", but for {outcome.unknown + outcome.stale:,} that cannot be judged"
    return check


def _compare_at_close(context: RecomputeContext, content: Content, sides: Sides, sample: KeySample) -> _WindowOutcome:
    outcome = _WindowOutcome()
    end = f"{_micros(f'k{list(sides.keys).index(END)}', _watermark(content.entries[0]))} AS end"
    end_counts = judge_keys(sides, sample).where("wrong").selectExpr(end).groupBy("end").count().collect()
    by_entry: dict[int, int] = {}
    for row in end_counts:
        number = _closing_batch(content.entries, row["end"])
        if number is not None:
            by_entry[number] = by_entry.get(number, 0) + int(row["count"])
        elif _cannot_be_closed(content, row["end"]):
            by_entry[-1] = by_entry.get(-1, 0) + int(row["count"])
        else:
            outcome.cannot(int(row["count"]), "the batches that closed the oldest windows are no longer in the log")
    for number, windows in by_entry.items():
        _compare_batch_windows(context, content, sides, sample, outcome, number, windows)
    return outcome


def _compare_batch_windows(
    context: RecomputeContext,
    content: Content,
    sides: Sides,
    sample: KeySample,
    outcome: _WindowOutcome,
    number: int,
    windows: int,
) -> None:
    """Compare the windows that one batch closed; -1: those that no batch has closed, which should not be there."""
    plan, newest = context.table.aggregate, content.entries[0]
    assert plan is not None
    entry = newest if number < 0 else content.entries[number]
    watermark, version = _watermark(entry), parse_version(entry.after[0]).read_up_to
    if number < 0:
        condition = f"{_micros(END, watermark)} > {watermark.now}L" if watermark.now is not None else "true"
        expected = sides.expected[0].limit(0)
    else:
        condition = f"{_micros(END, watermark)} <= {watermark.now}L"
        condition += f" AND {_micros(END, watermark)} > {watermark.closed}L" if watermark.closed is not None else ""
        expected = aggregate_groups(source_at(context.spark, context.source, version), plan).where(condition)
    try:
        with context.reading(version):
            diff = compare_sides(replace(sides, actual=sides.actual.where(condition), expected=[expected]), sample)
    except PenstockError as error:
        outcome.cannot(windows, f"windows closed by batch {entry.generation}.{entry.batch}: {error.message}")
        return
    if diff.differing and entry.pins.definition != context.table.definition:
        outcome.stale += diff.differing
        outcome.why[f"batch {entry.generation}.{entry.batch} closed windows by another definition"] = None
        return
    outcome.wrong += diff.differing
    outcome.differences += diff.differences


def _closing_batch(entries: list[Entry], end: int | None) -> int | None:
    for number, entry in enumerate(entries):
        watermark = _watermark(entry)
        if end is None or watermark.now is None or end > watermark.now:
            continue
        if watermark.closed is None or end > watermark.closed:
            return number
    return None


def _cannot_be_closed(content: Content, end: int | None) -> bool:
    """Whether no batch can have closed it: its end is later than the watermark, or every batch is known."""
    closed_until = _watermark(content.entries[0]).now
    return end is None or closed_until is None or end > closed_until or content.from_start


def _watermark(entry: Entry) -> Watermark:
    return entry.pins.watermark or Watermark()


def _closed_remark(closed_until: int | None) -> str:
    return (
        "only closed windows, each as it was when it was closed"
        if closed_until is not None
        else "no window is closed yet"
    )


# The numbers of an aggregate compared with a plain query over its source, as of the version that the table has read.


def check_numbers(context: RecomputeContext, content: Content) -> Proof:
    plan, entry = context.table.aggregate, content.entry
    assert plan is not None
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        return _nothing_read(context)
    version = parse_version(entry.after[0]).read_up_to
    check = context.new_check("numbers", f"{context.upstream} version {version}", "groups")
    check.commands = [*groups_query(context.table, version), *rows_query(context.table, context.version)]
    with context.reading(version):
        actual = context.table_rows()
        column_names = {name.casefold() for name in actual.columns}
        if missing := [name for name in (*group_names(plan), *plan.metrics) if name.casefold() not in column_names]:
            check.outcome = "stale"
            check.said = f"not computed again: the table has no column {', '.join(missing)}: its definition has changed"
            return check
        loose = _loose_metrics(actual, plan)
        if plan.emit == "final":
            return check_windows(context, content, check, actual, loose)
        sides = Sides(
            actual,
            _expected_states(context, content, check, version),
            group_names(plan),
            list(plan.metrics),
            nondeterministic=loose,
        )
        return conclude(context, check, compare(context, sides, check.of), content, loose)


def _nothing_read(context: RecomputeContext) -> Proof:
    check = context.new_check("numbers", context.upstream, "groups")
    if context.report.rows:
        check.said = "not computed again: its rows were there before it had read anything"
    else:
        check.outcome, check.said = "same", "nothing was read yet, and there are no groups"
    return check


def _loose_metrics(actual: DataFrame, plan: AggregatePlan) -> list[str]:
    types = {field.name.casefold(): field.dataType for field in actual.schema.fields}
    by_type = [name for name in plan.metrics if is_nondeterministic(types[name.casefold()])]
    return list(dict.fromkeys([*unsteady_metrics(plan.metrics), *by_type]))


def _expected_states(context: RecomputeContext, content: Content, check: Proof, version: int) -> list[DataFrame]:
    """The states that the groups may be in: all of them as of the version. A table that is not computed at once may
    rightly lack those that had no row in what was read, or have them as of the version before."""
    plan, entry = context.table.aggregate, content.entry
    assert plan is not None and entry is not None
    current = aggregate_groups(source_at(context.spark, context.source, version), plan)
    position = parse_version(entry.after[0])
    states = [current]
    if content.at_once:
        return states
    if not position.snapshot and version > 0 and not _is_read_whole(context, position):
        check.remarks.append(
            f"version {version} of {context.upstream} is read in part: groups are as of it or of the one before"
        )
        states.append(aggregate_groups(source_at(context.spark, context.source, version - 1), plan))
    if is_partial(context, entry):
        rows = rows_read(context, entry, check)
        states += [current.limit(0) if rows is None else _groups_with_rows(state, rows, plan) for state in list(states)]
    return states


def _is_read_whole(context: RecomputeContext, position: Version) -> bool:
    """The changes of a commit always come in one batch, its added rows may come in several."""
    return context.source.changes or is_read_to_end(position, context.upstream_log, context.source.uri)


def _groups_with_rows(groups: DataFrame, rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have one of these rows."""
    names = [quote(name) for name in group_names(plan)]
    condition = " AND ".join(f"a.{name} <=> b.{name}" for name in names)
    return groups.alias("a").join(groups_of_batch(rows, plan).alias("b"), F.expr(condition), "left_semi")
