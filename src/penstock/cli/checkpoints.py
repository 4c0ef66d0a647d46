"""`penstock checkpoints`: what tables go on from, and what a refused one needs from a person."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan

group = typer.Typer(help="What tables go on from: look at it, heal it, choose it.", no_args_is_help=True)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: its checkpoint, whether it is in step with the ledger, how large it is and how it grows.

    No Spark is started and nothing is changed. Folders that are left over of earlier generations are listed too.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.checkpoints.listed import document, standings
    from penstock.ops.checkpoints.weight import strangers
    from penstock.plan.select import choose

    plan = load_plan(directory)
    store = open_store(plan)
    found = standings(plan, choose(plan, tables or []), store)
    others = [] if tables else list(strangers(plan, store))
    if as_json:
        from penstock.cli.console import print_json
        from penstock.ops.checkpoints.document import leftover_document

        told = {"tables": [document(one) for one in found], "others": [leftover_document(one) for one in others]}
        print_json({"project": plan.name, **told})
        return
    from penstock.cli.checkpoints_view import list_view
    from penstock.cli.console import print_view

    print_view(list_view(found, others, plan.system), piped=200)


@group.command("show")
def show_(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    last: Annotated[int, typer.Option("--last", "-n", min=1, max=1000, help="So many of its last batches.")] = 5,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """What is in a checkpoint, in words; what a start would do now; and whether today's definition fits it.

    No Spark is started and nothing is changed. The table's source is asked whether it still has what comes next; a
    broker that is away is waited for a few seconds.
    """
    from penstock.engine.stores import open_store
    from penstock.ops.checkpoints.shown import document, show
    from penstock.plan.select import choose

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    found = show(plan, chosen, open_store(plan), last)
    if as_json:
        from penstock.cli.console import print_json

        print_json(document(found))
        return
    from penstock.cli.checkpoint_view import show_view
    from penstock.cli.console import print_view

    print_view(show_view(found), piped=200)


@group.command("heal")
def heal(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a table's checkpoint from its ledger now. A start does the same by itself.

    No Spark is started, and no row is read again or skipped: the last batch is planned over its recorded range, and
    recognised as written. Refused while a runner works on the table.
    """
    from penstock.cli.checkpoints_view import healing_view
    from penstock.cli.console import people, print_json
    from penstock.engine.stores import open_store
    from penstock.ops.checkpoints.document import healing_document
    from penstock.ops.checkpoints.heal import carry_out, plan_heal
    from penstock.plan.select import choose

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    store = open_store(plan)
    planned = plan_heal(plan, chosen, store)
    console, done = people(as_json), False
    for line in healing_view(table, planned):
        console.print(line, soft_wrap=True)
    if planned is not None and planned.why is not None and not dry_run:
        if not yes:
            typer.confirm("Go on?", abort=True, err=True)
        planned = carry_out(plan, chosen, store)
        done = planned is not None and planned.why is not None
        console.print("  done: `penstock run` goes on from there" if done else "  somebody else has done it")
    if as_json:
        print_json({**(healing_document(planned) if planned is not None else {"table": table}), "done": done})


@group.command("reset")
def reset(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="ledger: where the table ended; what Kafka no longer has is skipped, a topic made again is read from "
            "its start. version:N: where the table stood at that version. earliest or latest: what the broker holds. "
            "starting: as the project file says. Or offsets as JSON, of some partitions or all: "
            '\'{"orders": {"0": 120}}\'. Of a table that reads another: earliest reads all of that again, source:N '
            "begins at its version N. A table with `stream` knows only starting, which empties it first.",
        ),
    ],
    topic: Annotated[list[str] | None, typer.Option("--topic", help="Only this topic; the others stay.")] = None,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a table's position, after showing which records that skips or reads again.

    The way on after a refusal: records gone from Kafka, a topic made again, a table restored by hand.
    """
    from penstock.cli.console import people, print_json
    from penstock.engine.protocol.position import VERSIONS, said
    from penstock.engine.session import spark_session
    from penstock.engine.sources import Sources
    from penstock.engine.stores import open_store
    from penstock.ops.reset.carry_out import carry_out
    from penstock.ops.reset.model import document
    from penstock.ops.reset.plan import plan_reset
    from penstock.plan.select import choose

    plan = load_plan(directory)
    chosen = choose(plan, [table])[0]
    store = open_store(plan)
    planned = plan_reset(chosen, store, to, tuple(topic or ()))
    console = people(as_json)
    before = said(planned.before) if planned.before else "no position"
    console.print(f"[bold]{table}[/bold]: {before} -> {said(planned.after)}", soft_wrap=True)
    for label, found in (("never read", planned.skipped), ("read again", planned.again)):
        count = sum(r.end - r.start for r in found)
        if found:
            unit = "versions" if found[0].topic == VERSIONS else "offsets"
            console.print(f"  {label}: {count:,} {unit}: {', '.join(map(str, found))}", soft_wrap=True)
    for gone in planned.dropped:
        console.print(f"  no longer read: topic {gone}, which does not exist any more")
    if planned.anew:
        console.print(f"  emptied: all rows of {table}; made again from {', '.join(planned.anew)}", soft_wrap=True)
        readers = [one.name for one in plan.tables if table in one.upstream]
        if readers:
            console.print(f"  its rows reach {', '.join(readers)} once more: they keep those that they have read")
    if not dry_run:
        if not yes:
            typer.confirm("Go on?", abort=True, err=True)
        with console.status("starting Spark …"), spark_session(plan) as spark:
            tail = carry_out(spark, plan, chosen, planned, Sources(lambda _: store, spark).open(chosen))
        if missing := (tail.entry.note or "").removeprefix(planned.note).lstrip("; "):
            console.print(f"  {missing}", style="yellow", soft_wrap=True, markup=False)
        console.print(f"  done: generation {tail.entry.generation}. `penstock run` goes on from there")
    if as_json:
        print_json({**document(planned), "done": not dry_run})
