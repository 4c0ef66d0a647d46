"""`penstock dlq redrive`: what it would do, asked and done."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from penstock.cli.console import people, print_json
from penstock.engine.session import logs_folder, spark_session
from penstock.engine.stores import open_store
from penstock.ops.dlq.quarantine import tables_with_one
from penstock.ops.dlq.redrive import asked_for, chosen_rows, redrive, refuse_without
from penstock.plan.model import Plan
from penstock.runtime.causes import explain


def redrive_in_steps(
    plan: Plan, name: str, reason: str | None, where: str | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    store = open_store(plan)
    (table,) = tables_with_one(plan, store, [name])
    refuse_without(table, store)
    console, condition = people(as_json), asked_for(reason, where)
    answer: dict[str, Any] = {"table": table.name, "done": False}
    try:
        with console.status("starting Spark …") as status, spark_session(plan) as spark:
            status.update(f"{table.name}: looking at its quarantine …")
            found = chosen_rows(spark, plan, table, condition)
            answer["rows"] = found
            status.stop()
            console.print(f"[bold]{table.name}[/bold]: {sum(found.values()):,} rejected rows are run again")
            for kind, count in sorted(found.items()):
                console.print(f"  {kind}: {count:,}", markup=False)
            if found and not dry_run:
                if not yes:
                    typer.confirm("Go on?", abort=True, err=True)
                status.start()
                status.update(f"{table.name}: rejected rows are run again …")
                done = redrive(spark, plan, table, condition)
                status.stop()
                for one in done:
                    console.print(
                        f"  {one.rows:,} rows: {one.landed:,} landed, {one.left:,} left the quarantine, "
                        f"{one.rows - one.left:,} stay" + _reasons(one.reasons),
                        markup=False,
                        soft_wrap=True,
                    )
                answer |= {"done": True, "redrives": [asdict(one) for one in done]}
    except typer.Abort:
        raise
    except Exception as error:
        raise explain(error, table.name, str(logs_folder(plan))) from error
    if as_json:
        print_json(answer)


def _reasons(found: Any) -> str:
    return f" ({', '.join(f'{reason} {count:,}' for reason, count in sorted(found.items()))})" if found else ""
