"""`penstock rewind`: take a table back to an earlier version."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan
from penstock.operations.rewind_plan import document

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.operations.rewind_plan import Behind, RewindPlan
    from penstock.plan.model import Plan, TablePlan

# What `rewind` shows: what it would do, and what has become of the tables.


_PAST = {
    "rebuilt": "is made anew",
    "recomputed": "is made anew",
    "state": "rests on Spark's state: stale until `penstock checkpoints reset` makes it anew",
    "sent": "has sent rows that go: they cannot be taken back, and those that are read again are sent again",
}


def planned_view(planned: RewindPlan) -> RenderableType:
    return Group(*_lines(planned))


def _lines(planned: RewindPlan) -> Iterator[Text]:
    at = datetime.fromtimestamp(planned.time_ms / 1000, tz=UTC)
    yield Text.assemble(
        (planned.table.name, "bold"), f": back to version {planned.version} of {at:%Y-%m-%d %H:%M:%S} UTC, ",
        f"from {planned.newest}"
    )  # fmt: skip
    batches = "1 batch" if planned.batches == 1 else f"{planned.batches:,} batches"
    yield Text(f"  undone       {batches}")
    yield Text(f"  rows         {planned.rows[0]:,} now, {planned.rows[1]:,} then")
    if any(planned.rejected):
        yield Text(f"  quarantine   {planned.rejected[0]:,} now, {planned.rejected[1]:,} then")
    yield Text(f"  reads again  {planned.again}")
    if planned.owed:
        yield Text("  note         a rewind of it was cut off: this one takes its place")
    if planned.running is not None:
        yield Text(f"  note         process {planned.running} runs it: its stream goes on from there by itself")
    if planned.cascade:
        yield Text(f"  with it      {', '.join(one.table.name for one in planned.cascade)}")
    for one in planned.readers:
        yield Text(f"  {one.name} {_said(one)}")


def _said(one: Behind) -> str:
    if one.fate == "follows":
        return "follows its changes: it gets the rows that go, and those that come again"
    if one.fate == "past":
        return f"has read up to version {one.version}: {_PAST[one.reader.how]}"
    return f"has read up to version {one.version}: it steps over what is undone"


def rewind_in_steps(plan: Plan, planned: RewindPlan, console: Console, *, dry_run: bool) -> dict[str, Any]:
    from penstock.operations.causes import explain
    from penstock.operations.rewind_plan import carry_out, look
    from penstock.spark.session import logs_folder, spark_session

    done: list[dict[str, Any]] = []
    try:
        with console.status("starting Spark …") as status, spark_session(plan) as spark:
            if dry_run:
                status.update(f"{planned.table.name}: looking whether all of it is there …")
                look(spark, plan, planned)
                console.print("  all that it needs is there")
            else:
                for one in carry_out(spark, plan, planned, lambda name, what: status.update(f"{name}: {what} …")):
                    entry, at = one.tail.entry, one.tail.commit.version
                    rows = one.filled.rows + one.filled.kept if one.filled is not None else entry.counts.total
                    console.print(
                        f"[bold]{one.table.name}[/bold]: {rows:,} rows; version {at}, generation {entry.generation}"
                    )
                    done.append({"table": one.table.name, "rows": rows, "version": at, "generation": entry.generation})
    except Exception as error:
        raise explain(error, planned.table.name, str(logs_folder(plan))) from error
    return {**document(planned), "done": not dry_run, "tables": done}


def abort_in_steps(plan: Plan, table: TablePlan, console: Console, *, dry_run: bool, yes: bool) -> dict[str, Any]:
    from penstock.errors import UsageError
    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.head import read_head
    from penstock.ledger.pending import pending_rewind
    from penstock.operations.rewind_plan import abort
    from penstock.spark.session import spark_session
    from penstock.storage.stores import open_store

    tail = read_head(DeltaLog(open_store(plan), table.uri, table.name))
    owed = pending_rewind(tail.entry) if tail is not None else None
    if owed is None:
        raise UsageError(f"no rewind of {table.name} is open", hint="there is nothing to abort")
    where = ", ".join(owed.position)
    console.print(f"[bold]{table.name}[/bold] stays as it is, and goes on from {where}", soft_wrap=True)
    if not dry_run:
        if not yes:
            typer.confirm("Go on?", abort=True, err=True)
        with console.status("starting Spark …"), spark_session(plan) as spark:
            generation = abort(spark, plan, table)
        console.print(f"  done: generation {generation}. `penstock run` goes on from there")
    return {"table": table.name, "aborted": not dry_run, "position": list(owed.position)}


# `penstock rewind`.


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
        bool, typer.Option("--cascade", help="Take along the tables that have read what goes: make them anew.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up a rewind that was cut off: the table goes on as it is.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take a table back to an earlier version, and read again from there.

    For the day on which wrong rows were landed. One commit puts back the rows of that version, and its quarantine; the
    table's position goes back with them, so its stream reads again what came since, by the definition of now. Refused
    while a table that reads it is past that version, unless --cascade takes that along. `penstock history TABLE` shows
    the versions.
    """
    from penstock.cli.console import people, print_json
    from penstock.errors import UsageError
    from penstock.operations.quarantine_rows import read_time
    from penstock.operations.rewind_plan import plan_rewind
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    chosen = choose(plan, [table])[0]
    console = people(as_json)
    if abort:
        document = abort_in_steps(plan, chosen, console, dry_run=dry_run, yes=yes)
        if as_json:
            print_json(document)
        return
    if (version is None) == (before is None):
        raise UsageError("where shall it go back to?", hint="write --version N, or --before TIME")
    planned = plan_rewind(
        plan, chosen, open_store(plan), version=version, before=read_time("--before", before), cascade=cascade
    )
    console.print(planned_view(planned), soft_wrap=True)
    if not dry_run and not yes:
        typer.confirm("Go on?", abort=True, err=True)
    document = rewind_in_steps(plan, planned, console, dry_run=dry_run)
    if as_json:
        print_json(document)
