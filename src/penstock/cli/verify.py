"""`penstock verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan


def command(
    tables: Tables = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Compute all groups and compare all rows of copies, not a sample of them.")
    ] = False,
    no_recompute: Annotated[
        bool,
        typer.Option(
            "--no-recompute",
            help="Compute no numbers again, and compare no copies: no Spark is started, and what that leaves open is "
            "said (partial).",
        ),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write one page to keep, in HTML, with all that was checked."),
    ] = None,
    allow_behind: Annotated[
        bool,
        typer.Option(
            "--allow-behind",
            help="Exit 0 also for tables that are right and have not read everything yet: for a project that runs.",
        ),
    ] = False,
    allow_partial: Annotated[
        bool,
        typer.Option(
            "--allow-partial",
            "--allow-unverifiable",
            help="Exit 0 also for tables that are right as far as they could be looked at: Kafka no longer holds what "
            "would tell a gap from a loss, a version can no longer be read, rows are older than the ledger.",
        ),
    ] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Prove that every record is in its table exactly once, and every number right; or say exactly what is not.

    Compared are: the ledger (does each batch start where the last one ended); topic, partition and offset of every row,
    and Kafka, which tells records that were lost from offsets that it left empty itself; what was read and what became
    of it; the groups of aggregates and a plain query over their source; merged tables and copies and the changes that
    they are made of. For the last two Spark is started, if there are any. Tables may be running meanwhile.

    The answer is one of complete, behind (right so far, not everything is read), partial (right as far as it could be
    looked at) and wrong. Exit code 1 unless every table is complete.
    """
    from penstock.cli.bar import Bar
    from penstock.cli.console import out, print_json
    from penstock.cli.verify_file import page_file
    from penstock.cli.verify_view import report_view
    from penstock.engine.stores import open_store
    from penstock.errors import UsageError
    from penstock.ops.verify.again.run import check_again, left_out
    from penstock.ops.verify.document import Asked, audit_document
    from penstock.ops.verify.table import verify
    from penstock.plan.select import choose

    if deep and no_recompute:
        raise UsageError("--deep and --no-recompute at once", hint="choose one of them")
    plan = load_plan(directory)
    chosen = choose(plan, tables or [])
    asked = Asked(tuple(tables or ()), deep, no_recompute, allow_behind, allow_partial, str(report) if report else None)
    with page_file(report) as write:
        with Bar() as bar:
            store = open_store(plan)
            reports = verify(chosen, store, bar.step, plan.tables)
            if no_recompute:
                left_out(chosen, reports, "--no-recompute")
            else:
                check_again(plan, chosen, reports, store, bar.step, deep=deep)
        document = audit_document(plan, chosen, reports, asked)
        write(document)
    if as_json:
        print_json(document)
    else:
        if not out.is_terminal:  # piped, there is no width to keep to
            out.width = 160
        for one in reports:
            out.print(report_view(one))
    raise typer.Exit(0 if document["ok"] else 1)
