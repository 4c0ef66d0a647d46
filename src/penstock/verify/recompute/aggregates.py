"""Compares the numbers of an aggregate with a plain query over its source; windows as they were when they closed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import TimestampNTZType

from penstock.errors import PenstockError
from penstock.ledger.entry import Watermark
from penstock.ledger.position import parse_version
from penstock.ledger.times import micros
from penstock.tables.aggregate import END, aggregate_groups, group_names, groups_of_batch, source_at
from penstock.verify.document import groups_query, rows_query
from penstock.verify.recompute.context import conclude
from penstock.verify.recompute.diff import (
    Sides,
    compare_sides,
    is_nondeterministic,
    judge_keys,
    rows_with_keys,
    unsteady_metrics,
)
from penstock.verify.recompute.source_rows import is_partial, rows_read
from penstock.verify.report import COLLECTED
from penstock.verify.upstream import is_read_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
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
    check.remarks.append(
        "no window is closed yet" if closed_until is None else "only closed windows, each as it was when it was closed"
    )
    sides = Sides(actual, [expected], group_names(plan), list(plan.metrics), loose)
    sample = context.sample(sides, check.of)
    first_diff = compare_sides(sides, sample)
    if not first_diff.differing:
        return conclude(context, check, first_diff, (), sample=sample, loose=loose)
    outcome = _compare_at_close(context, content, sides, sample)
    diff = replace(first_diff, differing=outcome.wrong, differences=tuple(outcome.differences[:COLLECTED]))
    check = conclude(context, check, diff, (), sample=sample, loose=loose)
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
    by_entry: Counter[int] = Counter()
    for row in end_counts:
        number = _closing_batch(content, row["end"])
        if number is not None:
            by_entry[number] += int(row["count"])
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
    """Compare the windows that one batch closed, or with -1 those that no batch has closed, which should not be
    there."""
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


def _closing_batch(content: Content, end: int | None) -> int | None:
    """The number of the entry whose batch closed the windows with this end. -1 if none can have closed them: their end
    is later than the watermark, or every batch is known. None if the batch is not known."""
    for number, entry in enumerate(content.entries):
        watermark = _watermark(entry)
        if end is None or watermark.now is None or end > watermark.now:
            continue
        if watermark.closed is None or end > watermark.closed:
            return number
    closed_until = _watermark(content.entries[0]).now
    if end is None or closed_until is None or end > closed_until or content.from_start:
        return -1
    return None


def _watermark(entry: Entry) -> Watermark:
    return entry.pins.watermark or Watermark()


# All groups, as of the version that the table has read.


def check_numbers(context: RecomputeContext, content: Content) -> list[Proof]:
    plan, version = context.table.aggregate, context.version_read(content)
    assert plan is not None
    if version is None:
        check = context.nothing_read(context.new_check("numbers", context.upstream, "groups"))
        if context.report.rows:
            check.said = "not computed again: its rows were there before it had read anything"
        else:
            check.said = "nothing was read yet, and there are no groups"
        return [check]
    check = context.new_check("numbers", f"{context.upstream} version {version}", "groups")
    check.commands = [*groups_query(context.table, version), *rows_query(context.table, context.version)]
    with context.reading(version):
        actual = context.table_rows()
        column_names = {name.casefold() for name in actual.columns}
        if missing := [name for name in (*group_names(plan), *plan.metrics) if name.casefold() not in column_names]:
            check.outcome = "stale"
            check.said = f"not computed again: the table has no column {', '.join(missing)}: its definition has changed"
            return [check]
        loose = _loose_metrics(actual, plan)
        if plan.emit == "final":
            return [check_windows(context, content, check, actual, loose)]
        states = _expected_states(context, content, check, version)
        sides = Sides(actual, states, group_names(plan), list(plan.metrics), loose)
        sample = context.sample(sides, check.of)
        diff = compare_sides(sides, sample)
        return [conclude(context, check, diff, content.excuses, sample=sample, loose=loose)]


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
    # The changes of a commit always come in one batch, its added rows may come in several.
    added_rows_only = not position.snapshot and version > 0 and not context.source.changes
    if added_rows_only and not is_read_to_end(position, context.upstream_log, context.source.uri):
        check.remarks.append(
            f"version {version} of {context.upstream} is read in part: groups are as of it or of the one before"
        )
        states.append(aggregate_groups(source_at(context.spark, context.source, version - 1), plan))
    if is_partial(context, entry):
        rows = rows_read(context, entry, check)
        if rows is None:
            states += [current.limit(0)] * len(states)
        else:
            groups = groups_of_batch(rows, plan)
            states += [rows_with_keys(state, groups, group_names(plan)) for state in states]
    return states
