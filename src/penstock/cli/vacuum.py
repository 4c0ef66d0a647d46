"""`penstock vacuum`: how far it may go in each table, who needs older files, what would be deleted and what was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.console import (
    fold,
    plain_table,
    print_json,
    right,
    size_text,
    text_console,
    visible,
    visible_lines,
)
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, duration, load_tables
from penstock.cli.session import steps_view, verb_session
from penstock.errors import UsageError, error_document
from penstock.maintenance.retention import Need, span_text
from penstock.spec.quantity import counted, time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.maintenance.retention import Horizon
    from penstock.maintenance.vacuum import TableVacuum, VacuumPlan, VacuumResult


TABLES_WITH_ALL_READERS = 5
"""With up to this many tables, every reader with a need is named; with more, only those that keep files."""


def render_plan(vacuum_plan: VacuumPlan) -> RenderableType:
    if not vacuum_plan.tables:
        return Text("the project has no tables")
    few = len({task.table.name for task in vacuum_plan.tables}) <= TABLES_WITH_ALL_READERS
    parts: list[RenderableType] = []
    for task in vacuum_plan.tables:
        parts.append(_head(task))
        if task.horizon is not None:
            parts.append(Padding(_needs(task, task.horizon, everybody=few), (0, 0, 0, 2)))
    if vacuum_plan.steps:
        parts += [Text(""), steps_view(vacuum_plan.steps)]
    files, size = sum(len(task.files) for task in vacuum_plan.tables), sum(task.bytes for task in vacuum_plan.tables)
    conclusion = f"{counted(files, 'file')}, {size_text(size)}, to delete" if files else "no file to delete"
    return Group(*parts, Text(""), Text(conclusion, style="bold" if files else "green"))


def render_result(result: VacuumResult) -> RenderableType:
    grid = plain_table(*fold("table"), *right("deleted", "size"))
    for table in result.done.values():
        grid.add_row(Text(visible(table.place.name), style="bold"), f"{table.files:,}", size_text(table.bytes))
    failed = [Text.assemble(("failed ", "bold red"), visible_lines(str(error))) for error in result.errors.values()]
    return Group(*([grid] if result.done else []), *failed)


def _head(task: TableVacuum) -> Text:
    name, horizon = (f"{visible(task.place.name)}  ", "bold"), task.horizon
    if task.problem is not None:
        return Text.assemble(name, (visible(task.problem.message), "red"))
    if horizon is None:
        return Text.assemble(name, ("not created yet", "dim"))
    if horizon.at_ms is None:
        return Text.assemble(name, ("nothing may go", "yellow"), f": {visible(horizon.why or '')}")
    amount = f"{counted(len(task.files), 'file')}, {size_text(task.bytes)}" if task.files else "nothing to delete"
    return Text.assemble(name, (amount, "" if task.files else "dim"))


def _needs(task: TableVacuum, horizon: Horizon, *, everybody: bool) -> RenderableType:
    """Since when removed files are kept, and for whom; the first row is the one that counts."""
    limits = horizon.limits
    requested = Need("", "asked for", horizon.asked_ms)
    shown = [need for need in horizon.needs if need in limits or (everybody and need.version is not None)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    ordered = sorted([*shown, requested], key=lambda need: -1 if need.since_ms is None else need.since_ms)
    for index, need in enumerate(ordered):
        style = "" if index == 0 else "dim"
        since = "all" if need.since_ms is None else f"since {time_text(need.since_ms)} UTC"
        grid.add_row(Text(f"kept {since}", style=style), Text(visible(str(need).strip()), style=style))
    if task.remember_ms is not None:
        grid.add_row("", Text(f"removed files will be remembered for {span_text(task.remember_ms)} from now on"))
    return grid


def command(
    tables: Tables = None,
    retain: Annotated[
        str | None,
        typer.Option(
            "--retain",
            metavar="TIME",
            help="Keep files that were removed within this time: 7 days, 12h, 0s. What a reader, or the replay window, "
            "still needs is kept whatever is asked for; an hour always is, but for 0s, which makes batches wait.",
            show_default="the project's, or 7 days",
        ),
    ] = None,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Delete files that no version and no reader needs any more.

    Shows first how far it may go and who needs what: streams that are behind, or stopped, followers of a change feed,
    lookups, the replay window, readers that the project names. Quarantines are maintained with their tables, and old
    checkpoints are deleted. A runner may be at work. --dry-run lists the steps.
    """
    from penstock.maintenance.tables import with_commit_waiting
    from penstock.maintenance.vacuum import VacuumResult, document, list_files, plan_vacuum, run_vacuum

    retain_ms = None if retain is None else _span_ms(retain)
    plan, table_plans, store = load_tables(directory, tables)
    console = text_console(as_json, piped=160)
    vacuum_plan = plan_vacuum(plan, table_plans, store, retain_ms)
    result = VacuumResult(errors=vacuum_plan.problems)
    if vacuum_plan.needs_listing or (vacuum_plan.steps and not dry_run):
        with verb_session(with_commit_waiting(plan), console, plan.name) as session:
            vacuum_plan = list_files(session.spark, plan, vacuum_plan, store, session.tell)
            result = VacuumResult(errors=vacuum_plan.problems)
            console.print(render_plan(vacuum_plan))
            if vacuum_plan.steps and not dry_run:
                session.ask(yes)
                result = run_vacuum(session.spark, plan, vacuum_plan, store, session.tell)
    else:
        console.print(render_plan(vacuum_plan))
    if result.done or result.errors:
        console.print(render_result(result))
    if as_json:
        answer = {
            "tables": [{**document(task), **_outcome(task.place.name, result)} for task in vacuum_plan.tables],
            "checkpoints": vacuum_plan.checkpoints,
            "steps": [step.describe() for step in vacuum_plan.steps],
            "done": not dry_run,
            "ok": not result.errors,
        }
        print_json(answer)
    raise typer.Exit(3 if result.errors else 0)


def _span_ms(text: str) -> int:
    from penstock.spec.maintenance import LONGEST

    span = duration("--retain", text)
    if span > LONGEST:
        raise UsageError(f"--retain: '{text}' is longer than anything can be kept", hint="write 10 years or less")
    return round(span * 1000)


def _outcome(name: str, result: VacuumResult) -> dict[str, Any]:
    table_result = result.done.get(name)
    return {
        "deleted_files": table_result.files if table_result else 0,
        "deleted_bytes": table_result.bytes if table_result else 0,
        "error": error_document(result.errors.get(name)),
    }
