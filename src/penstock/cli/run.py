"""`penstock run`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(
    tables: Tables = None,
    once: Annotated[bool, typer.Option("--once", help="Land what is there now, then end: for a scheduler.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
    spark_logs: Annotated[
        bool, typer.Option("--spark-logs", help="Show Spark's own log here, not in .penstock/logs.")
    ] = False,
) -> None:
    """Run the tables: until stopped, or --once up to what is there now.

    Ctrl-C and SIGTERM end it cleanly after the batch in flight. A table that fails leaves the others running; the exit
    code is 3 if any failed.
    """
    from penstock.cli.console import people, print_json
    from penstock.cli.run_view import RunView
    from penstock.ops.care import look_after
    from penstock.plan.select import choose
    from penstock.runtime.runner import run

    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    with RunView(people(as_json), [table.name for table in chosen]) as view:
        result = run(plan, tables or [], view, once=once, show_logs=spark_logs, care=look_after)
    if as_json:
        print_json(view.document(result))
    else:
        view.summary(result)
    raise typer.Exit(result.exit_code)
