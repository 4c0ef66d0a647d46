"""What needs Spark: numbers computed again, copies held against what they follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.errors import PenstockError, SetupError, Terminal
from penstock.ops.verify.again.content import Content, content_at
from penstock.ops.verify.again.due import due
from penstock.ops.verify.check import Check
from penstock.ops.verify.look import Progress
from penstock.ops.verify.report import Report
from penstock.plan.model import Plan, TablePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ops.verify.again.around import Around

SPARK = "starting Spark to compute again"


def to_check(tables: Sequence[TablePlan], reports: Sequence[Report]) -> list[tuple[TablePlan, Report]]:
    """Those that have something to compute again. Without any, no Spark is started."""
    return [(table, report) for table, report in zip(tables, reports, strict=True) if _waits(table, report)]


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
    waiting = to_check(tables, reports)
    if not waiting:
        return
    from penstock.engine.short_session import short_session
    from penstock.ops.sql.interrupted import ended_by_ctrl_c

    try:
        progress("", SPARK, 0.0)
        with short_session(plan, log="verify") as spark, ended_by_ctrl_c(spark.sparkContext):
            check_in(spark, plan, waiting, store, progress, deep=deep)
    except SetupError as error:
        for _, report in waiting:
            for check in report.checks:
                if check.outcome == "not made":
                    check.outcome, check.said = "unverifiable", f"not computed again: {error.message}"


def check_in(
    spark: SparkSession,
    plan: Plan,
    waiting: Sequence[tuple[TablePlan, Report]],
    store: Store,
    progress: Progress = lambda *_: None,
    *,
    deep: bool = False,
) -> None:
    from penstock.engine.session import logs_folder
    from penstock.ops.verify.again.around import Around

    for number, (table, report) in enumerate(waiting):
        progress(table.name, "computing again", number / len(waiting))
        around = Around(spark.newSession(), store, table, report, deep, str(logs_folder(plan)))
        report.checks = [check for check in report.checks if check.outcome != "not made"]
        report.checks.append(_checked(around))


def _checked(around: Around) -> Check:
    from penstock.ops.verify.again.around import refused

    table = around.table
    begun = around.begun(due(table) or "numbers", around.upstream, "groups" if table.aggregate else "rows")
    try:
        return _judge(table)(around, _content(around))
    except PenstockError as error:
        return refused(begun, error)


def _content(around: Around) -> Content:
    table = around.table
    anew = table.aggregate is not None and table.aggregate.emit == "complete"
    log = DeltaLog(around.store, table.uri, table.name)
    found = content_at(log, around.version, table.definition, every_batch_anew=anew)
    if not found.known:
        raise Terminal("the entry that says how far it was read is no longer in the log", where=table.name)
    if found.entry is not None and not around.same_source(found.entry):
        raise Terminal(f"{around.upstream} was made again: what was read is no longer there", where=table.name)
    return found


def _judge(table: TablePlan) -> Callable[[Around, Content], Check]:
    from penstock.ops.verify.again.audited import check_changes
    from penstock.ops.verify.again.groups import check_numbers
    from penstock.ops.verify.again.replica import check_copy

    if table.aggregate is not None:
        return check_numbers
    return check_copy if table.write.merge is not None else check_changes


def _waits(table: TablePlan, report: Report) -> bool:
    return report.version is not None and due(table) is not None
