"""`penstock history`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, load_plan


def command(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many commits; 0: all.")] = 20,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The commits of a table with their ledger entries, newest first.

    Shows for every version who made it, its batch, its rows and the offsets that it read; also the commits that
    Penstock did not make. Goes back as far as Delta keeps its log, 30 days by default.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.history import document, history
    from penstock.plan.select import choose

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    lines = history(chosen, open_store(plan), limit or None)
    if as_json:
        from penstock.cli.console import print_json

        print_json({"table": chosen.name, "commits": [document(line) for line in lines]})
        return
    from penstock.cli.console import out
    from penstock.cli.history_view import history_view

    if not out.is_terminal:  # piped, there is no width to keep to: a commit stays on its line for grep
        out.width = 200
    out.print(history_view(chosen.name, lines))
