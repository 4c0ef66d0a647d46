"""`penstock vacuum`."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.cli.bar import Bar
    from penstock.engine.store import Store
    from penstock.errors import PenstockError
    from penstock.ops.vacuum.carry_out import Vacuumed
    from penstock.ops.vacuum.look import Looked
    from penstock.plan.model import Plan, TablePlan

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
    from penstock.cli.bar import Bar
    from penstock.cli.console import people, print_json
    from penstock.cli.vacuum_view import done_view, look_view
    from penstock.engine.session import spark_session
    from penstock.engine.stores import open_store
    from penstock.engine.upkeep.session import beside_a_runner
    from penstock.ops.vacuum.carry_out import leftovers_of
    from penstock.ops.vacuum.look import document, look_all
    from penstock.plan.select import choose

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
    from penstock.spec.finding import Wrong
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
    spark: SparkSession, plan: Plan, found: list[Looked], store: Store, errors: dict[str, PenstockError], bar: Bar
) -> list[Looked]:
    from penstock.engine.session import logs_folder
    from penstock.ops.vacuum.look import with_files
    from penstock.runtime.causes import explain

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
    todo: list[Looked],
    tables: list[TablePlan],
    store: Store,
    retain_ms: int | None,
    errors: dict[str, PenstockError],
    bar: Bar,
) -> dict[str, Vacuumed]:
    """Each table alone: one that fails leaves the others."""
    from penstock.engine.session import logs_folder
    from penstock.engine.upkeep.turns import alone, held_still
    from penstock.ops.vacuum.carry_out import tidy, vacuum
    from penstock.runtime.causes import JvmDied, explain

    done: dict[str, Vacuumed] = {}
    for index, table in enumerate(tables):
        mine = [one for one in todo if one.table is table]
        bar.step(table.name, "deleting files", index / len(tables))
        try:
            with alone(spark, plan, table.name):
                hold = held_still(spark, plan, table.name)
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
