"""What needs Spark: numbers computed again, copies held against what they follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SetupError, Terminal
from penstock.ledger.delta_log import DeltaLog
from penstock.verify.recompute.applicability import due
from penstock.verify.recompute.context import Content, content_at
from penstock.verify.report import Proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.context import Progress
    from penstock.verify.recompute.context import RecomputeContext
    from penstock.verify.report import Report


Judge = Callable[["RecomputeContext", Content], Sequence[Proof]]
SPARK = "starting Spark to compute again"


def to_check(
    tables: Sequence[TablePlan], reports: Sequence[Report], *, deep: bool = False
) -> list[tuple[TablePlan, Report]]:
    """Those that have something to compute again; `deep`: every page of each is read. Without any, no Spark is
    started."""
    both = zip(tables, reports, strict=True)
    return [(table, one) for table, one in both if one.version is not None and (deep or due(table) is not None)]


def left_out(tables: Sequence[TablePlan], reports: Sequence[Report], why: str) -> None:
    """Says of each that it was not done, and why."""
    for _, report in to_check(tables, reports):
        for check in report.checks:
            if check.outcome == "not made":
                check.said += f" ({why})"
                check.left_out = True


def check_again(
    plan: Plan, tables: Sequence[TablePlan], reports: Sequence[Report], store: Store, progress: Progress, *, deep: bool
) -> None:
    """With a Spark of its own, if one is needed. The answers are in the reports, and so is why there are none."""
    waiting = to_check(tables, reports, deep=deep)
    if not waiting:
        return
    from penstock.spark.session import ended_by_ctrl_c, short_session

    try:
        progress("", SPARK, 0.0)
        with short_session(plan, log="verify") as spark, ended_by_ctrl_c(spark.sparkContext):
            check_in(spark, plan, waiting, store, progress, deep=deep)
    except SetupError as error:
        for _, report in waiting:
            for check in report.checks:
                if check.outcome == "not made":
                    check.outcome, check.said = "unverifiable", f"not computed again: {error.message}"
            if deep and not report.checks:
                report.doubts.append(f"--deep: nothing was read again: {error.message}")


def check_in(
    spark: SparkSession,
    plan: Plan,
    waiting: Sequence[tuple[TablePlan, Report]],
    store: Store,
    progress: Progress = lambda *_: None,
    *,
    deep: bool = False,
) -> None:
    from penstock.spark.session import logs_folder
    from penstock.verify.recompute.context import RecomputeContext

    known = {table.name: table for table in plan.tables}
    for number, (table, report) in enumerate(waiting):
        progress(table.name, "computing again", number / len(waiting))
        session = spark.newSession()
        session.conf.set(CHECKSUMS, "true")
        around = RecomputeContext(session, store, table, report, deep, str(logs_folder(plan)), known)
        if due(table) is not None:
            report.checks = [check for check in report.checks if check.outcome != "not made"]
        report.checks += _checked(around)


CHECKSUMS = "parquet.page.verify-checksum.enabled"
"""Parquet writes one for each page, and its readers do not look at it unless they are told to."""


def _checked(around: RecomputeContext) -> list[Proof]:
    table = around.table
    found = _made(around, due(table) or "numbers", _judge(table)) if due(table) is not None else []
    if not around.deep:
        return found
    from penstock.verify.recompute.contents import check_contents, check_pages, check_rejected, has_records

    if _has_contents(table):
        found += _made(around, "contents", check_contents)
    if has_records(table):
        found += _made(around, "quarantine", check_rejected)

    return [*found, *check_pages(around)]


def _made(around: RecomputeContext, name: str, judge: Judge) -> list[Proof]:
    table = around.table
    against = around.upstream if table.versions is not None else "its topics"
    begun = around.begun(name, against, "groups" if table.aggregate else "rows")
    try:
        return list(judge(around, _content(around)))
    except PenstockError as error:
        return [_refused(around, begun, error)]


def _refused(around: RecomputeContext, begun: Proof, error: PenstockError) -> Proof:
    """A file of the table, or of what lies beside it, that cannot be read is no matter of what its source still has."""
    from penstock.verify.recompute.context import refused

    if (own := around.own_file(error.message)) is not None:
        begun.outcome, begun.said = "differs", f"its file {own} cannot be read: {error.message}"
        return begun
    return refused(begun, error)


def _has_contents(table: TablePlan) -> bool:
    """Its rows are what its definition makes of its source, row by row."""
    return table.aggregate is None and table.stream is None and table.sink is None and table.write.merge is None


def _content(around: RecomputeContext) -> Content:
    table = around.table
    anew = table.aggregate is not None and table.aggregate.emit == "complete"
    log = DeltaLog(around.store, table.uri, table.name)
    found = content_at(log, around.version, table.definition, every_batch_anew=anew)
    if not found.known:
        raise Terminal("the entry that says how far it was read is no longer in the log", where=table.name)
    if found.entry is not None and table.versions is not None and not around.same_source(found.entry):
        raise Terminal(f"{around.upstream} was made again: what was read is no longer there", where=table.name)
    return found


def _judge(table: TablePlan) -> Judge:
    from penstock.verify.recompute.aggregates import check_numbers
    from penstock.verify.recompute.copies import check_changes, check_copy
    from penstock.verify.recompute.merged import check_merged

    if due(table) == "merge":
        return check_merged
    if due(table) == "copy":
        return check_copy
    check = check_numbers if table.aggregate is not None else check_changes
    return lambda around, content: [check(around, content)]
