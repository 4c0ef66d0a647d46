"""`penstock optimize`: the files of each table, what would be done, and what it came to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import size_text
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.errors import PenstockError
    from penstock.maintenance.optimize import Optimized, OptimizePlan
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store


# What `optimize` shows: the files of each table, what would be done, and what it came to.


def look_view(found: Sequence[OptimizePlan]) -> RenderableType:
    if not found:
        return Text("the project has no tables")
    grid = _grid("table", "files", "size", "average")
    grid.add_column(Text("to do"), overflow="fold", ratio=1)
    for one in found:
        if not one.created:
            row = ("", "", "", Text("not created yet", style="dim"))
        elif one.problem is not None:
            row = ("", "", "", Text(one.problem.message, style="red"))
        else:
            row = (f"{one.files:,}", size_text(one.bytes), _average(one.bytes, one.files), _steps(one))
        grid.add_row(Text(one.place.name, style="bold"), *row)
    todo = [one for one in found if one.steps]
    last = _summary(todo) if todo else Text("nothing to do: no table has files that are worth a write", style="green")
    return Group(grid, Text(""), last)


def done_view(done: Collection[Optimized], errors: Mapping[str, PenstockError]) -> RenderableType:
    grid = _grid("table", "files", "now", "average", "now")
    for one in done:
        averages = _average(one.bytes_before, one.files_before), _average(one.bytes, one.files)
        grid.add_row(
            Text(one.place.name, style="bold"), f"{one.files_before:,}", f"{one.files:,}", averages[0], averages[1]
        )
    failed = [Text.assemble(("failed ", "bold red"), str(error)) for error in errors.values()]
    return Group(*([grid] if done else []), *failed)


def _grid(*titles: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text(titles[0]), overflow="fold")
    for title in titles[1:]:
        grid.add_column(Text(title), justify="right", no_wrap=True)
    return grid


def _steps(one: OptimizePlan) -> Text:
    if not one.steps:
        return Text("nothing", style="dim")
    return Text("; ".join(f"{step.said}: {size_text(step.bytes)}, about {step.left:,} left" for step in one.steps))


def _summary(todo: Sequence[OptimizePlan]) -> Text:
    steps = [step for one in todo for step in one.steps]
    files, size = sum(step.files for step in steps), sum(step.bytes for step in steps)
    return Text(f"{counted(files, 'file')}, {size_text(size)}, to write anew; no row changes")


def _average(size: int, files: int) -> str:
    return size_text(size / files) if files else ""


# `penstock optimize`.


BY = "penstock optimize"


def command(
    tables: Tables = None,
    full: Annotated[
        bool, typer.Option("--full", help="All files, also where it does not pay; of ordered tables every row anew.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make large files of small ones, where it pays.

    Counts the files first, without Spark. Files that are small for their table become few large ones; tables with
    cluster_by or zorder_by are put in order; rows that are only marked as deleted go for good. Quarantines are looked
    after with their tables. No row changes: streams and readers do not notice, and a runner may be at work.
    """
    from penstock.cli.console import Bar, people, print_json
    from penstock.maintenance.optimize import document, look
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    store = open_store(plan)
    console = people(as_json)
    if not console.is_terminal:  # piped, there is no width to keep to
        console.width = 160
    with Bar() as bar:
        found = look(plan, chosen, store, full=full, progress=bar.step)
    console.print(look_view(found))
    todo = [one for one in found if one.steps]
    done: dict[str, Optimized] = {}
    errors: dict[str, PenstockError] = {one.place.name: one.problem for one in found if one.problem is not None}
    if todo and not dry_run:
        if not yes:
            typer.confirm("Write these files anew?", abort=True, err=True)
        done, failed = _carry_out(plan, todo, store, full=full)
        errors |= failed
        console.print(done_view(done.values(), errors))
    if as_json:
        print_json(
            {
                "tables": [{**document(one), **_outcome(one.place.name, done, errors)} for one in found],
                "done": bool(todo) and not dry_run,
                "ok": not errors,
            }
        )
    raise typer.Exit(3 if errors else 0)


def _carry_out(
    plan: Plan, todo: list[OptimizePlan], store: Store, *, full: bool
) -> tuple[dict[str, Optimized], dict[str, PenstockError]]:
    """Each table alone: one that fails leaves the others."""
    from penstock.cli.console import Bar
    from penstock.maintenance.optimize import optimize
    from penstock.maintenance.tables import beside_a_runner, exclusive_maintenance, paused_batches
    from penstock.operations.causes import JvmDied, explain
    from penstock.spark.session import logs_folder, spark_session

    done: dict[str, Optimized] = {}
    errors: dict[str, PenstockError] = {}
    with Bar() as bar:
        bar.step("", "starting Spark", 0.0)
        with spark_session(beside_a_runner(plan)) as spark:
            for index, one in enumerate(todo):
                name, table = one.place.name, one.table
                bar.step(name, one.steps[0].said, index / len(todo))
                try:
                    with exclusive_maintenance(spark, plan, table.name):
                        hold = paused_batches(spark, plan, table.name)
                        done[name] = optimize(
                            spark, plan, table, one.place, store, by=BY, hold=hold, full=full, beside=True
                        )
                except Exception as error:
                    errors[name] = explain(error, name, str(logs_folder(plan)))
                    if isinstance(errors[name], JvmDied):
                        break
    return done, errors


def _outcome(name: str, done: dict[str, Optimized], errors: dict[str, PenstockError]) -> dict[str, Any]:
    made, error = done.get(name), errors.get(name)
    return {
        "files_after": made.files if made else None,
        "bytes_after": made.bytes if made else None,
        "error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint} if error else None,
    }
