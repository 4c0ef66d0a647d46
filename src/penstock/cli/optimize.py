"""`penstock optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan

if TYPE_CHECKING:
    from penstock.engine.store import Store
    from penstock.errors import PenstockError
    from penstock.ops.optimize.carry_out import Optimized
    from penstock.ops.optimize.look import Looked
    from penstock.plan.model import Plan

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
    from penstock.cli.bar import Bar
    from penstock.cli.console import people, print_json
    from penstock.cli.optimize_view import done_view, look_view
    from penstock.engine.stores import open_store
    from penstock.ops.optimize.look import document, look
    from penstock.plan.select import choose

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
    plan: Plan, todo: list[Looked], store: Store, *, full: bool
) -> tuple[dict[str, Optimized], dict[str, PenstockError]]:
    """Each table alone: one that fails leaves the others."""
    from penstock.cli.bar import Bar
    from penstock.engine.session import logs_folder, spark_session
    from penstock.engine.upkeep.session import beside_a_runner
    from penstock.engine.upkeep.turns import alone, held_still
    from penstock.ops.optimize.carry_out import optimize
    from penstock.runtime.causes import JvmDied, explain

    done: dict[str, Optimized] = {}
    errors: dict[str, PenstockError] = {}
    with Bar() as bar:
        bar.step("", "starting Spark", 0.0)
        with spark_session(beside_a_runner(plan)) as spark:
            for index, one in enumerate(todo):
                name, table = one.place.name, one.table
                bar.step(name, one.steps[0].said, index / len(todo))
                try:
                    with alone(spark, plan, table.name):
                        hold = held_still(spark, plan, table.name)
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
