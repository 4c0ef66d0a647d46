"""What `rewind` shows: what it would do, and what has become of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text

from penstock.ops.rewind.model import Behind, Planned, document
from penstock.plan.model import Plan, TablePlan

_PAST = {
    "rebuilt": "is made anew",
    "recomputed": "is made anew",
    "state": "rests on Spark's state: stale until `penstock checkpoints reset` makes it anew",
    "sent": "has sent rows that go: they cannot be taken back, and those that are read again are sent again",
}


def planned_view(planned: Planned) -> RenderableType:
    return Group(*_lines(planned))


def _lines(planned: Planned) -> Iterator[Text]:
    at = datetime.fromtimestamp(planned.time_ms / 1000, tz=UTC)
    yield Text.assemble(
        (planned.table.name, "bold"), f": back to version {planned.version} of {at:%Y-%m-%d %H:%M:%S} UTC, ",
        f"from {planned.newest}"
    )  # fmt: skip
    batches = "1 batch" if planned.batches == 1 else f"{planned.batches:,} batches"
    yield Text(f"  undone       {batches}")
    yield Text(f"  rows         {planned.rows[0]:,} now, {planned.rows[1]:,} then")
    if any(planned.rejected):
        yield Text(f"  quarantine   {planned.rejected[0]:,} now, {planned.rejected[1]:,} then")
    yield Text(f"  reads again  {planned.again}")
    if planned.owed:
        yield Text("  note         a rewind of it was cut off: this one takes its place")
    if planned.running is not None:
        yield Text(f"  note         process {planned.running} runs it: its stream goes on from there by itself")
    if planned.cascade:
        yield Text(f"  with it      {', '.join(one.table.name for one in planned.cascade)}")
    for one in planned.readers:
        yield Text(f"  {one.name} {_said(one)}")


def _said(one: Behind) -> str:
    if one.fate == "follows":
        return "follows its changes: it gets the rows that go, and those that come again"
    if one.fate == "past":
        return f"has read up to version {one.version}: {_PAST[one.reader.how]}"
    return f"has read up to version {one.version}: it steps over what is undone"


def rewind_in_steps(plan: Plan, planned: Planned, console: Console, *, dry_run: bool) -> dict[str, Any]:
    from penstock.engine.session import logs_folder, spark_session
    from penstock.ops.rewind.carry_out import carry_out, look
    from penstock.runtime.causes import explain

    done: list[dict[str, Any]] = []
    try:
        with console.status("starting Spark …") as status, spark_session(plan) as spark:
            if dry_run:
                status.update(f"{planned.table.name}: looking whether all of it is there …")
                look(spark, plan, planned)
                console.print("  all that it needs is there")
            else:
                for one in carry_out(spark, plan, planned, lambda name, what: status.update(f"{name}: {what} …")):
                    entry, at = one.tail.entry, one.tail.commit.version
                    rows = one.filled.rows + one.filled.kept if one.filled is not None else entry.counts.total
                    console.print(
                        f"[bold]{one.table.name}[/bold]: {rows:,} rows; version {at}, generation {entry.generation}"
                    )
                    done.append({"table": one.table.name, "rows": rows, "version": at, "generation": entry.generation})
    except Exception as error:
        raise explain(error, planned.table.name, str(logs_folder(plan))) from error
    return {**document(planned), "done": not dry_run, "tables": done}


def abort_in_steps(plan: Plan, table: TablePlan, console: Console, *, dry_run: bool, yes: bool) -> dict[str, Any]:
    from penstock.engine.protocol.ledger import read_tail
    from penstock.engine.protocol.log import DeltaLog
    from penstock.engine.rewind.pending import pending_rewind
    from penstock.engine.session import spark_session
    from penstock.engine.stores import open_store
    from penstock.errors import UsageError
    from penstock.ops.rewind.carry_out import abort

    tail = read_tail(DeltaLog(open_store(plan), table.uri, table.name))
    owed = pending_rewind(tail.entry) if tail is not None else None
    if owed is None:
        raise UsageError(f"no rewind of {table.name} is open", hint="there is nothing to abort")
    where = ", ".join(owed.position)
    console.print(f"[bold]{table.name}[/bold] stays as it is, and goes on from {where}", soft_wrap=True)
    if not dry_run:
        if not yes:
            typer.confirm("Go on?", abort=True, err=True)
        with console.status("starting Spark …"), spark_session(plan) as spark:
            generation = abort(spark, plan, table)
        console.print(f"  done: generation {generation}. `penstock run` goes on from there")
    return {"table": table.name, "aborted": not dry_run, "position": list(owed.position)}
