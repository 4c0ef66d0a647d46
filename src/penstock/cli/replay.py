"""`penstock replay`: rebuild a table from its source with its current definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan
from penstock.ledger.position import describe_position
from penstock.operations.replay_plan import document
from penstock.operations.replay_preview import dry_run
from penstock.operations.replay_preview import preview_document as outlook_document

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.operations.replay_plan import ReplayPlan
    from penstock.operations.replay_preview import ReplayPreview, RowDifference, RowSample
    from penstock.plan.model import Plan

# What `replay` shows: what it would do, how far it is, what has become of the table.


_HOW = {
    "rebuilt": "holds rows made of the old ones: stale until it is made anew (--cascade)",
    "recomputed": "computes every group again with its next batch",
    "state": "rests on Spark's state: stale until `penstock checkpoints reset` makes it anew",
    "sent": "has sent the old rows: they cannot be taken back",
}
_SHOWN = 160


def planned_view(planned: ReplayPlan) -> RenderableType:
    return Group(*_lines(planned))


def _lines(planned: ReplayPlan) -> Iterator[Text]:
    yield Text.assemble((planned.table.name, "bold"), f": made anew from {planned.source}")
    yield Text(f"  now          {planned.rows:,} rows landed")
    if planned.moves:
        yield Text(
            f"  goes on at   {describe_position(planned.after)}, no longer {describe_position(planned.position)}"
        )
    else:
        yield Text("  goes on at   where it is")
    if planned.owed:
        yield Text("  note         a replay of it was cut off: this one takes its place")
    if planned.running is not None:
        yield Text(f"  note         process {planned.running} runs it: its stream waits until the replay is done")
    if planned.outdated:
        yield Text("  note         that process has another definition of it: start it again after the replay")
    for topic, count in planned.lost.items():
        yield Text(
            f"  note         Kafka no longer has {count:,} offsets of {topic}: rows made of those stay as they are"
        )
    if planned.passed_over:
        yield Text(
            f"  note         {planned.passed_over}. A replay reads the table as it is after them: it has what they did"
        )
    if planned.cascade:
        yield Text(f"  with it      {', '.join(one.table.name for one in planned.cascade)}")
    for one in planned.stale:
        yield Text(f"  {one.table.name} {_HOW[one.how]}")
    for one in planned.readers:
        if one.how == "follows":
            yield Text(f"  {one.table.name} follows its changes: it gets the rows that go and those that come")


def replay_in_steps(plan: Plan, planned: ReplayPlan, console: Console, *, dry_run: bool) -> dict[str, Any]:
    from penstock.operations.causes import explain
    from penstock.spark.session import logs_folder, spark_session

    try:
        with console.status("starting Spark …") as status, spark_session(plan) as spark:
            if dry_run:
                status.update(f"{planned.table.name}: comparing what is there with what would be …")
                return {**document(planned), "done": False, "difference": _compared(spark, plan, planned, console)}
            return {**document(planned), "done": True, "tables": _carried_out(spark, plan, planned, console, status)}
    except Exception as error:
        raise explain(error, planned.table.name, str(logs_folder(plan))) from error


def _compared(spark: Any, plan: Plan, planned: ReplayPlan, console: Console) -> dict[str, Any]:
    outlook = dry_run(spark, plan, planned)
    console.print(outlook_view(outlook))
    return outlook_document(outlook)


def _carried_out(spark: Any, plan: Plan, planned: ReplayPlan, console: Console, status: Any) -> list[dict[str, Any]]:
    from penstock.operations.replay_plan import carry_out

    done: list[dict[str, Any]] = []
    for table, filled in carry_out(spark, plan, planned, lambda name, what: status.update(f"{name}: {what} …")):
        rejected, kept = filled.fates.get("rejected", 0), filled.kept
        said = [f"{filled.rows:,} rows", *([f"{rejected:,} in quarantine"] if rejected else [])]
        said += [f"{kept:,} kept as they were"] if kept else []
        at = filled.tail.commit.version
        console.print(
            f"[bold]{table.name}[/bold]: {', '.join(said)}; version {at}, generation {filled.tail.entry.generation}"
        )
        done.append(
            {
                "table": table.name,
                "rows": filled.rows,
                "kept": kept,
                "version": at,
                "generation": filled.tail.entry.generation,
                "fates": dict(filled.fates),
            }
        )
    return done


def outlook_view(outlook: ReplayPreview) -> RenderableType:
    rows = outlook.rows
    parts: list[RenderableType] = [Text(_summary(rows))]
    for label, names in rows.columns.items():
        if names:
            parts.append(Text(f"  {label} columns: {', '.join(names)}"))
    if rows.parts:
        parts.append(_by_partition(rows))
    if outlook.rejected_now or outlook.rejected_then:
        parts.append(_rejected(outlook))
    parts += [_sample(one) for one in rows.samples]
    return Group(*parts)


def _summary(rows: RowDifference) -> str:
    if rows.none:
        return f"  no difference: {rows.rows:,} rows"
    counted = f"{rows.added:,} rows added, {rows.removed:,} removed"
    if rows.by:
        return f"  {counted}, {rows.changed:,} changed (rows of the same {', '.join(rows.by)}): {rows.rows:,} rows then"
    return f"  {counted} (whole rows are compared: a changed one is one of each): {rows.rows:,} rows then"


def _by_partition(rows: RowDifference) -> Table:
    made = Table("partition", "added", "removed", "changed")
    for one in rows.parts:
        said = ", ".join(f"{name}={value}" for name, value in one.partition.items())
        made.add_row(Text(said), *(f"{count:,}" for count in (one.added, one.removed, one.changed)))
    return made


def _rejected(outlook: ReplayPreview) -> Table:
    made = Table("quarantine", "now", "then")
    for reason in sorted({*outlook.rejected_now, *outlook.rejected_then}):
        now, then = outlook.rejected_now.get(reason, 0), outlook.rejected_then.get(reason, 0)
        made.add_row(Text(reason), f"{now:,}", f"{then:,}")
    return made


def _sample(one: RowSample) -> Text:
    if one.kind != "changed" or one.now is None or one.then is None:
        return Text(f"  {one.kind}: {_short(one.then or one.now or {})}")
    differs = [name for name in one.then if one.now.get(name) != one.then.get(name)]
    said = ", ".join(f"{name}: {json.dumps(one.now.get(name))} -> {json.dumps(one.then.get(name))}" for name in differs)
    return Text(f"  changed: {_short({k: v for k, v in one.then.items() if k not in differs})}: {said}"[: 2 * _SHOWN])


def _short(row: dict[str, Any]) -> str:
    text = json.dumps(row)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


# `penstock replay`.


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
    from penstock.operations.replay_plan import plan_replay
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

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
    from penstock.errors import UsageError
    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.head import read_head
    from penstock.ledger.pending import pending_replay
    from penstock.ledger.position import describe_position
    from penstock.operations.replay_plan import give_up
    from penstock.plan.model import Plan, TablePlan
    from penstock.spark.session import spark_session
    from penstock.storage.stores import open_store

    assert isinstance(plan, Plan) and isinstance(table, TablePlan)
    tail = read_head(DeltaLog(open_store(plan), table.uri, table.name))
    owed = pending_replay(tail.entry) if tail is not None else None
    if owed is None:
        raise UsageError(f"no replay of {table.name} is open", hint="there is nothing to abort")
    console = people(as_json)
    position = ", ".join(map(describe_position, owed.position))
    console.print(f"[bold]{table.name}[/bold] stays as it is, and goes on from {position}", soft_wrap=True)
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
