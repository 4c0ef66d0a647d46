"""`penstock rewind`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan


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
    from penstock.cli.rewind_view import abort_in_steps, planned_view, rewind_in_steps
    from penstock.engine.stores import open_store
    from penstock.errors import UsageError
    from penstock.ops.dlq.filter import read_time
    from penstock.ops.rewind.plan import plan_rewind
    from penstock.plan.select import choose

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
