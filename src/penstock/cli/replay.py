"""`penstock replay`: rebuild a table from its source with its current definition."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan
from penstock.cli.session import abort_verb, confirm, running, steps_view
from penstock.ledger.position import describe_position

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.replay import Filled
    from penstock.operations.replay_plan import ReplayPlan
    from penstock.operations.replay_preview import ReplayPreview, RowDifference, RowSample
    from penstock.plan.model import TablePlan

_HOW = {
    "rebuilt": "keeps rows that were made of the old ones: stale until it is rebuilt too (--cascade)",
    "recomputed": "computes every group again with its next batch",
    "state": "depends on Spark's state: stale until `penstock checkpoints reset` starts it over",
    "sent": "has sent the old rows: they cannot be taken back",
}
_SHOWN = 160


def render_plan(planned: ReplayPlan) -> RenderableType:
    return Group(*_lines(planned), steps_view(planned.steps))


def _lines(planned: ReplayPlan) -> Iterator[Text]:
    yield Text.assemble((planned.table.name, "bold"), f": rebuilt from {planned.source}")
    yield Text(f"  now          {planned.rows:,} rows landed")
    where = f"{describe_position(planned.after)}, no longer {describe_position(planned.position)}"
    yield Text(f"  continues at {where if planned.moves else 'where it is'}")
    for note in _notes(planned):
        yield Text(f"  note         {note}")
    for reader in planned.stale:
        yield Text(f"  {reader.table.name} {_HOW[reader.how]}")
    for reader in planned.readers:
        if reader.how == "follows":
            yield Text(f"  {reader.table.name} follows its changes: it gets the removed rows and the new ones")


def _notes(planned: ReplayPlan) -> Iterator[str]:
    if planned.owed:
        yield "a replay of it was cut off: this one takes its place"
    if planned.running is not None:
        yield f"process {planned.running} runs it: its stream waits until the replay is done"
    if planned.outdated:
        yield "that process has another definition of it: restart it after the replay"
    for topic, count in planned.lost.items():
        yield f"Kafka no longer has {count:,} offsets of {topic}: rows made of those stay as they are"
    if planned.passed_over:
        yield f"{planned.passed_over}. A replay reads the table as it is after them: it has what they did"


def render_filled(table: TablePlan, filled: Filled) -> Text:
    rejected = filled.row_counts.get("rejected", 0)
    parts = [f"{filled.rows:,} rows", *([f"{rejected:,} in quarantine"] if rejected else [])]
    parts += [f"{filled.kept:,} kept as they were"] if filled.kept else []
    at, generation = filled.tail.commit.version, filled.tail.entry.generation
    return Text.assemble((table.name, "bold"), f": {', '.join(parts)}; version {at}, generation {generation}")


def _filled_document(table: TablePlan, filled: Filled) -> dict[str, Any]:
    return {
        "table": table.name,
        "rows": filled.rows,
        "kept": filled.kept,
        "version": filled.tail.commit.version,
        "generation": filled.tail.entry.generation,
        "fates": dict(filled.row_counts),
    }


def render_preview(outlook: ReplayPreview) -> RenderableType:
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
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table to rebuild.")],
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", help="Read the table upstream as of this version.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Read it as it was then: 2026-05-14T09:00, with a zone or UTC; 2h: two hours ago; or now.",
        ),
    ] = None,
    cascade: Annotated[
        bool, typer.Option("--cascade", help="Rebuild the tables made of it too, upstream before downstream.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Give up a replay that was cut off: the table continues as it is.")
    ] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a table from its source with its current definition.

    For the day on which a rule was wrong. The source is read as far as the table has read it, the table's function runs
    over all of that, and one commit replaces the rows and the quarantine. The table's stream waits meanwhile and
    continues exactly where it was; tables upstream keep running. --dry-run lists the steps and shows what would differ.
    """
    from penstock.cli.console import people, print_json
    from penstock.operations.quarantine_rows import read_time
    from penstock.operations.replay_plan import document, plan_replay, run_replay
    from penstock.operations.replay_preview import preview_document, preview_replay
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    if abort:
        abort_verb("replay", plan, chosen, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    console = people(as_json)
    as_of_time = datetime.now(UTC) if as_of == "now" else read_time("--as-of", as_of)
    planned = plan_replay(plan, chosen, open_store(plan), version=version, as_of=as_of_time, cascade=cascade)
    console.print(render_plan(planned), soft_wrap=True)
    if not dry_run and not yes:
        confirm()
    answer: dict[str, Any] = {**document(planned), "done": not dry_run}
    with running(plan, console, table) as session:
        if dry_run:
            session.tell(table, "comparing what is there with what would be")
            preview = preview_replay(session.spark, plan, planned)
            console.print(render_preview(preview))
            answer["difference"] = preview_document(preview)
        else:
            answer["tables"] = []
            for rebuilt, filled in run_replay(session.spark, plan, planned, session.tell):
                console.print(render_filled(rebuilt, filled))
                answer["tables"].append(_filled_document(rebuilt, filled))
    if as_json:
        print_json(answer)
