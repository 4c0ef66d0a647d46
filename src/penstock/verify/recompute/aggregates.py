"""The numbers of an aggregate against a plain query over its source; windows as they were when they closed."""

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
from penstock.tables.aggregate import END, computed, group_names, source_at, touched
from penstock.verify.document import groups_query, rows_query
from penstock.verify.recompute.context import Comparison, answer, compare
from penstock.verify.recompute.diff import Sides, hold, judged, unsteady, unsteady_metrics
from penstock.verify.recompute.source_rows import is_partial, rows_read
from penstock.verify.report import COLLECTED
from penstock.verify.upstream import to_its_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.stages import AggregatePlan
    from penstock.verify.recompute.context import Content, RecomputeContext
    from penstock.verify.recompute.diff import KeySample
    from penstock.verify.report import Differing, Proof

# Windows that appear once, when they are closed: each as it was then.
#
# A row that came too late is in the source and not in its window. So windows are computed from the source as of now,
# and those that differ once more, each as of the version that the batch which closed it had read.


def _micros(end: str, marks: Watermark) -> str:
    return micros(end, TimestampNTZType()) if marks.local else f"unix_micros(CAST({end} AS TIMESTAMP))"


@dataclass
class _Again:
    """What the windows came to that differ from the source of now."""

    wrong: int = 0
    stale: int = 0
    unknown: int = 0
    differences: list[Differing] = field(default_factory=list)
    why: dict[str, None] = field(default_factory=dict)

    def cannot(self, windows: int, why: str) -> None:
        self.unknown += windows
        self.why[why] = None


def check_windows(
    around: RecomputeContext, content: Content, check: Proof, there: DataFrame, loose: list[str]
) -> Proof:
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None and entry is not None
    now = _marks(entry).now
    expected = computed(source_at(around.spark, around.source, parse_version(entry.after[0]).read_up_to), plan)
    expected = expected.where("false" if now is None else f"{_micros(END, _marks(entry))} <= {now}L")
    check.remarks.append(_closed(now))
    sides = Sides(there, [expected], group_names(plan), list(plan.metrics), loose)
    sample = around.sample(sides, check.of)
    first = hold(sides, sample)
    if not first.differing:
        return answer(around, check, Comparison(first, sample), replace(content, excuses=[]), loose)
    again = _as_they_were_closed(around, content, sides, sample)
    held = replace(first, differing=again.wrong, differences=tuple(again.differences[:COLLECTED]))
    check = answer(around, check, Comparison(held, sample), replace(content, excuses=[]), loose)
    told = first.differing - again.wrong - again.unknown - again.stale
    if told > 0:
        late = "1 window is as its" if told == 1 else f"{told:,} windows are as their"
        check.remarks.append(f"{late} source was at the close; rows that came later are in quarantine")
    if again.unknown or again.stale:
        check.remarks += again.why
        if check.outcome == "same":
            check.outcome = "unverifiable" if again.unknown else "stale"
            check.said += f", but for {again.unknown + again.stale:,} that cannot be judged"
    return check


def _as_they_were_closed(around: RecomputeContext, content: Content, sides: Sides, sample: KeySample) -> _Again:
    again = _Again()
    end = f"{_micros(f'k{list(sides.keys).index(END)}', _marks(content.made[0]))} AS end"
    found = judged(sides, sample).where("wrong").selectExpr(end).groupBy("end").count().collect()
    by_entry: dict[int, int] = {}
    for row in found:
        number = _closed_by(content.made, row["end"])
        if number is not None:
            by_entry[number] = by_entry.get(number, 0) + int(row["count"])
        elif _beyond(content, row["end"]):
            by_entry[-1] = by_entry.get(-1, 0) + int(row["count"])
        else:
            again.cannot(int(row["count"]), "the batches that closed the oldest windows are no longer in the log")
    for number, windows in by_entry.items():
        _judge(around, content, sides, sample, again, number, windows)
    return again


def _judge(
    around: RecomputeContext,
    content: Content,
    sides: Sides,
    sample: KeySample,
    again: _Again,
    number: int,
    windows: int,
) -> None:
    """The windows of one batch; -1: those that no batch has closed, which should not be there."""
    plan, newest = around.table.aggregate, content.made[0]
    assert plan is not None
    entry = newest if number < 0 else content.made[number]
    marks, version = _marks(entry), parse_version(entry.after[0]).read_up_to
    if number < 0:
        within = f"{_micros(END, marks)} > {marks.now}L" if marks.now is not None else "true"
        should = sides.should[0].limit(0)
    else:
        within = f"{_micros(END, marks)} <= {marks.now}L"
        within += f" AND {_micros(END, marks)} > {marks.closed}L" if marks.closed is not None else ""
        should = computed(source_at(around.spark, around.source, version), plan).where(within)
    try:
        with around.reading(version):
            held = hold(replace(sides, there=sides.there.where(within), should=[should]), sample)
    except PenstockError as error:
        again.cannot(windows, f"windows closed by batch {entry.generation}.{entry.batch}: {error.message}")
        return
    if held.differing and entry.pins.definition != around.table.definition:
        again.stale += held.differing
        again.why[f"batch {entry.generation}.{entry.batch} closed windows by another definition"] = None
        return
    again.wrong += held.differing
    again.differences += held.differences


def _closed_by(made: list[Entry], end: int | None) -> int | None:
    for number, entry in enumerate(made):
        marks = _marks(entry)
        if end is None or marks.now is None or end > marks.now:
            continue
        if marks.closed is None or end > marks.closed:
            return number
    return None


def _beyond(content: Content, end: int | None) -> bool:
    """No batch can have closed it: its end is later than the watermark, or every batch is known."""
    now = _marks(content.made[0]).now
    return end is None or now is None or end > now or content.from_start


def _marks(entry: Entry) -> Watermark:
    return entry.pins.watermark or Watermark()


def _closed(now: int | None) -> str:
    return "only closed windows, each as it was when it was closed" if now is not None else "no window is closed yet"


# The numbers of an aggregate against a plain query over its source, as of the version that the table has read.


def check_numbers(around: RecomputeContext, content: Content) -> Proof:
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None
    if entry is None or parse_version(entry.after[0]).read_up_to < 0:
        return _nothing_read(around)
    version = parse_version(entry.after[0]).read_up_to
    check = around.begun("numbers", f"{around.upstream} version {version}", "groups")
    check.commands = [*groups_query(around.table, version), *rows_query(around.table, around.version)]
    with around.reading(version):
        there = around.there()
        known = {name.casefold() for name in there.columns}
        if missing := [name for name in (*group_names(plan), *plan.metrics) if name.casefold() not in known]:
            check.outcome = "stale"
            check.said = f"not computed again: the table has no column {', '.join(missing)}: its definition has changed"
            return check
        loose = _loose(there, plan)
        if plan.emit == "final":
            return check_windows(around, content, check, there, loose)
        sides = Sides(
            there, _states(around, content, check, version), group_names(plan), list(plan.metrics), loose=loose
        )
        return answer(around, check, compare(around, sides, check.of), content, loose)


def _nothing_read(around: RecomputeContext) -> Proof:
    check = around.begun("numbers", around.upstream, "groups")
    if around.report.rows:
        check.said = "not computed again: its rows were there before it had read anything"
    else:
        check.outcome, check.said = "same", "nothing was read yet, and there are no groups"
    return check


def _loose(there: DataFrame, plan: AggregatePlan) -> list[str]:
    kinds = {field.name.casefold(): field.dataType for field in there.schema.fields}
    by_kind = [name for name in plan.metrics if unsteady(kinds[name.casefold()])]
    return list(dict.fromkeys([*unsteady_metrics(plan.metrics), *by_kind]))


def _states(around: RecomputeContext, content: Content, check: Proof, version: int) -> list[DataFrame]:
    """All groups as of the version. A table that is not computed at once may rightly lack some of them, and have others
    as of the version before: those that had no row in what was read."""
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None and entry is not None
    now = computed(source_at(around.spark, around.source, version), plan)
    at = parse_version(entry.after[0])
    states = [now]
    if content.at_once:
        return states
    if not at.snapshot and version > 0 and not _read_whole(around, at):
        check.remarks.append(
            f"version {version} of {around.upstream} is read in part: groups are as of it or of the one before"
        )
        states.append(computed(source_at(around.spark, around.source, version - 1), plan))
    if is_partial(around, entry):
        rows = rows_read(around, entry, check)
        states += [now.limit(0) if rows is None else _with_rows(one, rows, plan) for one in list(states)]
    return states


def _read_whole(around: RecomputeContext, at: Version) -> bool:
    """The changes of a commit always come in one batch, its added rows may come in several."""
    return around.source.changes or to_its_end(at, around.upstream_log, around.source.uri)


def _with_rows(groups: DataFrame, rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have one of these rows."""
    names = [quote(name) for name in group_names(plan)]
    same = " AND ".join(f"a.{name} <=> b.{name}" for name in names)
    return groups.alias("a").join(touched(rows, plan).alias("b"), F.expr(same), "left_semi")
