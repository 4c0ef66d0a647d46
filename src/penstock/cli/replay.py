"""`penstock replay`."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan


def command(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table to make anew.")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Read the table upstream as of this version.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="TIME", help="Read it as it was then: 2026-05-14T09:00, with a zone or UTC; or now."
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Make anew what is made of it too, upstream before downstream.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up a replay that was cut off: the table goes on as it is.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make a table anew from its source, by its definition of now.

    For the day on which a rule was wrong. The source is read as far as the table has read it, the table's function runs
    over all of that, and one commit puts the rows, and its quarantine, in the place of the old ones. The table's stream
    waits meanwhile and goes on from exactly where it was; what is upstream runs on. --dry-run shows what would differ.
    """
    from penstock.cli.replay_view import planned_view, replay_in_steps
    from penstock.engine.stores import open_store
    from penstock.ops.replay.plan import plan_replay
    from penstock.plan.select import choose

    plan = load_plan(directory)
    chosen = choose(plan, [table])[0]
    if abort:
        _abort(plan, chosen, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    planned = plan_replay(
        plan, chosen, open_store(plan), version=version, as_of=_time(as_of) if as_of else None, cascade=cascade
    )
    from penstock.cli.console import people, print_json

    console = people(as_json)
    console.print(planned_view(planned), soft_wrap=True)
    if not dry_run and not yes:
        typer.confirm("Go on?", abort=True, err=True)
    document = replay_in_steps(plan, planned, console, dry_run=dry_run)
    if as_json:
        print_json(document)


def _abort(plan: object, table: object, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    from penstock.cli.console import people, print_json
    from penstock.engine.protocol.ledger import read_tail
    from penstock.engine.protocol.log import DeltaLog
    from penstock.engine.protocol.position import said
    from penstock.engine.replay.pending import pending_replay
    from penstock.engine.session import spark_session
    from penstock.engine.stores import open_store
    from penstock.errors import UsageError
    from penstock.ops.replay.carry_out import give_up
    from penstock.plan.model import Plan, TablePlan

    assert isinstance(plan, Plan) and isinstance(table, TablePlan)
    tail = read_tail(DeltaLog(open_store(plan), table.uri, table.name))
    owed = pending_replay(tail.entry) if tail is not None else None
    if owed is None:
        raise UsageError(f"no replay of {table.name} is open", hint="there is nothing to abort")
    console = people(as_json)
    console.print(
        f"[bold]{table.name}[/bold] stays as it is, and goes on from {', '.join(map(said, owed.position))}",
        soft_wrap=True,
    )
    if not dry_run:
        if not yes:
            typer.confirm("Go on?", abort=True, err=True)
        with console.status("starting Spark …"), spark_session(plan) as spark:
            generation = give_up(spark, plan, table)
        console.print(f"  done: generation {generation}. `penstock run` goes on from there")
    if as_json:
        print_json({"table": table.name, "aborted": not dry_run, "position": list(owed.position)})


def _time(text: str) -> datetime:
    from datetime import UTC

    from penstock.errors import UsageError

    if text == "now":
        return datetime.now(UTC)
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--as-of {text} is no time", hint="write 2026-05-14T09:00 or 2026-05-14T09:00+02:00"
        ) from None
    return made if made.tzinfo is not None else made.replace(tzinfo=UTC)
