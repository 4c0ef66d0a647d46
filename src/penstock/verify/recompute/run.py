"""Runs the checks that need Spark: numbers computed again, copies compared with what they follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, SetupError, Terminal
from penstock.verify.derived_tables import applicable_check
from penstock.verify.recompute.context import Content, RecomputeContext, content_at
from penstock.verify.report import Proof

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.context import Progress
    from penstock.verify.derived_tables import CheckName
    from penstock.verify.report import Report


CheckFunction = Callable[[RecomputeContext, Content], Sequence[Proof]]
SPARK = "starting Spark to compute again"


def tables_to_check(
    tables: Sequence[TablePlan], reports: Sequence[Report], *, deep: bool = False
) -> list[tuple[TablePlan, Report]]:
    """The tables that have something to compute again; with `deep`, every page of each table is read. If there are
    none, no Spark is started."""
    pairs = zip(tables, reports, strict=True)
    return [
        (table, report)
        for table, report in pairs
        if report.version is not None and (deep or applicable_check(table) is not None)
    ]


def mark_not_made(tables: Sequence[TablePlan], reports: Sequence[Report], why: str) -> None:
    """Mark each check as not done, and say why."""
    for _, report in tables_to_check(tables, reports):
        for check in report.checks:
            if check.outcome == "not made":
                check.said += f" ({why})"
                check.left_out = True


def run_spark_checks(
    plan: Plan, tables: Sequence[TablePlan], reports: Sequence[Report], store: Store, progress: Progress, *, deep: bool
) -> None:
    """Run the checks in a Spark session of their own, if one is needed. The results go into the reports, and so does
    the reason if there are none."""
    waiting = tables_to_check(tables, reports, deep=deep)
    if not waiting:
        return
    from penstock.spark.session import cancel_on_interrupt, short_session

    try:
        progress("", SPARK, 0.0)
        with short_session(plan, log="verify") as spark, cancel_on_interrupt(spark.sparkContext):
            run_checks_in(spark, plan, waiting, store, progress, deep=deep)
    except SetupError as error:
        for _, report in waiting:
            for check in report.checks:
                if check.outcome == "not made":
                    check.outcome, check.said = "unverifiable", f"not computed again: {error.message}"
            if deep and not report.checks:
                report.doubts.append(f"--deep: nothing was read again: {error.message}")


def run_checks_in(
    spark: SparkSession,
    plan: Plan,
    waiting: Sequence[tuple[TablePlan, Report]],
    store: Store,
    progress: Progress = lambda *_: None,
    *,
    deep: bool = False,
) -> None:
    from penstock.spark.session import logs_folder

    tables_by_name = {table.name: table for table in plan.tables}
    for number, (table, report) in enumerate(waiting):
        progress(table.name, "computing again", number / len(waiting))
        session = spark.newSession()
        session.conf.set(CHECKSUMS, "true")
        context = RecomputeContext(session, store, table, report, deep, str(logs_folder(plan)), tables_by_name)
        if applicable_check(table) is not None:
            report.checks = [check for check in report.checks if check.outcome != "not made"]
        report.checks += _run_checks(context)


CHECKSUMS = "parquet.page.verify-checksum.enabled"
"""Parquet writes a checksum for each page, and its readers do not look at it unless they are told to."""


def _run_checks(context: RecomputeContext) -> list[Proof]:
    table, check_name = context.table, applicable_check(context.table)
    proofs = _run_check(context, check_name, _check_function(check_name)) if check_name is not None else []
    if not context.deep:
        return proofs
    from penstock.verify.recompute.contents import check_contents, check_pages, check_rejected, has_records

    if _has_contents(table):
        proofs += _run_check(context, "contents", check_contents)
    if has_records(table):
        proofs += _run_check(context, "quarantine", check_rejected)
    return [*proofs, *check_pages(context)]


def _run_check(context: RecomputeContext, name: str, function: CheckFunction) -> list[Proof]:
    table = context.table
    against = context.upstream if table.versions is not None else "its topics"
    check = context.new_check(name, against, "groups" if table.aggregate else "rows")
    try:
        return list(function(context, _read_content(context)))
    except PenstockError as error:
        # A file of the table, or of a table beside it, that cannot be read is wrong whatever its source still has.
        if (file_name := context.own_file(error.message)) is not None:
            check.outcome, check.said = "differs", f"its file {file_name} cannot be read: {error.message}"
        else:
            check.outcome, check.said = "unverifiable", error.message
        return [check]


def _has_contents(table: TablePlan) -> bool:
    """Whether its rows are what its definition makes of its source, row by row."""
    return table.aggregate is None and table.stream is None and table.sink is None and table.write.merge is None


def _read_content(context: RecomputeContext) -> Content:
    table = context.table
    rebuilt_each_batch = table.aggregate is not None and table.aggregate.emit == "complete"
    content = content_at(context.log, context.version, table.definition, every_batch_anew=rebuilt_each_batch)
    if not content.known:
        raise Terminal("the entry that says how far it was read is no longer in the log", where=table.name)
    if content.entry is not None and table.versions is not None and not context.same_source(content.entry):
        raise Terminal(f"{context.upstream} was recreated: what was read is no longer there", where=table.name)
    return content


def _check_function(name: CheckName) -> CheckFunction:
    from penstock.verify.recompute.aggregates import check_numbers
    from penstock.verify.recompute.copies import check_changes, check_copy
    from penstock.verify.recompute.merged import check_merged

    functions: dict[CheckName, CheckFunction] = {
        "numbers": check_numbers,
        "copy": check_copy,
        "changes": check_changes,
        "merge": check_merged,
    }
    return functions[name]
