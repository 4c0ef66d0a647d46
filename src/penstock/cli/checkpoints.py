"""`penstock checkpoints`: what a refused table needs from a person."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan

group = typer.Typer(help="Choose where a table goes on from.", no_args_is_help=True)


@group.callback()
def _group() -> None:
    pass


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
    from penstock.engine.protocol.position import VERSIONS
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
    console.print(f"[bold]{table}[/bold]: {planned.before or 'no position'} -> {planned.after}", soft_wrap=True)
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
        console.print(f"  done: generation {tail.entry.generation}. `penstock run` goes on from there")
    if as_json:
        print_json({**document(planned), "done": not dry_run})
