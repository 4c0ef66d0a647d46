"""The numbers of an aggregate against a plain query over its source, as of the version that the table has read."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.aggregate.groups import computed, group_names, source_at, touched
from penstock.engine.delta.version import Version, parse
from penstock.engine.identifiers import quote
from penstock.ops.verify.again.around import Around, answer, compare
from penstock.ops.verify.again.begun import lacks_some, rows_read
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Sides
from penstock.ops.verify.again.kinds import unsteady
from penstock.ops.verify.again.unsteady import unsteady_metrics
from penstock.ops.verify.again.windows import check_windows
from penstock.ops.verify.check import Check
from penstock.ops.verify.queries import groups_query, rows_query
from penstock.ops.verify.upstream import to_its_end
from penstock.plan.stages import AggregatePlan


def check_numbers(around: Around, content: Content) -> Check:
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None
    if entry is None or parse(entry.after[0]).read_up_to < 0:
        return _nothing_read(around)
    version = parse(entry.after[0]).read_up_to
    check = around.begun("numbers", f"{around.upstream}@v{version}", "groups")
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


def _nothing_read(around: Around) -> Check:
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


def _states(around: Around, content: Content, check: Check, version: int) -> list[DataFrame]:
    """All groups as of the version. A table that is not computed at once may rightly lack some of them, and have others
    as of the version before: those that had no row in what was read."""
    plan, entry = around.table.aggregate, content.entry
    assert plan is not None and entry is not None
    now = computed(source_at(around.spark, around.source, version), plan)
    at = parse(entry.after[0])
    states = [now]
    if content.at_once:
        return states
    if not at.snapshot and version > 0 and not _read_whole(around, at):
        check.remarks.append(
            f"version {version} of {around.upstream} is read in part: groups are as of it or of the one before"
        )
        states.append(computed(source_at(around.spark, around.source, version - 1), plan))
    if lacks_some(around, entry):
        rows = rows_read(around, entry, check)
        states += [now.limit(0) if rows is None else _with_rows(one, rows, plan) for one in list(states)]
    return states


def _read_whole(around: Around, at: Version) -> bool:
    """The changes of a commit always come in one batch, its added rows may come in several."""
    return around.source.changes or to_its_end(at, around.upstream_log, around.source.uri)


def _with_rows(groups: DataFrame, rows: DataFrame, plan: AggregatePlan) -> DataFrame:
    """The groups that have one of these rows."""
    names = [quote(name) for name in group_names(plan)]
    same = " AND ".join(f"a.{name} <=> b.{name}" for name in names)
    return groups.alias("a").join(touched(rows, plan).alias("b"), F.expr(same), "left_semi")
