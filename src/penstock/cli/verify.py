"""`penstock verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(
    tables: Tables = None,
    allow_unverifiable: Annotated[
        bool,
        typer.Option(
            "--allow-unverifiable", help="Exit 0 also where Kafka no longer holds what would tell a gap from a loss."
        ),
    ] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every record is in its table exactly once, or say exactly which is not.

    Three things are held against each other: the ledger (does each batch start where the last one ended), the topic,
    partition and offset of every row, and Kafka, which tells records that were lost from offsets that it left empty
    itself. A table may be running meanwhile. Exit code 1 if a table is not complete.
    """
    from penstock.cli.bar import Bar
    from penstock.cli.console import out, print_json
    from penstock.cli.verify_view import report_view
    from penstock.engine.stores import open_store
    from penstock.ops.verify.report import document
    from penstock.ops.verify.table import verify
    from penstock.plan.select import choose

    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    with Bar() as bar:
        reports = verify(chosen, open_store(plan), bar.step)
    ok = all(report.ok(allow_unverifiable=allow_unverifiable) for report in reports)
    if as_json:
        print_json({"complete": ok, "tables": [document(report) for report in reports]})
    else:
        if not out.is_terminal:  # piped, there is no width to keep to
            out.width = 160
        for report in reports:
            out.print(report_view(report))
    raise typer.Exit(0 if ok else 1)
