"""`penstock rewind`: take a table back to an earlier version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.cli.console import print_json, text_console, visible
from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_table
from penstock.cli.session import abort_verb, confirm, steps_view, verb_session
from penstock.errors import UsageError
from penstock.spec.quantity import time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.rewind_plan import RewindPlan, RewindReader, RewindResult

_PAST = {
    "rebuilt": "it is rebuilt",
    "recomputed": "it is rebuilt",
    "state": "it depends on Spark's state, and is stale until `penstock checkpoints reset` starts it over",
    "sent": "what it has sent of them cannot be taken back, and rows that are read again are sent again",
}


def render_plan(rewind_plan: RewindPlan) -> RenderableType:
    time = f"{time_text(rewind_plan.time_ms)} UTC"
    target = f": back to version {rewind_plan.version} of {time}, from {rewind_plan.newest}"
    title = Text.assemble((rewind_plan.table.name, "bold"), target)
    lines = (Text(f"  {visible(line)}") for line in _lines(rewind_plan))
    return Group(title, *lines, steps_view(rewind_plan.steps))


def _lines(rewind_plan: RewindPlan) -> Iterator[str]:
    batches = "1 batch" if rewind_plan.batches == 1 else f"{rewind_plan.batches:,} batches"
    yield f"undone       {batches}"
    yield f"rows         {rewind_plan.rows[0]:,} now, {rewind_plan.rows[1]:,} then"
    if any(rewind_plan.rejected):
        yield f"quarantine   {rewind_plan.rejected[0]:,} now, {rewind_plan.rejected[1]:,} then"
    yield f"reads again  {rewind_plan.read_again}"
    if rewind_plan.resumes:
        yield "note         a rewind of it was cut off: this one takes its place"
    if rewind_plan.running is not None:
        yield f"note         process {rewind_plan.running} runs it: its stream continues from there by itself"
    for reader in rewind_plan.readers:
        yield f"{reader.name} {_describe_reader(reader)}"


def _describe_reader(reader: RewindReader) -> str:
    if reader.fate == "follows":
        return "follows its changes: it gets the removed rows, and those that come again"
    consequence = _PAST[reader.reader.effect] if reader.fate == "past" else "it skips what is undone"
    return f"has read up to version {reader.version}: {consequence}"


def render_result(result: RewindResult) -> Text:
    document = _result_document(result)
    numbers = f"{document['rows']:,} rows; version {document['version']}, generation {document['generation']}"
    return Text.assemble((result.table.name, "bold"), f": {numbers}")


def _result_document(result: RewindResult) -> dict[str, Any]:
    entry, filled = result.head.entry, result.filled
    return {
        "table": result.table.name,
        "rows": filled.rows + filled.kept_rows if filled is not None else entry.counts.total,
        "version": result.head.commit.version,
        "generation": entry.generation,
    }


def command(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table that goes back.")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=0, help="To what it held at this version.")
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before", metavar="TIME", help="To what it held just before then: 2026-05-14T09:00, with a zone or UTC."
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Rebuild the tables that have read what is undone.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up a rewind that was cut off: the table continues as it is.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take a table back to an earlier version, and read again from there.

    For the day on which wrong rows were landed. One commit restores the rows and the quarantine of that version; the
    table's position goes back with them, so its stream reads again what came since, with the current definition.
    Refused while a table that reads it is past that version, unless --cascade rebuilds that one too. `penstock history
    TABLE` shows the versions; --dry-run lists the steps.
    """
    from penstock.operations.quarantine_rows import read_time
    from penstock.operations.rewind_plan import check_rewind, document, plan_rewind, run_rewind

    plan, table_plan, store = load_table(directory, table)
    if abort:
        abort_verb("rewind", plan, table_plan, store, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if (version is None) == (before is None):
        raise UsageError("which version shall it go back to?", hint="write --version N, or --before TIME")
    console, before_time = text_console(as_json), read_time("--before", before)
    rewind_plan = plan_rewind(plan, table_plan, store, version=version, before=before_time, cascade=cascade)
    console.print(render_plan(rewind_plan), soft_wrap=True)
    confirm(yes or dry_run)
    answer: dict[str, Any] = {**document(rewind_plan), "done": not dry_run, "tables": []}
    with verb_session(plan, console, table) as session:
        if dry_run:
            session.tell(table, "checking that everything it needs is there")
            check_rewind(session.spark, plan, rewind_plan)
            console.print("everything that it needs is there")
        else:
            for result in run_rewind(session.spark, plan, rewind_plan, session.tell):
                console.print(render_result(result))
                answer["tables"].append(_result_document(result))
    if as_json:
        print_json(answer)
