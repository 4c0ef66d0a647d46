"""`penstock vacuum`: how far each table may go, who needs what, what would go and what went."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.console import size_text
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan
from penstock.maintenance.retention import Need, span_text, time_text
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from penstock.cli.console import Bar
    from penstock.errors import PenstockError
    from penstock.maintenance.retention import Horizon
    from penstock.maintenance.vacuum import Vacuumed, VacuumPlan
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store


# What `vacuum` shows: how far each table may go and who needs what, then what would go, then what went.


READERS_OF = 5
"""Up to so many tables, everybody who needs something is named; of more, only those that keep files."""


def look_view(found: Sequence[VacuumPlan], old: Sequence[str]) -> RenderableType:
    if not found:
        return Text("the project has no tables")
    few = len({one.table.name for one in found}) <= READERS_OF
    parts: list[RenderableType] = []
    for one in found:
        parts.append(_head(one))
        if one.horizon is not None:
            parts.append(Padding(_needs(one, one.horizon, everybody=few), (0, 0, 0, 2)))
    if old:
        parts.append(Text(f"{counted(len(old), 'checkpoint')} of old generations, to delete too"))
    files, size = sum(len(one.files) for one in found), sum(one.bytes for one in found)
    last = f"{counted(files, 'file')}, {size_text(size)}, to delete" if files else "no file to delete"
    return Group(*parts, Text(""), Text(last, style="bold" if files else "green"))


def done_view(done: Collection[Vacuumed], errors: Mapping[str, PenstockError]) -> RenderableType:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("table"), overflow="fold")
    for title in ("deleted", "size"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    for one in done:
        grid.add_row(Text(one.place.name, style="bold"), f"{one.files:,}", size_text(one.bytes))
    failed = [Text.assemble(("failed ", "bold red"), str(error)) for error in errors.values()]
    return Group(*([grid] if done else []), *failed)


def _head(one: VacuumPlan) -> Text:
    name, made = (f"{one.place.name}  ", "bold"), one.horizon
    if one.problem is not None:
        return Text.assemble(name, (one.problem.message, "red"))
    if made is None:
        return Text.assemble(name, ("not created yet", "dim"))
    if made.at_ms is None:
        return Text.assemble(name, ("nothing may go", "yellow"), f": {made.why}")
    what = f"{counted(len(one.files), 'file')}, {size_text(one.bytes)}" if one.files else "nothing to delete"
    return Text.assemble(name, (what, "" if one.files else "dim"))


def _needs(one: VacuumPlan, made: Horizon, *, everybody: bool) -> RenderableType:
    """From when on removed files are kept, and for whom; the first is what counts."""
    limits = made.limits
    asked = Need("", "asked for", made.asked_ms)
    shown = [need for need in made.needs if need in limits or (everybody and need.version is not None)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    ordered = sorted([*shown, asked], key=lambda need: -1 if need.since_ms is None else need.since_ms)
    for index, need in enumerate(ordered):
        style = "" if index == 0 else "dim"
        since = "all" if need.since_ms is None else f"since {time_text(need.since_ms)} UTC"
        grid.add_row(Text(f"kept {since}", style=style), Text(str(need).strip(), style=style))
    if one.remember_ms is not None:
        grid.add_row("", Text(f"removed files will be remembered for {span_text(one.remember_ms)} from now on"))
    return grid


# `penstock vacuum`.


BY = "penstock vacuum"


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

    Says first how far it may go and who needs what: streams that are behind, or stopped, followers of a change feed,
    lookups, the replay window, readers that the project names. Quarantines are looked after with their tables, and old
    checkpoints go. A runner may be at work.
    """
    from penstock.cli.console import Bar, people, print_json
    from penstock.maintenance.tables import beside_a_runner
    from penstock.maintenance.vacuum import document, leftovers_of, look_all
    from penstock.plan.build import choose
    from penstock.spark.session import spark_session
    from penstock.storage.stores import open_store

    retain_ms = None if retain is None else _span_ms(retain)
    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    store = open_store(plan)
    console = people(as_json)
    if not console.is_terminal:  # piped, there is no width to keep to
        console.width = 160
    found = look_all(plan, chosen, store, retain_ms)
    old = [folder for table in chosen for folder in leftovers_of(plan, table, store)]
    done: dict[str, Vacuumed] = {}
    errors: dict[str, PenstockError] = {one.place.name: one.problem for one in found if one.problem is not None}
    with ExitStack() as opened:
        bar = opened.enter_context(Bar())
        spark: SparkSession | None = None
        if any(one.candidates for one in found) or (not dry_run and (old or any(one.remember_ms for one in found))):
            bar.step("", "starting Spark", 0.0)
            spark = opened.enter_context(spark_session(beside_a_runner(plan)))
            found = _counted(spark, plan, found, store, errors, bar)
        bar.hide()
        console.print(look_view(found, old))
        todo = [one for one in found if one.files or one.remember_ms]
        if spark is not None and (todo or old) and not dry_run:
            if not yes:
                typer.confirm("Go on?", abort=True, err=True)
            bar.show()
            done = _carry_out(spark, plan, todo, chosen, store, retain_ms, errors, bar)
    if done or errors:
        console.print(done_view(done.values(), errors))
    if as_json:
        print_json(
            {
                "tables": [{**document(one), **_outcome(one.place.name, done, errors)} for one in found],
                "checkpoints": old,
                "done": not dry_run,
                "ok": not errors,
            }
        )
    raise typer.Exit(3 if errors else 0)


def _span_ms(text: str) -> int:
    from penstock.errors import UsageError
    from penstock.spec.base_model import Wrong
    from penstock.spec.maintenance import LONGEST
    from penstock.spec.quantity import seconds

    try:
        span = seconds(text)
    except Wrong as error:
        raise UsageError(f"--retain: {error.findings[0].message}", hint=error.findings[0].hint) from None
    if span > LONGEST:
        raise UsageError(f"--retain: '{text}' is longer than anything can be kept", hint="write 10 years or less")
    return round(span * 1000)


def _counted(
    spark: SparkSession, plan: Plan, found: list[VacuumPlan], store: Store, errors: dict[str, PenstockError], bar: Bar
) -> list[VacuumPlan]:
    from penstock.maintenance.vacuum import with_files
    from penstock.operations.causes import explain
    from penstock.spark.session import logs_folder

    counted = []
    for index, one in enumerate(found):
        bar.step(one.place.name, "listing its files", index / len(found))
        try:
            counted.append(with_files(spark, one, store))
        except Exception as error:
            problem = explain(error, one.place.name, str(logs_folder(plan)))
            errors[one.place.name] = problem
            counted.append(replace(one, problem=problem))
    return counted


def _carry_out(
    spark: SparkSession,
    plan: Plan,
    todo: list[VacuumPlan],
    tables: list[TablePlan],
    store: Store,
    retain_ms: int | None,
    errors: dict[str, PenstockError],
    bar: Bar,
) -> dict[str, Vacuumed]:
    """Each table alone: one that fails leaves the others."""
    from penstock.maintenance.tables import exclusive_maintenance, paused_batches
    from penstock.maintenance.vacuum import tidy, vacuum
    from penstock.operations.causes import JvmDied, explain
    from penstock.spark.session import logs_folder

    done: dict[str, Vacuumed] = {}
    for index, table in enumerate(tables):
        mine = [one for one in todo if one.table is table]
        bar.step(table.name, "deleting files", index / len(tables))
        try:
            with exclusive_maintenance(spark, plan, table.name):
                hold = paused_batches(spark, plan, table.name)
                for one in mine:
                    done[one.place.name] = vacuum(
                        spark, plan, table, one.place, store, by=BY, hold=hold, retain_ms=retain_ms, planned=one
                    )
                tidy(plan, table, store, hold)
        except Exception as error:
            errors[table.name] = explain(error, table.name, str(logs_folder(plan)))
            if isinstance(errors[table.name], JvmDied):
                break
    return done


def _outcome(name: str, done: dict[str, Vacuumed], errors: dict[str, PenstockError]) -> dict[str, Any]:
    made, error = done.get(name), errors.get(name)
    return {
        "deleted_files": made.files if made else 0,
        "deleted_bytes": made.bytes if made else 0,
        "error": {"kind": type(error).__name__, "message": error.message, "hint": error.hint} if error else None,
    }
