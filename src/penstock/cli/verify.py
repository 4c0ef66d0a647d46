"""`penstock verify`: one line per table if all is well, otherwise also each wrong range of offsets."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from penstock.cli.console import Bar, facts_view, print_json, print_view, visible
from penstock.cli.options import AsJson, Directory, Tables, load_tables
from penstock.errors import UsageError
from penstock.ledger.position import Range
from penstock.spec.quantity import counted
from penstock.verify.report import summary

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.ledger.spans import Spans
    from penstock.verify.coordinates import Doubled
    from penstock.verify.ledger_walk import Accepted
    from penstock.verify.report import Partition, Proof, Report


SHOWN = 10
"""Ranges of a kind that are listed; `--json` has all."""
STYLES = {"differs": "red", "stale": "yellow", "unverifiable": "yellow"}
"""Styles of check outcomes that need attention."""


def report_view(report: Report) -> RenderableType:
    lines = [*_problem_lines(report), *_detail_lines(report)]
    facts = ((label, Text(visible(text), style=style)) for label, text, style in lines)
    return Group(_head(report), facts_view(facts, labels=12)) if lines else _head(report)


HEADS = {
    "complete": ("complete", "bold green"),
    "behind": ("behind", "bold yellow"),
    "partial": ("partial", "bold yellow"),
    "wrong": ("WRONG", "bold red"),
}
Line = tuple[str, str, str]
"""Label, text and style."""


def _head(report: Report) -> Text:
    name = (f"{report.table}  ", "bold")
    if report.verdict == "not created":
        return Text.assemble(name, ("not created yet", "yellow"), f": {report.hint}")
    message = summary(report)
    return Text.assemble(name, HEADS[report.verdict], f": {visible(message)}" if message else "")


def _problem_lines(report: Report) -> Iterable[Line]:
    for problem in report.problems:
        yield "problem", problem, "red"
    for broken in report.chain.broken if report.chain else ():
        yield "chain", broken, "red"
    partitions = report.partitions
    yield from _ranges("missing", "record", "red", [(partition, partition.lost) for partition in partitions])
    yield from _times("doubled", [(partition, doubled) for partition in partitions for doubled in partition.doubled])
    yield from _times("too few", [(partition, short) for partition in partitions for short in partition.short])
    yield from _ranges("unexpected", "offset", "red", [(partition, partition.unexpected) for partition in partitions])
    if report.rows_without_coordinates:
        yield "unexpected", f"{report.rows_without_coordinates:,} rows without topic, partition or offset", "red"
    unverifiable = [(partition, partition.unverifiable) for partition in partitions]
    yield from _ranges("not proven", "offset", "yellow", unverifiable)
    for reason in dict.fromkeys(reason for partition in partitions for reason in partition.reasons):
        yield "", reason, "dim"
    for doubt in report.doubts:
        yield "not proven", doubt, "yellow"
    if report.hint and report.verdict != "not created":
        yield "", f"-> {report.hint}", "dim"
    for check in report.checks:
        if check.outcome in STYLES or check.left_out:
            yield from _check(check, STYLES.get(check.outcome, "yellow"))


def _check(check: Proof, style: str) -> Iterable[Line]:
    yield check.name, ("stale: " if check.outcome == "stale" else "") + check.said, style
    for difference in check.differences[:SHOWN]:
        yield "", str(difference), style
    listed = len(check.differences)
    if check.differing > SHOWN and listed:
        more = "" if listed <= SHOWN else ": `--json` has them" if listed == check.differing else ": `--json` has some"
        yield "", f"and {check.differing - SHOWN:,} more{more}", style
    for remark in check.remarks:
        yield "", remark, "dim"


def _ranges(label: str, unit: str, style: str, spans: list[tuple[Partition, Spans]]) -> Iterable[Line]:
    shown = [(partition, span) for partition, all_spans in spans for span in all_spans.first(SHOWN)][:SHOWN]
    if shown:
        listed = ", ".join(str(Range(partition.topic, partition.partition, *span)) for partition, span in shown)
        offsets, range_count = sum(each.size for _, each in spans), sum(len(each) for _, each in spans)
        yield label, f"{counted(offsets, unit)}: {listed}{_more(range_count)}", style


def _times(label: str, entries: list[tuple[Partition, Doubled]]) -> Iterable[Line]:
    if not entries:
        return
    listed = [
        f"{Range(partition.topic, partition.partition, doubled.start, doubled.end)} {doubled.times} times"
        + (f" instead of {doubled.expected}" if doubled.expected > 1 else "")
        for partition, doubled in entries[:SHOWN]
    ]
    offsets = sum(doubled.end - doubled.start for _, doubled in entries)
    yield label, f"{counted(offsets, 'offset')}: {', '.join(listed)}{_more(len(entries))}", "red"


def _detail_lines(report: Report) -> Iterable[Line]:
    if report.version is None:
        return
    position = f"batch {report.generation}.{report.batch}, version {report.version}"
    unread = report.unread
    unread_text = (
        str(unread) if unread.count is None else f"{unread} not landed yet" if unread.count else "nothing unread"
    )
    style = "yellow" if unread.count != 0 else "dim"
    yield "up to", f"{position}; {unread_text}", style
    if unread.count or report.state.state in ("failed", "crashed"):
        yield "state", str(report.state), style
        if report.state.hint:
            yield "", f"-> {report.state.hint}", "dim"
    for check in report.checks:
        if check.outcome not in STYLES and not check.left_out:
            yield from _check(check, "dim")
    empty = sum(partition.empty.size for partition in report.partitions)
    if empty:
        text = f"{counted(empty, 'offset')} without a record: transaction markers, aborted transactions or compaction"
        yield "Kafka's own", text, "dim"
    for accepted in report.chain.accepted if report.chain else ():
        yield "accepted", _accepted_text(accepted), "dim"
    for note in report.notes[:SHOWN]:
        yield "note", note, "dim"
    if len(report.notes) > SHOWN:
        yield "note", f"and {len(report.notes) - SHOWN:,} more: `--json` has all", "dim"


def _accepted_text(accepted: Accepted) -> str:
    parts = [
        _listed("skipped", accepted.skipped),
        _listed("read again", accepted.reread),
        f"no longer read: {', '.join(accepted.dropped)}" if accepted.dropped else "",
        f"recreated: {', '.join(accepted.remade)}" if accepted.remade else "",
    ]
    ranges = "; ".join(filter(None, parts))
    note = f" ({accepted.note})" if accepted.note else ""
    return f"generation {accepted.generation}, version {accepted.version}{note}" + (f": {ranges}" if ranges else "")


def _listed(label: str, ranges: tuple[Range, ...]) -> str:
    return f"{label} {', '.join(map(str, ranges[:SHOWN]))}{_more(len(ranges))}" if ranges else ""


def _more(range_count: int) -> str:
    return f" and {range_count - SHOWN:,} more ranges" if range_count > SHOWN else ""


def command(
    tables: Tables = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compute all groups and compare all rows of copies, not a sample of them.")
    ] = False,
    no_recompute: Annotated[
        bool,
        typer.Option(
            "--no-recompute",
            help="Compute no numbers again, and compare no copies: no Spark is started, and what that leaves open is "
            "said (partial).",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write one page to keep, in HTML, with all that was checked."),
    ] = None,
    allow_behind: Annotated[
        bool,
        typer.Option(
            "--allow-behind",
            help="Exit 0 also for tables that are right and have not read everything yet: for a project that runs.",
        ),
    ] = False,
    allow_partial: Annotated[
        bool,
        typer.Option(
            "--allow-partial",
            "--allow-unverifiable",
            help="Exit 0 also for tables that are right as far as they could be looked at: Kafka no longer holds what "
            "would tell a gap from a loss, a version can no longer be read, rows are older than the ledger.",
        ),
    ] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every record is in its table exactly once, and every number right; or say exactly what is not.

    Compared are: the ledger (does each batch start where the last one ended); topic, partition and offset of every row,
    and Kafka, which tells records that were lost from offsets that it left empty itself; what was read and what became
    of it; the groups of aggregates and a plain query over their source; merged tables and copies and the changes that
    they are made of. For the last two Spark is started, if there are any. Tables may be running meanwhile.

    The answer is one of complete, behind (right so far, not everything is read), partial (right as far as it could be
    looked at) and wrong. Exit code 1 unless every table is complete.
    """
    from penstock.cli.pages import report_file
    from penstock.verify.document import VerifyRequest, audit_document
    from penstock.verify.recompute.run import mark_not_made, run_spark_checks
    from penstock.verify.table import verify

    if deep and no_recompute:
        raise UsageError("--deep and --no-recompute at once", hint="choose one of them")
    plan, table_plans, store = load_tables(directory, tables)
    request = VerifyRequest(
        tuple(tables or ()), deep, no_recompute, allow_behind, allow_partial, str(report) if report else None
    )
    with report_file(report) as write:
        with Bar() as bar:
            reports = verify(table_plans, store, bar.step, plan.tables)
            if no_recompute:
                mark_not_made(table_plans, reports, "--no-recompute")
            else:
                run_spark_checks(plan, table_plans, reports, store, bar.step, deep=deep)
        document = audit_document(plan, table_plans, reports, request)
        write(document)
    if as_json:
        print_json(document)
    else:
        for table_report in reports:
            print_view(report_view(table_report), piped=160)
    raise typer.Exit(0 if document["ok"] else 1)
