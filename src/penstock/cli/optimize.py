"""`penstock optimize`: the files of each table, the steps, and the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from penstock.cli.console import (
    Bar,
    fold,
    plain_table,
    print_json,
    right,
    size_text,
    text_console,
    visible,
    visible_lines,
)
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_tables
from penstock.cli.session import confirm, verb_session
from penstock.errors import error_document
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.maintenance.optimize import OptimizePlan, OptimizeResult, TableOptimize


def render_plan(optimize_plan: OptimizePlan) -> RenderableType:
    if not optimize_plan.tables:
        return Text("the project has no tables")
    grid = plain_table(*fold("table"), *right("files", "size", "average"), *fold("to do"))
    for task in optimize_plan.tables:
        if not task.created:
            row = ("", "", "", Text("not created yet", style="dim"))
        elif task.problem is not None:
            row = ("", "", "", Text(visible(task.problem.message), style="red"))
        else:
            row = (f"{task.files:,}", size_text(task.bytes), _average(task.bytes, task.files), _steps(task))
        grid.add_row(Text(visible(task.place.name), style="bold"), *row)
    if not optimize_plan.todo:
        return Group(grid, Text(""), Text("nothing to do: no table has files that are worth a write", style="green"))
    steps = [step for task in optimize_plan.todo for step in task.steps]
    files, size = sum(step.files for step in steps), sum(step.bytes for step in steps)
    return Group(grid, Text(""), Text(f"{counted(files, 'file')}, {size_text(size)}, to rewrite; no row changes"))


def render_result(result: OptimizeResult) -> RenderableType:
    grid = plain_table(*fold("table"), *right("files", "now", "average", "now"))
    for table in result.done.values():
        grid.add_row(
            Text(visible(table.place.name), style="bold"),
            f"{table.files_before:,}",
            f"{table.files:,}",
            _average(table.bytes_before, table.files_before),
            _average(table.bytes, table.files),
        )
    failed = [Text.assemble(("failed ", "bold red"), visible_lines(str(error))) for error in result.errors.values()]
    return Group(*([grid] if result.done else []), *failed)


def _steps(task: TableOptimize) -> Text:
    steps = [f"{step.describe()}: {size_text(step.bytes)}, about {step.left:,} left" for step in task.steps]
    return Text(visible("; ".join(steps))) if steps else Text("nothing", style="dim")


def _average(size: int, files: int) -> str:
    return size_text(size / files) if files else ""


def command(
    tables: Tables = None,
    full: Annotated[
        bool, typer.Option("--full", help="All files, also where it does not pay; of ordered tables every row.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rewrite small files as large ones, where it pays.

    Counts the files first, without Spark. Files that are small for their table become few large ones; tables with
    cluster_by or zorder_by are put in order; rows that are only marked as deleted are removed for good. Quarantines are
    maintained with their tables. No row changes: streams and readers do not notice, and a runner may be at work.
    """
    from penstock.maintenance.optimize import OptimizeResult, document, plan_optimize, run_optimize
    from penstock.maintenance.tables import with_commit_waiting

    plan, table_plans, store = load_tables(directory, tables)
    console = text_console(as_json, piped=160)
    with Bar() as bar:
        optimize_plan = plan_optimize(plan, table_plans, store, full=full, progress=bar.step)
    console.print(render_plan(optimize_plan))
    result, done = OptimizeResult(errors=optimize_plan.problems), bool(optimize_plan.todo) and not dry_run
    if done:
        confirm(yes)
        with verb_session(with_commit_waiting(plan), console, plan.name) as session:
            result = run_optimize(session.spark, plan, optimize_plan, store, session.tell)
        console.print(render_result(result))
    if as_json:
        documents = [{**document(task), **_outcome(task.place.name, result)} for task in optimize_plan.tables]
        print_json({"tables": documents, "done": done, "ok": not result.errors})
    raise typer.Exit(3 if result.errors else 0)


def _outcome(name: str, result: OptimizeResult) -> dict[str, Any]:
    table_result = result.done.get(name)
    return {
        "files_after": table_result.files if table_result else None,
        "bytes_after": table_result.bytes if table_result else None,
        "error": error_document(result.errors.get(name)),
    }
