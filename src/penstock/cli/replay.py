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

from penstock.cli.console import print_json, shorten, text_console, visible
from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_table
from penstock.cli.session import abort_verb, confirm, steps_view, verb_session
from penstock.ledger.position import describe_position

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.replay import FillResult
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


def render_plan(replay_plan: ReplayPlan) -> RenderableType:
    title = Text.assemble((replay_plan.table.name, "bold"), f": rebuilt from {visible(replay_plan.source)}")
    lines = (Text(f"  {visible(line)}") for line in _lines(replay_plan))
    return Group(title, *lines, steps_view(replay_plan.steps))


def _lines(replay_plan: ReplayPlan) -> Iterator[str]:
    yield f"now          {replay_plan.rows:,} rows landed"
    where = f"{describe_position(replay_plan.next_position)}, no longer {describe_position(replay_plan.position)}"
    yield f"continues at {where if replay_plan.moves else 'where it is'}"
    yield from (f"note         {note}" for note in _notes(replay_plan))
    yield from (f"{reader.table.name} {_HOW[reader.effect]}" for reader in replay_plan.stale)
    for reader in replay_plan.readers:
        if reader.effect == "follows":
            yield f"{reader.table.name} follows its changes: it gets the removed rows and the new ones"


def _notes(replay_plan: ReplayPlan) -> Iterator[str]:
    if replay_plan.resumes:
        yield "a replay of it was cut off: this one takes its place"
    if replay_plan.running is not None:
        yield f"process {replay_plan.running} runs it: its stream waits until the replay is done"
    if replay_plan.outdated:
        yield "that process has another definition of it: restart it after the replay"
    for topic, count in replay_plan.lost.items():
        yield f"Kafka no longer has {count:,} offsets of {topic}: rows made of those stay as they are"
    if replay_plan.skipped_changes:
        yield f"{replay_plan.skipped_changes}. A replay reads the table as it is after them: it has what they did"


def render_result(table: TablePlan, result: FillResult) -> Text:
    rejected = result.row_counts.get("rejected", 0)
    parts = [f"{result.rows:,} rows", *([f"{rejected:,} in quarantine"] if rejected else [])]
    parts += [f"{result.kept_rows:,} kept as they were"] if result.kept_rows else []
    version, generation = result.head.commit.version, result.head.entry.generation
    return Text.assemble((table.name, "bold"), f": {', '.join(parts)}; version {version}, generation {generation}")


def _result_document(table: TablePlan, result: FillResult) -> dict[str, Any]:
    return {
        "table": table.name,
        "rows": result.rows,
        "kept": result.kept_rows,
        "version": result.head.commit.version,
        "generation": result.head.entry.generation,
        "fates": dict(result.row_counts),
    }


def render_preview(preview: ReplayPreview) -> RenderableType:
    rows = preview.rows
    parts: list[RenderableType] = [Text(_summary(rows))]
    for label, names in rows.columns.items():
        if names:
            parts.append(Text(visible(f"  {label} columns: {', '.join(names)}")))
    if rows.parts:
        parts.append(_by_partition(rows))
    if preview.rejected_now or preview.rejected_then:
        parts.append(_rejected(preview))
    parts += [_sample(sample) for sample in rows.samples]
    return Group(*parts)


def _summary(rows: RowDifference) -> str:
    if rows.none:
        return f"  no difference: {rows.rows:,} rows"
    counts = f"{rows.added:,} rows added, {rows.removed:,} removed"
    if rows.by:
        return f"  {counts}, {rows.changed:,} changed (rows of the same {', '.join(rows.by)}): {rows.rows:,} rows then"
    return f"  {counts} (whole rows are compared: a changed one is one of each): {rows.rows:,} rows then"


def _by_partition(rows: RowDifference) -> Table:
    grid = Table("partition", "added", "removed", "changed")
    for counts in rows.parts:
        label = ", ".join(f"{name}={value}" for name, value in counts.partition.items())
        grid.add_row(Text(visible(label)), *(f"{count:,}" for count in (counts.added, counts.removed, counts.changed)))
    return grid


def _rejected(preview: ReplayPreview) -> Table:
    grid = Table("quarantine", "now", "then")
    for reason in sorted({*preview.rejected_now, *preview.rejected_then}):
        now, then = preview.rejected_now.get(reason, 0), preview.rejected_then.get(reason, 0)
        grid.add_row(Text(visible(reason)), f"{now:,}", f"{then:,}")
    return grid


def _sample(sample: RowSample) -> Text:
    if sample.kind != "changed" or sample.now is None or sample.then is None:
        return Text(f"  {sample.kind}: {_short(sample.then or sample.now or {})}")
    changed = [name for name in sample.then if sample.now.get(name) != sample.then.get(name)]
    changes = ", ".join(
        f"{visible(name)}: {json.dumps(sample.now.get(name))} -> {json.dumps(sample.then.get(name))}"
        for name in changed
    )
    unchanged = {name: value for name, value in sample.then.items() if name not in changed}
    return Text(f"  changed: {_short(unchanged)}: {changes}"[: 2 * _SHOWN])


def _short(row: dict[str, Any]) -> str:
    return shorten(json.dumps(row), _SHOWN)


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
    from penstock.operations.quarantine_rows import read_time
    from penstock.operations.replay_plan import document, plan_replay, run_replay
    from penstock.operations.replay_preview import preview_document, preview_replay

    plan, table_plan, store = load_table(directory, table)
    if abort:
        abort_verb("replay", plan, table_plan, store, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    console = text_console(as_json)
    as_of_time = datetime.now(UTC) if as_of == "now" else read_time("--as-of", as_of)
    replay_plan = plan_replay(plan, table_plan, store, version=version, as_of=as_of_time, cascade=cascade)
    console.print(render_plan(replay_plan), soft_wrap=True)
    confirm(yes or dry_run)
    answer: dict[str, Any] = {**document(replay_plan), "done": not dry_run}
    with verb_session(plan, console, table) as session:
        if dry_run:
            session.tell(table, "comparing what is there with what would be")
            preview = preview_replay(session.spark, plan, replay_plan)
            console.print(render_preview(preview))
            answer["difference"] = preview_document(preview)
        else:
            answer["tables"] = []
            for rebuilt_table, result in run_replay(session.spark, plan, replay_plan, session.tell):
                console.print(render_result(rebuilt_table, result))
                answer["tables"].append(_result_document(rebuilt_table, result))
    if as_json:
        print_json(answer)
