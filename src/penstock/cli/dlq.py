"""`penstock dlq`: the rows that tables rejected."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan

group = typer.Typer(help="What was rejected, and why: the quarantines of the tables.", no_args_is_help=True)
MOST = 10_000
"""Rows that are shown at once; of more, the quarantine is a Delta table like any other."""


@group.command("redrive")
def redrive(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    reason: Annotated[str | None, typer.Option("--reason", help="Only rows with this error_reason.")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only rows that meet a condition: error_detail LIKE 'amount%'."),
    ] = None,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Run rejected rows once more, by the table's definition of now.

    Those that pass land in the table, once, and leave the quarantine; what reads the table sees them as new rows. The
    others stay, with their new reason. Works beside a running table; killed anywhere, the next redrive finishes it.
    """
    from penstock.cli.dlq_redrive import redrive_in_steps

    redrive_in_steps(load_plan(directory), table, reason, where, dry_run=dry_run, yes=yes, as_json=as_json)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per quarantine: its rows by reason and by what the reason is about, when they came, and one of each.

    No Spark is started and nothing is changed. Exit code 3 if a quarantine cannot be read.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.dlq.counted import count_all, document
    from penstock.ops.dlq.quarantine import tables_with_one

    plan = load_plan(directory)
    store = open_store(plan)
    found = count_all(tables_with_one(plan, store, tables or []), store)
    if as_json:
        from penstock.cli.console import print_json

        print_json({"project": plan.name, "tables": [document(one) for one in found]})
    else:
        from penstock.cli.console import print_view
        from penstock.cli.dlq_view import counted_view

        print_view(counted_view(found), piped=200)
    if any(one.problem for one in found):
        raise typer.Exit(3)


@group.command("show")
def show(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    reason: Annotated[str | None, typer.Option("--reason", help="Only this error_reason.")] = None,
    detail: Annotated[
        str | None, typer.Option("--detail", metavar="TEXT", help="Only with this in the detail: a field, a check.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Rejected then or later: an ISO time, or 2h ago as 2h."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Rejected before then.")] = None,
    batch: Annotated[
        str | None, typer.Option("--batch", metavar="G.N", help="Of this batch: 1.12, or 12 of any generation.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="From this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, max=2**31 - 1, help="From this one.")] = None,
    offset: Annotated[
        str | None, typer.Option("--offset", metavar="N[-M]", help="At this offset, or from N to M.")
    ] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="From this file, as it is listed.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=MOST, help="At most so many rows.")] = 20,
    full: Annotated[bool, typer.Option("--full", help="Keys and values in their whole length.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The rejected rows themselves, the newest first: where each came from, why it was rejected, and what it was.

    Values are shortened, unless with --full or --json; what a terminal would obey is shown as an escape, and bytes that
    are no text as hex, in JSON as base64.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.dlq.filter import Filter, read_batch, read_offsets, read_time
    from penstock.ops.dlq.quarantine import open_quarantine, tables_with_one
    from penstock.ops.dlq.rows import count, document, read_rows

    generation, number = read_batch(batch)
    wanted = Filter(
        reason,
        detail,
        read_time("--since", since),
        read_time("--until", until),
        generation,
        number,
        topic,
        partition,
        read_offsets(offset),
        file,
    )
    plan = load_plan(directory)
    store = open_store(plan)
    (chosen,) = tables_with_one(plan, store, [table])
    quarantine = open_quarantine(chosen, store)
    total = count(quarantine, wanted) if quarantine is not None else 0
    rows = list(read_rows(quarantine, wanted, limit, whole=full or as_json)) if quarantine is not None else []
    if as_json:
        from penstock.cli.console import print_json

        name = quarantine.name if quarantine is not None else None
        print_json({"table": chosen.name, "quarantine": name, "rows": total, "shown": [document(row) for row in rows]})
        return
    from penstock.cli.console import out
    from penstock.cli.dlq_view import rows_view

    for line in rows_view(chosen.name, rows, total, full=full):
        out.print(line, soft_wrap=True)
