"""`penstock status`."""

from __future__ import annotations

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: state, last batch, rows, position and lag.

    Read from the lake and the broker: no Spark is started and nothing is changed. A broker that is away is waited for a
    few seconds; then its lag is unknown and the rest is shown.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.status import document, status
    from penstock.plan.select import choose

    plan = load_plan(directory)
    found = status(plan, choose(plan, tables or []), open_store(plan))
    if as_json:
        from penstock.cli.console import print_json

        print_json({"project": plan.name, "tables": [document(one) for one in found]})
        return
    from penstock.cli.console import out
    from penstock.cli.status_view import status_view

    if not out.is_terminal:  # piped, there is no width to keep to: a table stays on its line for grep
        out.width = 160
    out.print(status_view(found))
