"""`penstock plan`."""

from __future__ import annotations

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Show what run will do: tables, sources, settings and why.

    It is worked out from the project file alone: neither Spark nor a broker is needed, and nothing is changed.
    """
    from penstock.cli.console import out, print_json
    from penstock.plan.select import choose

    plan = load_plan(directory)
    choose(plan, tables or [])
    if as_json:
        from penstock.plan.document import plan_document

        print_json(plan_document(plan, tables or ()))
    else:
        from penstock.cli.plan_view import plan_view

        if not out.is_terminal:
            out.width = 200  # piped, there is no width to keep to: paths stay in one piece for grep
        with out.capture() as printed:
            out.print(plan_view(plan, tables or ()))
        typer.echo("\n".join(line.rstrip() for line in printed.get().splitlines()))
