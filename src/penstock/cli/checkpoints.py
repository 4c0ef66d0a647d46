"""`penstock checkpoints`: inspect, repair or reset checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.console import visible
from penstock.cli.options import AsJson, Directory, DryRun, Tables, Yes, load_plan
from penstock.cli.session import confirm, steps_view, verb_session
from penstock.ledger.checkpoint import BATCH_FILES_KEPT
from penstock.ledger.position import VERSIONS, describe_position
from penstock.ledger.row_counts import BATCHES, UNMET
from penstock.operations.checkpoint_state import describe_positions
from penstock.storage.stores import Size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.operations.checkpoint_state import CheckpointBatch, CheckpointInspection, Leftover
    from penstock.operations.checkpoints import CheckpointDetails, CheckpointSummary
    from penstock.operations.heal import Healing, StartForecast
    from penstock.operations.reset import ResetPlan

# `checkpoints list` and `checkpoints heal`. Text that others may have written passes `visible` first.


LEFTOVERS_SHOWN = 8


def list_view(summaries: Sequence[CheckpointSummary], orphans: Sequence[Leftover], system: str) -> RenderableType:
    """`orphans` belong to no table of the project; `system` is where Penstock keeps its own files."""
    if not summaries:
        return Text("the project has no tables")
    leftovers = [*(leftover for summary in summaries for leftover in summary.leftovers), *orphans]
    location = Text(f"in {system}/checkpoints/<table>/<generation>", style="dim")
    return Group(_rows(summaries), location, *_problems(summaries), *_leftover_lines(leftovers))


def _rows(summaries: Sequence[CheckpointSummary]) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("table"), overflow="fold")
    for title in ("generation", "ledger", "planned", "committed"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    grid.add_column(Text("in step"), no_wrap=True)
    grid.add_column(Text("state"), justify="right", no_wrap=True)
    for title in ("size", "files", "per batch", "kept"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    for summary in summaries:
        checkpoint, weight = summary.inspection, summary.weight
        entry, stateful = checkpoint.entry, checkpoint.table.stream is not None
        grid.add_row(
            Text(checkpoint.table.name, style="bold"),
            *(
                Text("" if number is None else str(number))
                for number in (
                    entry and entry.generation,
                    entry and entry.batch,
                    checkpoint.planned,
                    checkpoint.committed,
                )
            ),
            format_in_step(checkpoint),
            Text(bytes_text(weight.state.bytes) if stateful and entry is not None else ""),
            Text(bytes_text(weight.size.bytes) if entry is not None else ""),
            Text(f"{weight.size.files:,}" if entry is not None else ""),
            Text("" if weight.per_batch is None else bytes_text(weight.per_batch)),
            Text(f"{weight.batches} of {BATCH_FILES_KEPT}" if weight.batches else ""),
        )
    return grid


def format_in_step(checkpoint: CheckpointInspection) -> Text:
    if checkpoint.refusal is not None:
        return Text("refused", style="bold red")
    if checkpoint.head is None:
        return Text("not created", style="dim")
    return Text("yes", style="green") if checkpoint.why is None else Text("no", style="yellow")


def _problems(summaries: Sequence[CheckpointSummary]) -> Iterator[Text]:
    texts = []
    for checkpoint in (summary.inspection for summary in summaries):
        name = (f"{checkpoint.table.name}: ", "bold")
        if checkpoint.refusal is not None:
            hint = f"\n  -> {checkpoint.refusal.hint}" if checkpoint.refusal.hint else ""
            texts.append(Text.assemble(name, (visible(checkpoint.refusal.message), "red"), hint))
        elif checkpoint.why is not None:
            heal_hint = (
                ""
                if checkpoint.table.stream is not None
                else f", or now by `penstock checkpoints heal {checkpoint.table.name}`"
            )
            texts.append(
                Text.assemble(
                    name, (visible(checkpoint.why), "yellow"), f"\n  -> the next start rebuilds it{heal_hint}"
                )
            )
    if texts:
        yield Text("")
    yield from texts


def _leftover_lines(leftovers: Sequence[Leftover]) -> Iterator[Text]:
    if not leftovers:
        return
    total = sum((leftover.size for leftover in leftovers), Size())
    folders = f"{len(leftovers)} folder{'s' * (len(leftovers) != 1)}"
    yield Text("")
    yield Text(f"left over, no start looks at them: {folders}, {size_text(total)}", style="dim")
    for leftover in leftovers[:LEFTOVERS_SHOWN]:
        yield Text(
            f"  {leftover.table}  {leftover.description}, {size_text(leftover.size)}: {leftover.folder}", style="dim"
        )
    if len(leftovers) > LEFTOVERS_SHOWN:
        yield Text(f"  and {len(leftovers) - LEFTOVERS_SHOWN} more: `--json` has all", style="dim")


def healing_view(table: str, healing: Healing | None) -> Iterator[Text]:
    """What a heal would do."""
    name = (table, "bold")
    if healing is None:
        yield Text.assemble(name, " is not created yet: there is nothing to heal")
        return
    batch = f"batch {healing.entry.generation}.{healing.entry.batch}"
    if healing.why is None:
        yield Text.assemble(name, f": its checkpoint is in step with the ledger, at {batch}: nothing to do")
        return
    yield Text.assemble(name, f": its checkpoint has to be rebuilt: {visible(healing.why)}")
    yield Text(f"  replaced: {healing.folder}")
    yield Text(f"  made from the ledger at {batch}: {describe_positions(healing.entry.after)}")


def size_text(size: Size) -> str:
    return f"{size.files:,} file{'s' * (size.files != 1)}, {bytes_text(size.bytes)}"


def bytes_text(count: int) -> str:
    """1,532 -> `1.5 kB`."""
    if count < 1000:
        return f"{count} B"
    number = float(count)
    for unit in ("kB", "MB", "GB"):
        number /= 1000
        if number < 999.5:
            return f"{number:.1f} {unit}" if number < 99.95 else f"{number:.0f} {unit}"
    return f"{number / 1000:,.1f} TB"


# `checkpoints show`: what one checkpoint is, what a start would do with it, and its last batches.


_FORECASTS = {
    "make the table": ("makes the table:", "green"),
    "go on": ("goes on", "green"),
    "rebuild": ("rebuilds", "yellow"),
    "open a generation": ("opens a generation:", "yellow"),
    "wait": ("waits, and tries again:", "yellow"),
    "refuse": ("is refused:", "bold red"),
}


def show_view(details: CheckpointDetails) -> RenderableType:
    title = Text(details.inspection.table.name, style="bold")
    parts: list[RenderableType] = [title, _facts(details)]
    if details.batches:
        parts += ["", _batches(details)]
    if details.inspection.checkpoint is not None:
        parts += ["", Text(f"planned and not committed: {_numbers(details.open)}", style="" if details.open else "dim")]
    if details.operators:
        parts += ["", _state(details)]
    return Group(*parts)


def _facts(details: CheckpointDetails) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim", min_width=10)
    grid.add_column(overflow="fold")
    for label, content in _fact_rows(details):
        grid.add_row(label, content if isinstance(content, Text) else Text(content))
    return Padding(grid, (0, 0, 0, 2))


def _fact_rows(details: CheckpointDetails) -> Iterator[tuple[str, str | Text]]:
    checkpoint, weight, entry = details.inspection, details.weight, details.inspection.entry
    yield "folder", checkpoint.folder or f"{checkpoint.table.checkpoints}/<generation>"
    yield "reads", details.reads
    if entry is not None:
        yield "ledger", f"ends with {entry.kind} {entry.generation}.{entry.batch} at {describe_positions(entry.after)}"
    if checkpoint.checkpoint is not None:
        yield "query id", visible(details.query or "missing")
        marker = checkpoint.checkpoint.marker
        yield (
            "belongs to",
            visible(f"{marker.get('table')}, ledger {marker.get('ledger')}, generation {marker.get('generation')}")
            if marker is not None
            else "nobody knows: its marker file is missing",
        )
        yield "size", size_text(weight.size) + _growth(details)
    if entry is not None:
        in_step_text = format_in_step(checkpoint)
        if checkpoint.why is not None:
            in_step_text = Text.assemble(in_step_text, f": {visible(checkpoint.why)}")
        yield "in step", in_step_text
    yield "definition", f"{checkpoint.table.definition}, {details.drift.describe}"
    if details.process is not None:
        yield "runner", Text(f"process {details.process} works on the table now", style="green")
    yield "a start", _forecast_text(details.forecast)
    for leftover in details.leftovers:
        yield "left over", f"{leftover.description}, {size_text(leftover.size)}: {leftover.folder}"


def _growth(details: CheckpointDetails) -> str:
    weight = details.weight
    if weight.per_batch is None or weight.grows_to is None:
        return ""
    state = f"; {bytes_text(weight.state.bytes)} of it state" if weight.state.files else ""
    growth = "" if weight.batches >= BATCH_FILES_KEPT else f", so it grows to {bytes_text(weight.grows_to)}"
    exception = " without the state" if weight.state.files else ""
    return (
        f"{state}; {bytes_text(weight.per_batch)} a batch, "
        f"of which the last {BATCH_FILES_KEPT} are kept{growth}{exception}"
    )


def _forecast_text(forecast: StartForecast) -> Text:
    words, style = _FORECASTS[forecast.does]
    text = Text.assemble((words, style), f" {visible(forecast.why)}")
    if forecast.unknown:
        text.append(f"; not known: {forecast.unknown}", style="yellow")
    return text.append(f"\n-> {forecast.hint}" if forecast.hint else "")


def _batches(details: CheckpointDetails) -> Table:
    definition = details.inspection.table.definition
    has_pins, has_counts = (
        any(batch.pins for batch in details.batches),
        any(batch.row_counts for batch in details.batches),
    )
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("  batch"), justify="right", no_wrap=True)
    for title in ("planned (UTC)", "committed"):
        grid.add_column(Text(title), no_wrap=True)
    for title in ("reads", *["pins"] * has_pins, *["what became of its rows"] * has_counts):
        grid.add_column(Text(title), overflow="fold")
    for batch in details.batches:
        grid.add_row(
            Text(str(batch.number)),
            Text("unreadable", style="red") if batch.time_ms is None else Text(_time(batch.time_ms)),
            Text("yes") if batch.committed else Text("no", style="yellow"),
            Text(_describe_read(batch)),
            *[Text(_pins(batch, definition))] * has_pins,
            *[Text(_row_counts(batch.row_counts))] * has_counts,
        )
    return grid


def _numbers(batches: Sequence[int]) -> str:
    if not batches:
        return "none"
    return f"batch {batches[0]}" if len(batches) == 1 else f"batches {batches[0]} to {batches[-1]}"


def _describe_read(batch: CheckpointBatch) -> str:
    if batch.number == 0 and not batch.read:
        return f"begins at {describe_positions(batch.after)}"
    return "; ".join(batch.read) or (f"up to {describe_positions(batch.after)}" if batch.after else "")


def _pins(batch: CheckpointBatch, definition: str) -> str:
    if batch.pins is None:
        return ""
    parts = [] if batch.pins.definition == definition else [visible(f"definition {batch.pins.definition}")]
    parts += [visible(f"{name} at version {version}") for name, version in batch.pins.lookups.items()]
    if batch.pins.watermark is not None and batch.pins.watermark.now is not None:
        parts.append(f"watermark {_time(batch.pins.watermark.now // 1000)}")
    return ", ".join(parts) or "today's definition"


def _row_counts(row_counts: Mapping[str, int]) -> str:
    nonzero = {name: count for name, count in row_counts.items() if count and name != BATCHES}
    return visible(", ".join(f"{count:,} {_count_label(name)}" for name, count in nonzero.items()))


def _count_label(name: str) -> str:
    return f"{name.removeprefix(UNMET)} not met" if name.startswith(UNMET) else name


def _state(details: CheckpointDetails) -> RenderableType:
    lines = [Text("Spark's state", style="bold")]
    for operator in details.operators:
        versions = (
            f"versions {operator.versions[0]} to {operator.versions[1]}"
            if operator.versions is not None
            else "no version"
        )
        behind = f", {operator.partitions_behind} of its partitions behind" if operator.partitions_behind else ""
        partitions = f"{operator.partitions} partition{'s' * (operator.partitions != 1)}"
        label = f"operator {operator.number}, {operator.label}" + (
            f" ({operator.name})" if operator.name and operator.name != operator.label else ""
        )
        lines.append(Text(f"  {label}: {partitions}, {versions}{behind}, {size_text(operator.size)}"))
    return Group(*lines)


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # not a time that a clock can show
        return str(timestamp_ms)


# `checkpoints reset`.


def render_reset(reset_plan: ResetPlan, readers: Sequence[str]) -> RenderableType:
    return Group(*_reset_lines(reset_plan, readers), steps_view(reset_plan.steps))


def _reset_lines(reset_plan: ResetPlan, readers: Sequence[str]) -> Iterator[Text]:
    before = describe_position(reset_plan.before) if reset_plan.before else "no position"
    yield Text.assemble((reset_plan.table.name, "bold"), f": {before} -> {describe_position(reset_plan.after)}")
    for label, ranges in (("never read", reset_plan.skipped), ("read again", reset_plan.read_again)):
        if ranges:
            unit = "versions" if ranges[0].topic == VERSIONS else "offsets"
            count = sum(span.end - span.start for span in ranges)
            yield Text(f"  {label}: {count:,} {unit}: {', '.join(map(str, ranges))}")
    for topic in reset_plan.dropped:
        yield Text(f"  no longer read: topic {topic}, which does not exist any more")
    if reset_plan.starts_over:
        yield Text(
            f"  emptied: all rows of {reset_plan.table.name}; made again from {', '.join(reset_plan.starts_over)}"
        )
        if readers:
            yield Text(f"  its rows reach {', '.join(readers)} once more: they keep those that they have read")


# The commands of `penstock checkpoints`.


group = typer.Typer(help="Inspect, repair or reset checkpoints.", no_args_is_help=True)


@group.callback()
def _group() -> None:
    pass


@group.command("list")
def list_(tables: Tables = None, directory: Directory = None, as_json: AsJson = False) -> None:
    """Per table: its checkpoint, whether it is in step with the ledger, how large it is and how it grows.

    No Spark is started and nothing is changed. Folders that are left over of earlier generations are listed too.
    """
    from penstock.operations.checkpoint_state import unknown_table_leftovers
    from penstock.operations.checkpoints import checkpoint_summaries, summary_document
    from penstock.plan.build import select_tables
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    store = open_store(plan)
    summaries = checkpoint_summaries(plan, select_tables(plan, tables or []), store)
    orphans = [] if tables else list(unknown_table_leftovers(plan, store))
    if as_json:
        from penstock.cli.console import print_json
        from penstock.operations.checkpoints import leftover_document

        documents = {
            "tables": [summary_document(summary) for summary in summaries],
            "others": [leftover_document(leftover) for leftover in orphans],
        }
        print_json({"project": plan.name, **documents})
        return
    from penstock.cli.console import print_view

    print_view(list_view(summaries, orphans, plan.system), piped=200)


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
    from penstock.operations.checkpoints import checkpoint_details, show_document
    from penstock.plan.build import select_tables
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (table_plan,) = select_tables(plan, [table])
    details = checkpoint_details(plan, table_plan, open_store(plan), last)
    if as_json:
        from penstock.cli.console import print_json

        print_json(show_document(details))
        return
    from penstock.cli.console import print_view

    print_view(show_view(details), piped=200)


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
    from penstock.cli.console import print_json, text_console
    from penstock.operations.checkpoints import healing_document
    from penstock.operations.heal import plan_heal, run_heal
    from penstock.plan.build import select_tables
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (table_plan,) = select_tables(plan, [table])
    store = open_store(plan)
    healing = plan_heal(plan, table_plan, store)
    console, done = text_console(as_json), False
    for line in healing_view(table, healing):
        console.print(line, soft_wrap=True)
    if healing is not None and healing.why is not None and not dry_run:
        if not yes:
            confirm()
        healing = run_heal(plan, table_plan, store)
        done = healing is not None and healing.why is not None
        console.print("  done: `penstock run` continues from there" if done else "  another process has done it")
    if as_json:
        print_json({**(healing_document(healing) if healing is not None else {"table": table}), "done": done})


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
    from penstock.cli.console import print_json, text_console
    from penstock.operations.reset import document, plan_reset, run_reset
    from penstock.plan.build import select_tables
    from penstock.storage.stores import open_store

    plan, console = load_plan(directory), text_console(as_json)
    (table_plan,) = select_tables(plan, [table])
    reset_plan = plan_reset(table_plan, open_store(plan), to, tuple(topic or ()))
    readers = [reader.name for reader in plan.tables if table in reader.upstream]
    console.print(render_reset(reset_plan, readers), soft_wrap=True)
    if not dry_run:
        if not yes:
            confirm()
        with verb_session(plan, console, table) as session:
            entry = run_reset(session.spark, plan, reset_plan).entry
        if further_note := (entry.note or "").removeprefix(reset_plan.note).lstrip("; "):
            console.print(f"  {further_note}", style="yellow", soft_wrap=True, markup=False)
        console.print(f"  done: generation {entry.generation}. `penstock run` continues from there")
    if as_json:
        print_json({**document(reset_plan), "done": not dry_run})
